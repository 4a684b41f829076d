"""Single records that are deleted: gone for all queue groups, listed for those who hide them, still in the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from penstock.broker.engine.topics import deleting
from penstock.transport import messages as m
from support.dead import die, set_queue
from support.engine import Rig
from support.staging import partition_of


@pytest.fixture
def rig() -> Rig:
    return Rig()


def filled(rig: Rig, count: int = 8, **how: Any) -> bytes:
    topic = rig.topic()
    set_queue(rig, topic, **how)
    rig.produce(topic, [b"%d" % number for number in range(count)])
    return topic


def delete(rig: Rig, topic: bytes, *offsets: int) -> Any:
    answer = rig.ask(m.DeleteRecords, topic, [(0, offset) for offset in offsets])
    return answer if isinstance(answer, m.Failure) else answer.count


def listed(rig: Rig, topic: bytes, offset: int = 0, end: int = 100) -> list[tuple[int, int]]:
    return rig.ask(m.ListDeleted, topic, 0, offset, end).ranges


def test_deleted_records_are_skipped_by_every_group_and_seen_by_streams(rig: Rig):
    topic = filled(rig)
    assert delete(rig, topic, 1, 5, 2, 2, 8, 99) == 3
    assert delete(rig, topic, 2, 3) == 1, "those that were not deleted before"
    assert rig.queue(topic).ready == 4
    for clean in (False, True):
        rig.restart(clean=clean)
        assert listed(rig, topic) == [(1, 3), (5, 1)]
        assert listed(rig, topic, 2, 5) == [(2, 2)]
    assert rig.lease(topic, most=9).runs == [(0, 1, 1), (4, 1, 1), (6, 2, 1)]
    assert rig.lease(topic, group="later", most=9).runs == [(0, 1, 1), (4, 1, 1), (6, 2, 1)]
    assert len(rig.read(topic)) == 8
    assert rig.ask(m.AskTask, topic, "g", 0, 2).code == "task_forgotten"


def test_open_records_leave_their_group(rig: Rig):
    topic = filled(rig, max_attempts=5)
    die(rig, topic, [0])
    leased = rig.lease(topic, most=4)
    rig.settle(topic, m.Settle(0, leased.token, 1, [(2, 1)], 0, "no"))
    assert delete(rig, topic, 0, 1, 2) == 3
    queue = rig.queue(topic)
    assert (queue.dead, queue.in_flight, queue.ready) == (0, 2, 3)
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)]).lost == []
    assert delete(rig, topic, 3, 4) == 2
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)]).lost == [(0, leased.token)]
    assert rig.settle(topic, m.Settle(0, leased.token, 0))[0].code == "lease_lost"


def test_delayed_and_urgent_ones_go_as_well(rig: Rig):
    topic = rig.topic()
    set_queue(rig, topic)
    late_us = rig.now.wall_us + 2_000_000
    rig.produce(topic, [b"0", b"1", b"2", b"3"], priorities=[5, 0, 5, 0], not_before=[0, late_us, 0, late_us])
    assert delete(rig, topic, 0, 1) == 2
    assert (rig.queue(topic).ready, rig.queue(topic).delayed) == (1, 1)
    rig.pass_time(3)
    assert sorted(first for first, _, _ in rig.lease(topic, most=9).runs) == [2, 3]


def test_a_deleted_record_stays_deleted_whatever_comes(rig: Rig):
    topic = rig.topic(dedup="replace", dedup_window_s=60)
    set_queue(rig, topic)
    rig.produce(topic, [b"0"], dedup=[b"a"])
    assert delete(rig, topic, 0) == 1
    rig.produce(topic, [b"1"], dedup=[b"a"])
    assert listed(rig, topic) == [(0, 1)]
    rig.ask(m.ResetQueue, topic, "g", m.EARLIEST)
    assert 0 not in [first for first, _, _ in rig.lease(topic, most=9).runs]


def test_they_are_forgotten_once_the_partition_begins_behind_them(rig: Rig):
    topic = filled(rig)
    delete(rig, topic, 1, 2, 6)
    rig.ask(m.Trim, topic, m.TrimRule.OFFSET, 2)
    assert listed(rig, topic) == [(2, 1), (6, 1)]
    assert delete(rig, topic, 0) == 0


@pytest.mark.parametrize(("records", "first"), [(0, 8), (1, 7), (2, 5), (3, 4), (5, 0), (9, 0)])
def test_a_trim_counts_those_that_are_not_deleted(rig: Rig, records: int, first: int):
    topic = filled(rig)
    delete(rig, topic, 1, 2, 6)
    assert rig.ask(m.Trim, topic, m.TrimRule.RECORDS, records).partitions[0].first == first


def test_a_partition_remembers_so_many(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deleting, "DELETED_MAX", 3)
    topic = filled(rig)
    assert delete(rig, topic, 1, 2) == 2
    assert delete(rig, topic, 3, 4).code == "limit_reached"
    assert delete(rig, topic, 3) == 1
    rig.ask(m.Trim, topic, m.TrimRule.OFFSET, 3)
    assert delete(rig, topic, 4, 5) == 2


def test_many_are_deleted_in_portions_and_listed_in_several_answers(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deleting, "RUNS_MAX", 2)
    topic = filled(rig, 700)
    assert delete(rig, topic, *range(0, 600), *range(601, 700, 2)) == 650
    answer = rig.ask(m.ListDeleted, topic, 0, 0, 700)
    assert (answer.ranges, answer.next_offset) == ([(0, 600), (601, 1)], 603)
    answer = rig.ask(m.ListDeleted, topic, 0, 0, 602)
    assert (answer.ranges, answer.next_offset) == ([(0, 600), (601, 1)], 602)
    answer = rig.ask(m.ListDeleted, topic, 0, 697, 698)
    assert (answer.ranges, answer.next_offset) == ([(697, 1)], 698)
    answer = rig.ask(m.ListDeleted, topic, 0, 696, 697)
    assert (answer.ranges, answer.next_offset) == ([], 697)


def test_what_cannot_be_is_refused(rig: Rig):
    topic = filled(rig)
    assert rig.ask(m.DeleteRecords, topic, [(0, 1), (1, 1)]).code == "unknown_partition"
    assert rig.ask(m.ListDeleted, topic, 0, 5, 4).code == "invalid_request"
    assert rig.ask(m.ListDeleted, topic, 0, 5, 5).ranges == []
    assert rig.ask(m.ListDeleted, topic, 1, 0, 4).code == "unknown_partition"
    assert listed(rig, topic) == []
    partition_of(rig, topic).history.damaged = True
    assert rig.ask(m.DeleteRecords, topic, [(0, 1)]).code == "unavailable"


def test_it_is_answered_when_it_is_durable(rig: Rig):
    topic = filled(rig)
    rig.store.hold = True
    rig.send(m.DeleteRecords(77, topic, [(0, 1)]))
    rig.send(m.DeleteRecords(78, topic, [(0, 1)]))
    rig.turn()
    assert rig.answers(77) == rig.answers(78) == []
    assert listed(rig, topic) == []
    rig.store.hold = False
    rig.sync()
    assert (rig.answers(77)[0].count, rig.answers(78)[0].count) == (1, 0)


def test_runs_are_neighbours():
    assert deleting.runs_of(np.array([], np.int64)) == []
    assert deleting.runs_of(np.array([3, 4, 6, 8, 9], np.int64)) == [(3, 2), (6, 1), (8, 2)]
