"""Records that are taken without a lease: done when they are given, and back if they certainly were not."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.storage.batch import Kind
from penstock.transport import messages as m
from support.dead import set_queue
from support.engine import Rig, records
from support.staging import partition_of


@pytest.fixture
def rig() -> Rig:
    return Rig()


def filled(rig: Rig, count: int = 6, size: int = 1) -> bytes:
    topic = rig.topic()
    for number in range(count):
        rig.produce(topic, [b"%d" % number * size])
    return topic


def take(rig: Rig, topic: bytes, most: int = 1, **how: Any) -> Any:
    return rig.lease(topic, most=most, takes=True, **how)


def values(rig: Rig) -> list[bytes]:
    return records(rig.port.sent[-1][2], 0)


def test_what_is_taken_is_done_and_never_comes_again(rig: Rig):
    topic = filled(rig)
    taken = take(rig, topic, 4)
    assert (taken.token, taken.until_us, taken.runs) == (0, 0, [(0, 4, 1)])
    queue = rig.queue(topic)
    assert (queue.ready, queue.in_flight) == (2, 0)
    assert rig.ask(m.AskTask, topic, "g", 0, 1).state == "completed"
    assert rig.settle(topic, m.Settle(0, 0, 0))[0].code == "lease_lost"
    rig.restart(clean=False)
    assert take(rig, topic, 9).runs == [(4, 2, 1)]
    assert take(rig, topic, 9).runs == []


def test_it_is_one_entry_of_the_log_and_stands_beside_its_records(rig: Rig):
    topic = rig.topic()
    set_queue(rig, topic)
    request = rig.ask_lease(topic, most=5, takes=True)
    before = partition_of(rig, topic).seq
    rig.produce(topic, [b"a", b"b"])
    assert rig.answers(request)[0].runs == [(0, 2, 1)]
    assert partition_of(rig, topic).seq == before + 1
    assert rig.queue(topic).ready == 0


def test_retries_are_taken_as_well_and_leases_stand_beside(rig: Rig):
    topic = filled(rig)
    leased = rig.lease(topic, most=3)
    rig.settle(topic, m.Settle(0, leased.token, 1, [(1, 1)], 0, "no"))
    assert take(rig, topic, 2).runs == [(1, 1, 2), (3, 1, 1)]
    assert rig.queue(topic).in_flight == 2
    assert rig.queue(topic).waiting == 0


def test_delays_and_priorities_hold(rig: Rig):
    topic = rig.topic()
    late_us = rig.now.wall_us + 5_000_000
    rig.produce(topic, [b"0", b"1", b"2"], priorities=[0, 0, 9], not_before=[late_us, 0, 0])
    assert take(rig, topic, 1).runs == [(2, 1, 1)]
    assert take(rig, topic, 9).runs == [(1, 1, 1)]
    rig.pass_time(6)
    assert take(rig, topic, 9).runs == [(0, 1, 1)]


def test_keys_are_taken_in_order(rig: Rig):
    topic = rig.topic()
    set_queue(rig, topic, order="key")
    rig.produce(topic, [b"0", b"1", b"2"], keys=[b"a", b"a", b"b"])
    leased = rig.lease(topic)
    assert take(rig, topic, 9).runs == [(2, 1, 1)], "its key is at work"
    rig.settle(topic, m.Settle(0, leased.token, 0))
    assert take(rig, topic, 9).runs == [(1, 1, 1)]


def test_what_does_not_fit_into_the_answer_comes_back(rig: Rig):
    topic = filled(rig, 6, 1000)
    taken = take(rig, topic, 6, max_bytes=2500)
    count = taken.runs[0][1]
    assert taken.runs == [(0, count, 1)]
    assert 0 < count < 6
    assert rig.queue(topic).ready == 6 - count
    assert take(rig, topic, 9).runs == [(count, 6 - count, 1)], "its attempt did not count"
    rig.restart(clean=False)
    assert rig.queue(topic).ready == 0


def test_all_comes_back_when_the_peer_is_gone(rig: Rig):
    topic = filled(rig)
    rig.port.gone.add("gone")
    rig.send(m.Lease(77, topic, "g", "w", 4, takes=True), peer="gone")
    rig.turn()
    assert rig.queue(topic).ready == 6
    assert take(rig, topic, 9).runs == [(0, 6, 1)]


def test_nothing_comes_back_to_a_group_that_was_made_again(rig: Rig):
    topic = filled(rig)
    rig.port.gone.add("gone")
    rig.port.cold = []
    rig.send(m.Lease(77, topic, "g", "w", 4, takes=True), peer="gone")
    rig.turn()
    (token,), rig.port.cold = rig.port.cold, None
    rig.ask(m.DeleteQueue, topic, "g")
    set_queue(rig, topic)
    rig.node.warmed(token)
    rig.turn()
    assert not partition_of(rig, topic).committed.queues.by_name["g"].retrying
    assert take(rig, topic, 9).runs == [(0, 6, 1)]


def test_what_was_trimmed_meanwhile_does_not_come_back(rig: Rig):
    topic = filled(rig)
    rig.port.cold = []
    rig.send(m.Lease(77, topic, "g", "w", 4, takes=True))
    rig.turn()
    (token,), rig.port.cold = rig.port.cold, None
    rig.ask(m.Trim, topic, m.TrimRule.OFFSET, 2)
    rig.node.warmed(token)
    rig.turn()
    assert rig.answers(77)[0].runs == [(2, 4, 1)]
    assert not partition_of(rig, topic).committed.queues.by_name["g"].retrying


def aged(rig: Rig, delay_s: int) -> bytes:
    """Ten records, the first one delayed; retention takes all but those of the last segment once they are done."""
    topic = rig.topic(segment_bytes=64 << 10, retention_s=10.0)
    set_queue(rig, topic, carry_after_s=5.0)
    rig.produce(topic, [b"late"], not_before=[rig.now.wall_us + delay_s * 1_000_000])
    for _ in range(9):
        rig.produce(topic, [b"x" * 30_000])
    return topic


def test_what_retention_took_meanwhile_does_not_come_back(rig: Rig):
    topic = aged(rig, 1)
    rig.pass_time(5)
    rig.port.cold = []
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 8, takes=True))
    rig.pass_time(60)
    first = rig.partition(topic).first
    assert 0 < first < 8
    (token,), rig.port.cold = rig.port.cold, None
    rig.node.warmed(token)
    rig.turn()
    assert rig.answers(request)[0].runs == [(first, 10 - first, 1)]
    assert not partition_of(rig, topic).committed.queues.by_name["g"].retrying


def test_what_was_carried_forward_comes_back(rig: Rig):
    topic = aged(rig, 200)
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=9).token, 0))
    rig.pass_time(100)
    assert rig.partition(topic).first > 0
    rig.pass_time(110)
    rig.port.gone.add("gone")
    rig.send(m.Lease(77, topic, "g", "w", 4, takes=True), peer="gone")
    rig.turn()
    assert take(rig, topic, 9).runs == [(0, 1, 1)]


def test_what_is_carried_no_more_once_a_beginning_is_durable_does_not_come_back(rig: Rig):
    topic = aged(rig, 200)
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=9).token, 0))
    rig.pass_time(210)
    partition = partition_of(rig, topic)
    rig.port.cold = []
    rig.send(m.Lease(77, topic, "g", "w", 4, takes=True), peer="gone")
    rig.turn()
    (token,), rig.port.cold = rig.port.cold, None
    rig.store.hold = True
    partition.set_first(partition.first + 1)
    rig.turn()
    assert partition.committed.kept.seq(0)
    rig.port.gone.add("gone")
    rig.node.warmed(token)
    rig.turn()
    rig.store.hold = False
    rig.sync()
    assert not partition.committed.kept.seq(0)
    assert not partition.committed.queues.by_name["g"].retrying


def test_a_take_that_could_not_be_written_takes_nothing(rig: Rig):
    topic = filled(rig)
    set_queue(rig, topic)
    log, append = partition_of(rig, topic).log, partition_of(rig, topic).log.append

    def fail(*_: Any) -> Any:
        log.append = append
        raise OSError("no space")

    log.append = fail
    assert isinstance(take(rig, topic, 4), m.Failure)
    assert not partition_of(rig, topic).proposed.queues.by_name["g"].retrying
    assert take(rig, topic, 9).runs == [(0, 6, 1)]


def test_a_record_that_cannot_be_read_is_dead_lettered_and_the_others_are_given(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    from penstock.storage.errors import Corrupt

    topic = filled(rig)
    read, bad = rig.port.read, [2]

    def broken(cursor: Any, max_bytes: int, limit_seq: int, token: Any) -> Any:
        chunk = read(cursor, 1, limit_seq, token)
        if chunk is not None and bad and any(b.kind == Kind.RECORDS and b.base_offset == bad[0] for b in chunk.batches):
            raise Corrupt("a bit flipped", next_offset=bad.pop() + 1)
        return chunk

    monkeypatch.setattr(rig.port, "read", broken)
    answer = take(rig, topic, 4)
    monkeypatch.undo()
    assert [first for first, _, _ in answer.runs]
    assert list(partition_of(rig, topic).committed.queues.by_name["g"].dead_letters) == [2]
    given = {first + n for first, count, _ in answer.runs for n in range(count)}
    rest = take(rig, topic, 9)
    assert given | {first + n for first, count, _ in rest.runs for n in range(count)} == {0, 1, 3, 4, 5}


def test_held_records_are_remembered_and_finished_ones_expire(rig: Rig):
    topic = filled(rig)
    set_queue(rig, topic, keep_finished_s=60.0)
    partition_of(rig, topic).propose(fx.TasksTaken("g", [(2, 1)], 3, [], [(0, 5), (1, 6)]))
    rig.turn()
    queue = partition_of(rig, topic).committed.queues.by_name["g"]
    assert (queue.held, queue.frontier) == ({0: 5, 1: 6}, 3)
    assert queue.endings.entries[-1][1] == 2
