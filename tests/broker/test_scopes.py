"""Scopes of tokens and keys: of all that a user may do, what one proof of it is for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from penstock.broker import access_file
from penstock.broker.access import BrokerAccess
from penstock.broker.errors import InvalidUsers
from penstock.broker.rights import EVERYTHING, OPERATIONS, Grant, Principal, authorize
from penstock.gateway.users import Users
from penstock.transport.keys import Key


def allow(operations: str, pattern: str) -> Grant:
    return Grant(False, frozenset(operations.split(",")), pattern)


READ_A = allow("read", "topic:a*")


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "access")
    access_file.add_grant(path, "ann", allow("read,write", "topic:*"))
    return path


def rights(principal: Principal | None, resource: str) -> list[str]:
    assert principal is not None
    return [each for each in OPERATIONS if authorize(principal, each, resource)]


def test_a_scope_narrows_what_grants_allow_and_adds_nothing():
    ann = Principal("ann", [allow("read", "topic:*")], "token:1", None, [allow("read,manage", "topic:a*")])
    assert rights(ann, "topic:ab") == ["see", "read"], "manage is in its scope, and no grant allows it"
    assert rights(ann, "topic:b") == []
    assert rights(Principal("ann", [allow("see", "*")], scope=[allow("read", "topic:a")]), "topic:a") == ["see"]
    both = Principal("ann", EVERYTHING, scope=[allow("read", "topic:a"), allow("write", "topic:b")])
    assert [rights(both, each) for each in ("topic:a", "topic:b", "node")] == [["see", "read"], ["see", "write"], []]
    denied = Principal("ann", [*EVERYTHING, Grant(True, frozenset(["read"]), "topic:a")], scope=[READ_A])
    assert rights(denied, "topic:a") == ["see"]


def test_a_token_is_for_its_scope_at_the_gateway(path: str):
    wide, narrow = access_file.add_token(path, "ann"), access_file.add_token(path, "ann", 0, [READ_A])
    users = Users.load(path, enforced=True)
    assert rights(users.verify_token(wide[0]), "topic:ab") == ["see", "read", "write"]
    found = users.verify_token(narrow[0])
    assert rights(found, "topic:ab") == ["see", "read"]
    assert found is not None
    assert rights(users.current(found), "topic:b") == []
    assert rights(Users.load(path).verify_token(narrow[0]), "topic:ab") == ["see", "read"], "without grants, too"


def test_a_principal_whose_token_is_gone_may_do_nothing(path: str, monkeypatch: pytest.MonkeyPatch):
    secret, token = access_file.add_token(path, "ann")
    access_file.add_password(path, "ann", "x")
    users = Users.load(path, enforced=True)
    found, by_password = users.verify_token(secret), asyncio.run(users.verify("ann", "x"))
    assert found is not None
    assert by_password is not None
    access_file.delete_token(path, token.id)
    monkeypatch.setattr("penstock.gateway.users.LOOK_S", 0.0)
    assert rights(users.current(found), "topic:a") == []
    assert rights(users.current(by_password), "topic:a") == ["see", "read", "write"]


def test_a_key_is_for_its_scope_at_the_broker(path: str):
    wide, narrow = Key.generate().public, Key.generate().public
    access_file.add_key(path, "ann", wide)
    access_file.add_key(path, "ann", narrow, 0, [READ_A])
    access = BrokerAccess(path)
    assert rights(access.of_peer(f"key:{wide}"), "topic:b") == ["see", "read", "write"]
    assert rights(access.of_peer(f"key:{narrow}"), "topic:b") == []
    assert rights(access.of_peer(f"key:{narrow}"), "topic:a") == ["see", "read"]


def test_scopes_go_with_their_token_or_key(path: str):
    token = access_file.add_token(path, "ann", 0, [READ_A, allow("write", "topic:b")])[1]
    key = access_file.add_key(path, "ann", Key.generate().public, 0, [READ_A])
    other = access_file.add_key(path, "ann", Key.generate().public, 0, [READ_A])
    assert {id_: len(found) for id_, found in access_file.read(path).scopes.items()} == {
        token.id: 2, key.id: 1, other.id: 1,
    }  # fmt: skip
    access_file.delete_token(path, token.id)
    access_file.delete_key(path, key.id)
    assert set(access_file.read(path).scopes) == {other.id}


@pytest.mark.parametrize(
    "line", ["ann:scope:00:read:topic:a", "ann:scope:0123abcd:fly:topic:a", "ann:scope:0123abcd:read:a"]
)
def test_a_line_that_is_no_scope_is_refused(path: str, line: str):
    with open(path, "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InvalidUsers, match="line 2"):
        access_file.read(path)


def test_a_scope_that_is_no_resource_is_refused(path: str):
    with pytest.raises(InvalidUsers, match="is no resource"):
        access_file.add_token(path, "ann", 0, [allow("read", "a b")])
    assert access_file.read(path).tokens == []
