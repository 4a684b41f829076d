"""Grants: what is allowed, what is denied, and which patterns there are."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from penstock.broker.rights import (
    DECIDED_MOST,
    EVERYTHING,
    OPERATIONS,
    RESOURCE_MOST,
    Grant,
    Principal,
    authorize,
    is_pattern,
)


def grant(operations: str, pattern: str, *, denies: bool = False) -> Grant:
    return Grant(denies, frozenset(operations.split(",")), pattern)


def test_what_is_not_allowed_is_denied():
    ann = Principal("ann", [grant("read", "topic:a")])
    assert [authorize(ann, each, "topic:a") for each in OPERATIONS] == [True, True, False, False]
    for other in ("topic:ab", "topic:", "group:a", "a", "", "node", "topic:a/b", "TOPIC:a"):
        assert not [each for each in OPERATIONS if authorize(ann, each, other)]
    assert not [each for each in OPERATIONS if authorize(Principal("bob"), each, "topic:a")]


def test_a_prefix_stands_for_all_that_begin_alike():
    ann = Principal("ann", [grant("write", "topic:a-*")])
    assert [authorize(ann, "write", f"topic:{name}") for name in ("a-", "a-b", "a-b.c", "a", "b-a-")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert authorize(Principal("ann", EVERYTHING), "manage", "node")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("pattern", ["topic:a", "topic:*", "*"])
def test_a_denial_wins_wherever_it_stands(order, pattern):
    ann = Principal("ann", [grant("read,write", "topic:a"), grant("read", pattern, denies=True)][::order])
    assert [authorize(ann, each, "topic:a") for each in OPERATIONS] == [True, False, True, False]


def test_what_may_not_be_used_in_any_way_is_not_seen():
    ann = Principal("ann", [grant("read", "topic:*"), grant("read", "topic:secret", denies=True)])
    assert not authorize(ann, "see", "topic:secret")
    assert authorize(ann, "see", "topic:other")
    bob = Principal("bob", [*EVERYTHING, grant("see", "topic:secret", denies=True)])
    assert not authorize(bob, "see", "topic:secret")
    assert authorize(bob, "read", "topic:secret")


def test_a_principal_remembers_so_many_decisions_and_they_stay_right():
    ann = Principal("ann", [grant("read", "topic:1*")])
    for _ in range(2):
        for number in range(DECIDED_MOST):
            assert authorize(ann, "read", f"topic:{number}") == str(number).startswith("1")
            assert len(ann.decided) <= DECIDED_MOST


def test_what_is_too_long_for_a_resource_is_decided_and_not_remembered():
    ann = Principal("ann", [grant("read", "group:*"), grant("write", "*"), grant("write", "group:a*", denies=True)])
    longest = f"producer:{'a' * 200}/{'b' * 200}"
    assert len(longest) == RESOURCE_MOST
    assert authorize(ann, "write", longest)
    for _ in range(2):
        assert not authorize(ann, "write", "group:" + "a" * RESOURCE_MOST)
        assert authorize(ann, "see", "group:" + "a" * RESOURCE_MOST)
    assert set(ann.decided) == {("write", longest)}


GOOD = (
    "*", "node", "topic:a", "topic:a-*", "topic:*", "group:a/b", "group:a/b*", "group:a/*", "group:a*", "group:*",
    "producer:a/b", "schedule:a/b", "transaction:a", "transaction:*",
)  # fmt: skip
BAD = (
    "", "a", "node*", "topic:", "topic:a b", "topic:.a", "topic:a*b", "topic:**", "group:a", "group:/b", "group:a/",
    "group:a/b/c", "transaction:a/b", "topic:a/b", "user:a", "topic:a\n", "topic:" + "a" * 201,
)  # fmt: skip


def test_patterns_name_resources():
    assert [each for each in GOOD if not is_pattern(each)] == []
    assert [each for each in BAD if is_pattern(each)] == []


def test_principals_of_one_name_are_equal():
    assert Principal("a") == Principal("a", EVERYTHING) != Principal("b")
    assert {Principal("a"), Principal("a")} == {Principal("a")}
    assert Principal("a") != "a"
    assert repr(Principal("a", EVERYTHING)) == "Principal('a')"


def test_grants_together_decide_as_each_of_them_covers():
    names = ("topic:a", "topic:ab", "topic:b", "node", "group:a/b", "topic:")
    grants = [
        Grant(denies, frozenset(operations), pattern)
        for denies in (False, True)
        for operations in (("read",), ("write", "manage"))
        for pattern in ("*", "topic:a", "topic:a*", "node", "group:a/*")
    ]
    for some in combinations(grants, 3):
        principal = Principal("ann", some)
        for operation, name in product(("read", "write"), names):
            covering = [each.denies for each in some if each.covers(operation, name)]
            assert authorize(principal, operation, name) is (covering.count(False) > 0 and not any(covering))
