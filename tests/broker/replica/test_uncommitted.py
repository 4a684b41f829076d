"""What a leader has proposed and no majority has yet is bounded, and clients are not heard beyond that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from penstock.broker.member.member import ShardMember
from penstock.broker.replica import uncommitted
from penstock.broker.replica.uncommitted import UNCOMMITTED_BYTES, Uncommitted
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import Shard

VALUE = b"value".ljust(40_000, b".")


def test_bytes_are_those_of_proposals_that_are_neither_applied_nor_cut():
    proposals = Uncommitted()
    for index in range(1, 6):
        proposals.proposed(index, 10**index)
    assert proposals.bytes == 111_110
    proposals.applied(2)
    assert proposals.bytes == 111_000
    proposals.cut(4)
    assert proposals.bytes == 11_000
    proposals.cut(4)
    proposals.applied(2)
    assert proposals.bytes == 11_000
    proposals.applied(9)
    assert proposals.bytes == 0
    proposals.cut(0)
    assert proposals.bytes == 0


def test_a_quarter_of_a_gigabyte_may_wait_and_not_more():
    proposals = Uncommitted()
    proposals.proposed(1, 256 << 20)
    assert (UNCOMMITTED_BYTES, proposals.is_full) == (256 << 20, False)
    proposals.proposed(2, 1)
    assert proposals.is_full


def test_a_leader_whose_entries_do_not_commit_rests_and_goes_on_once_they_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uncommitted, "UNCOMMITTED_BYTES", 2 * len(VALUE))
    shard = Shard(11)
    topic = shard.topic("t")
    leader = shard.until(lambda: shard.leader)
    links: Any = SimpleNamespace(own=SimpleNamespace(peers={1: "", 2: "", 3: ""}, node=leader.number))
    driven = ShardMember(leader.replica, links, cast("Any", None), leader.now)
    shard.syncing = False
    requests: list[int] = []
    while not driven.rests and len(requests) < 5:
        requests.append(shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([VALUE]))))
        shard.turn(leader)
    assert len(requests) == 3, "two of them fill it, and the third waits"
    last = leader.replica.order.last_index()
    shard.rounds(3)
    assert (leader.replica.order.last_index(), driven.rests) == (last, True)
    shard.syncing = True
    shard.until(lambda: all(shard.answer(leader, request) for request in requests))
    assert [shard.answer(leader, request).offset for request in requests] == [0, 1, 2]
    assert not driven.rests


def test_what_another_leader_has_cut_is_not_waited_for_any_more():
    shard = Shard(12)
    topic = shard.topic("t")
    old = shard.until(lambda: shard.leader)
    shard.cut = {(a, b) for a in shard.numbers for b in shard.numbers if old.number in (a, b)}
    for _ in range(3):
        shard.send(old, lambda number: m.Produce(number, topic, 0), bytes(encode([VALUE])))
        shard.turn(old)
    assert old.replica._uncommitted.bytes > 3 * len(VALUE)
    shard.until(lambda: shard.leader not in (None, old))
    shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    shard.cut.clear()
    shard.until(lambda: not old.replica._uncommitted.bytes)
