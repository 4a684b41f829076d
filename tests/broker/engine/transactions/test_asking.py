"""Questions for the last epoch: each waits for the commits that came before it."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.transactions.committing import LOOKS
from penstock.broker.engine.turns.portions import STEPS
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.transactions import answer_to, code, commit, home, put, send_commit


def asked_beside_a_commit(turns: int) -> tuple[Rig, int]:
    """Another client asks while a decision is queued, or some turns later. Returns the number of its request."""
    rig = Rig()
    a = rig.topic("a")
    commit(rig, "etl", 1)
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    send_commit(rig, "etl", 2, only)
    rig.turn(turns)
    request = rig.next_request()
    rig.send(m.AskTransaction(request, "etl"), peer="another")
    assert answer_to(rig, request) is None
    return rig, request


@pytest.mark.parametrize("turns", [0, 1], ids=["queued", "in flight"])
def test_who_asks_while_a_commit_is_under_way_is_told_of_it_once_it_stands(turns: int):
    """A client that had no answer goes on behind it: under another epoch it would send the same records once more."""
    rig, request = asked_beside_a_commit(turns)
    rig.turn()
    assert answer_to(rig, request) is None, "it may still fail"
    rig.store.hold = False
    rig.sync()
    assert answer_to(rig, request).epoch == 2


def test_who_asks_while_a_commit_is_under_way_is_told_of_the_one_before_when_it_fails():
    rig, request = asked_beside_a_commit(0)

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    home(rig, "etl").log.append = full
    rig.turn()
    assert answer_to(rig, request).epoch == 1


def test_who_asks_is_told_of_a_commit_in_flight_though_what_came_behind_it_fails():
    rig, request = asked_beside_a_commit(1)
    again = rig.next_request()
    partition = home(rig, "etl")
    beside = next(name for name in map(str, range(99)) if home(rig, name) is partition)
    append = partition.log.append

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    partition.log.append = full
    send_commit(rig, beside, 1)
    rig.send(m.AskTransaction(again, "etl"))
    rig.turn()
    partition.log.append = append
    assert answer_to(rig, again) is None
    rig.store.hold = False
    rig.sync()
    assert [answer_to(rig, each).epoch for each in (request, again)] == [2, 2]


def test_who_asks_while_the_stages_of_a_large_commit_are_looked_through_is_told_what_became_of_it():
    rig = Rig()
    topic = rig.topic("a")
    commit(rig, "etl", 1)
    stages = [put(rig, topic, stage, b"1") for stage in range(1, 2 + LOOKS * STEPS)]
    send_commit(rig, "etl", 2, *stages)
    request = rig.next_request()
    rig.send(m.AskTransaction(request, "etl"), peer="another")
    assert answer_to(rig, request) is None
    rig.pass_time(1)
    assert answer_to(rig, request).epoch == 2


def test_who_asks_while_a_commit_is_under_way_is_not_told_what_is_not_known():
    rig, request = asked_beside_a_commit(1)
    home(rig, "etl").log.poison("fdatasync: I/O error")
    rig.turn()
    assert code(answer_to(rig, request)) == "unavailable"


def test_who_asks_while_a_commit_waits_for_the_disk_is_told_what_became_of_it():
    rig = Rig()
    topic = rig.topic("w", commit="written")
    commit(rig, "etl", 1)
    rig.store.hold = True
    send_commit(rig, "etl", 2, put(rig, topic, 1, b"1"))
    rig.pass_time(1)
    asked = [rig.next_request(), rig.next_request()]
    for request, name in zip(asked, ("etl", "another"), strict=True):
        rig.send(m.AskTransaction(request, name))
    rig.pass_time(1)
    assert [answer_to(rig, request) for request in asked] == [None, m.TransactionState(asked[1], -1, True, 0)]
    rig.store.hold = False
    rig.pass_time(2)
    assert answer_to(rig, asked[0]).epoch == 2


@pytest.mark.parametrize("refused", [False, True])
def test_who_asks_while_the_first_commit_makes_its_topic_is_told_what_became_of_it(refused: bool):
    rig = Rig()
    a = rig.topic("a")
    only = put(rig, a, 1, b"1")
    rig.store.hold = True
    send_commit(rig, "etl", 1, only)
    request = rig.next_request()
    rig.send(m.AskTransaction(request, "etl"))
    rig.pass_time(1)
    assert answer_to(rig, request) is None
    if refused:
        rig.node._registry.catalogue.log.poison("fdatasync: I/O error")
    rig.store.hold = False
    for log in rig.node.logs:
        if log.poisoned is None:
            log.sync()
    rig.pass_time(1)
    assert answer_to(rig, request).epoch == (-1 if refused else 1)
