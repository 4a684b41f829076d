"""Leased records, listed by offset."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.requests import pending
from penstock.transport import messages as m
from penstock.transport.queue_messages import FOREVER_US
from support.engine import START_US, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records on each of two partitions, and a group whose leases have no end."""
    topic = rig.topic(partitions=2)
    rig.ask(m.SetQueue, topic, "g", {"lease_s": None, "backoff_s": 0, "jitter": 0})
    for partition in range(2):
        rig.produce(topic, [b"%d" % number for number in range(10)], partition)
    return topic


def listed(rig: Rig, topic: bytes, most: int = 100, partition: int = 0, **how: Any) -> m.PendingRecords:
    answer = rig.ask(lambda request: m.ListPending(request, topic, "g", partition, most, **how))
    assert isinstance(answer, m.PendingRecords), answer
    return answer


def offsets(found: m.PendingRecords) -> list[int]:
    return [run.offset + number for run in found.runs for number in range(run.count)]


# -- the list -----------------------------------------------------------------------------------------


def test_what_workers_hold_is_listed_in_order_with_lease_attempt_and_time(rig: Rig, topic: bytes):
    first = rig.lease(topic, most=3, worker="ann", partition=0)
    rig.pass_time(5)
    second = rig.lease(topic, most=2, worker="bob", partition=0, lease_ms=60_000)
    rig.settle(topic, m.Settle(0, first.token, 0, [(1, 1)]))
    rig.settle(topic, m.Settle(0, second.token, 1, [(3, 1)]))
    third = rig.lease(topic, most=1, worker="ann", partition=0)
    found = listed(rig, topic)
    assert (found.next_offset, found.now_us) == (-1, rig.now.wall_us)
    given_us = START_US + 5_000_000
    assert found.runs == [
        m.PendingRun(0, 1, 1, "ann", START_US, FOREVER_US, first.token),
        m.PendingRun(2, 1, 1, "ann", START_US, FOREVER_US, first.token),
        m.PendingRun(3, 1, 2, "ann", given_us, FOREVER_US, third.token),
        m.PendingRun(4, 1, 1, "bob", given_us, given_us + 60_000_000, second.token),
    ]
    assert listed(rig, topic, partition=1).runs == []


def test_a_list_is_of_a_range_of_one_worker_or_of_what_is_idle(rig: Rig, topic: bytes):
    rig.lease(topic, most=4, worker="ann", partition=0)
    rig.pass_time(5)
    rig.lease(topic, most=4, worker="bob", partition=0)
    for end in (6, 4):
        answer = listed(rig, topic, offset=2, end=end)
        assert (offsets(answer), answer.next_offset) == (list(range(2, end)), -1)
    for nothing in (listed(rig, topic, offset=2, end=2), listed(rig, topic, offset=7, end=0)):
        assert (nothing.runs, nothing.next_offset) == ([], -1)
    assert offsets(listed(rig, topic, worker="bob")) == [4, 5, 6, 7]
    assert offsets(listed(rig, topic, worker="bob", offset=5, end=7)) == [5, 6]
    assert offsets(listed(rig, topic, worker="cid")) == offsets(listed(rig, topic, worker="")) == []
    assert offsets(listed(rig, topic, min_idle_ms=5000)) == [0, 1, 2, 3]
    assert offsets(listed(rig, topic, min_idle_ms=5001)) == []
    assert offsets(listed(rig, topic, min_idle_ms=1 << 62)) == []
    assert offsets(listed(rig, topic, min_idle_ms=1, worker="bob")) == []


def test_an_extended_lease_is_idle_since_it_was_given(rig: Rig, topic: bytes):
    lease = rig.lease(topic, most=1, partition=0, lease_ms=10_000)
    rig.pass_time(5)
    rig.ask(m.ExtendLeases, topic, "g", [(0, lease.token)], 10_000)
    (run,) = listed(rig, topic, min_idle_ms=5000).runs
    assert (run.given_us, run.until_us) == (START_US, START_US + 15_000_000)


@pytest.mark.parametrize("most", [1, 2, 3, 100])
@pytest.mark.parametrize("worker", [None, "ann"])
@pytest.mark.parametrize("end", [-1, 800])
def test_a_list_goes_on_where_it_stopped_until_nothing_is_left(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, most: int, worker: str | None, end: int
):
    monkeypatch.setattr(pending, "LIST_MAX", 3)
    topic = rig.topic()
    rig.produce(topic, [b""] * 1000)
    held: dict[int, str] = {}
    for number, count in enumerate((5, 300, 1, 1, 260, 4, 300)):
        lease = rig.lease(topic, most=count, worker=("ann", "bob")[number % 2])
        held.update(dict.fromkeys(range(lease.runs[0][0], lease.runs[0][0] + count), ("ann", "bob")[number % 2]))
        for offset in range(lease.runs[0][0] + 1, lease.runs[0][0] + count, 7):
            rig.settle(topic, m.Settle(0, lease.token, 0, [(offset, 1)]))
            del held[offset]
    wanted = [at for at, each in held.items() if worker in (None, each) and at < (end if end >= 0 else 1000)]
    if most == 1:
        wanted = wanted[:40]
    found: list[int] = []
    offset = 0
    while offset >= 0 and len(found) < len(wanted):
        answer = listed(rig, topic, most, offset=offset, end=end, worker=worker)
        assert len(offsets(answer)) <= most
        assert len(answer.runs) <= 3
        assert answer.next_offset == -1 or answer.next_offset > offset
        found += offsets(answer)
        offset = answer.next_offset
    assert found == wanted
    assert most == 1 or offset == -1 or listed(rig, topic, most, offset=offset, end=end, worker=worker).runs == []


def test_a_lease_over_many_blocks_is_one_run(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b""] * 3000)
    lease = rig.lease(topic, most=3000)
    assert [(run.offset, run.count) for run in listed(rig, topic, 2500).runs] == [(0, 2500)]
    rig.settle(topic, m.Settle(0, lease.token, 1, [(512, 256)], 0))
    again = rig.lease(topic, most=256)
    assert [(run.offset, run.count, run.attempt, run.token) for run in listed(rig, topic, 2500).runs] == [
        (0, 512, 1, lease.token), (512, 256, 2, again.token), (768, 1732, 1, lease.token),
    ]  # fmt: skip


def test_a_list_is_of_what_is_committed(rig: Rig, topic: bytes):
    lease = rig.lease(topic, most=2, partition=0)
    rig.store.hold = True
    rig.send(m.SettleTasks(rig.next_request(), topic, "g", [m.Settle(0, lease.token, 0)]))
    rig.turn()
    assert offsets(listed(rig, topic)) == [0, 1]
    rig.store.hold = False
    rig.sync()
    assert offsets(listed(rig, topic)) == []


def test_a_list_is_the_same_after_a_restart_with_or_without_a_snapshot(topic: bytes, rig: Rig):
    rig.lease(topic, most=3, worker="ann", partition=0)
    before = listed(rig, topic).runs
    for clean in (False, True):
        rig.restart(clean=clean)
        assert listed(rig, topic).runs == before


def test_a_group_that_is_deleted_meanwhile_ends_the_list(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b""] * 3000)
    for _ in range(1500):
        rig.lease(topic, most=2)
    request = rig.next_request()
    rig.send(m.ListPending(request, topic, "g", 0, 10, min_idle_ms=1000))
    assert rig.answers(request) == [], "it is done in portions"
    rig.node._registry.topics.get(topic).partition(0).committed.queues.by_name.clear()
    rig.turn(200)
    assert [each.code for each in rig.answers(request)] == ["unknown_group"]


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda t: m.ListPending(9, t, "h", 0, 10), "unknown_group"),
        (lambda t: m.ListPending(9, t, "g", 2, 10), "unknown_partition"),
        (lambda t: m.ListPending(9, t, "g", 0, 0), "invalid_request"),
        (lambda t: m.ListPending(9, b"x" * 16, "g", 0, 10), "unknown_topic"),
    ],
)
def test_what_is_not_there_is_refused(rig: Rig, topic: bytes, make: Any, code: str):
    rig.send(make(topic))
    rig.turn()
    assert [each.code for each in rig.answers(9)] == [code]
