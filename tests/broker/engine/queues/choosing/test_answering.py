"""What goes out with a lease: the right records, bounded, read without waiting for the disk, and never half."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from penstock.broker.engine.turns.replies import Gather
from penstock.storage.batch import Codec, Kind, batches, parse
from penstock.storage.kept import keep_all
from penstock.transport import messages as m
from support.dead import opened
from support.engine import Rig
from support.unjudged import flip, hidden_codec

ACK, NACK, RELEASE = 0, 1, 3


@pytest.fixture
def rig() -> Rig:
    return Rig()


def payload_of(rig: Rig, leased: m.Leased) -> bytes:
    return next(payload for _, message, payload in rig.port.sent if message is leased)


def values(rig: Rig, leased: m.Leased) -> list[bytes]:
    """The values of a lease in the order of its runs."""
    found: dict[int, bytes] = {}
    for batch in batches(payload_of(rig, leased)):
        found.update(zip(batch.offsets().tolist(), batch.values(), strict=True))
    return [found[offset] for first, count, _ in leased.runs for offset in range(first, first + count)]


def kinds(rig: Rig, leased: m.Leased) -> list[int]:
    return [batch.kind for batch in batches(payload_of(rig, leased))]


def test_a_few_records_of_a_large_batch_are_cut_out_of_it(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"%03d" % number * 300 for number in range(1000)])
    few = rig.lease(topic, most=3)
    assert values(rig, few) == [b"%03d" % number * 300 for number in range(3)]
    assert len(payload_of(rig, few)) < 5000
    assert kinds(rig, few) == [Kind.RECORDS]
    most = rig.lease(topic, most=995)
    assert kinds(rig, most) == [Kind.RECORDS]
    assert values(rig, most) == [b"%03d" % number * 300 for number in range(3, 998)]


@pytest.mark.parametrize(("codec", "most", "whole"), [(0, 1, False), (0, 30, True), (Codec.ZSTD, 1, True)])
def test_what_is_cheap_to_cut_is_cut_unless_nearly_all_goes_out(rig: Rig, codec: int, most: int, whole: bool):
    topic = rig.topic()
    rig.produce(topic, [b"%03d" % number * 150 for number in range(40)], codec=codec)
    leased = rig.lease(topic, most=most)
    assert values(rig, leased)[:1] == [b"000" * 150]
    (batch,) = batches(payload_of(rig, leased))
    assert batch.record_count == (40 if whole else most)


def test_a_small_batch_goes_out_whole_and_once(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b", b"c", b"d", b"e"])
    first = rig.lease(topic, most=5)
    rig.settle(
        topic, m.Settle(0, first.token, NACK, [(0, 1), (2, 1)], 0), m.Settle(0, first.token, ACK, [(1, 1), (3, 2)])
    )
    again = rig.lease(topic, most=5)
    assert again.runs == [(0, 1, 2), (2, 1, 2)]
    assert (kinds(rig, again), values(rig, again)) == ([Kind.RECORDS], [b"a", b"c"])


def test_what_goes_beyond_max_bytes_is_given_back_and_its_attempt_does_not_count(rig: Rig):
    topic = rig.topic()
    for number in range(10):
        rig.produce(topic, [b"%d" % number * 1000])
    leased = rig.lease(topic, most=10, max_bytes=4000)
    assert leased.runs == [(0, 3, 1)]
    assert len(payload_of(rig, leased)) <= 4000
    assert (rig.queue(topic).in_flight, rig.queue(topic).ready) == (3, 7)
    rest = rig.lease(topic, most=10)
    assert rest.runs == [(3, 7, 1)]
    assert values(rig, rest) == [b"%d" % number * 1000 for number in range(3, 10)]


def test_max_bytes_holds_within_a_large_batch(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"%03d" % number * 300 for number in range(1000)])
    leased = rig.lease(topic, most=1000, max_bytes=100_000)
    ((first, count, _),) = leased.runs
    assert (first, len(payload_of(rig, leased)) <= 100_000, 90 < count < 112) == (0, True, True)
    assert rig.queue(topic).in_flight == count
    again = rig.lease(topic, most=1000, max_bytes=100_000)
    assert (again.runs[0][0], values(rig, again)[0]) == (count, b"%03d" % count * 300)


def test_one_record_goes_out_however_large(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"x" * 10_000, b"y" * 10_000])
    leased = rig.lease(topic, most=2, max_bytes=1)
    assert leased.runs == [(0, 1, 1)]
    assert values(rig, leased) == [b"x" * 10_000]


def test_a_lease_whose_worker_is_gone_is_given_to_the_next_one_at_once(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b"])
    rig.port.gone.add("gone")
    rig.send(m.Lease(rig.next_request(), topic, "g", "w", 5), peer="gone")
    rig.turn()
    assert rig.lease(topic, most=5).runs == [(0, 2, 1)]


def test_who_left_while_waiting_gets_nothing(rig: Rig):
    topic = rig.topic()
    rig.send(m.Lease(rig.next_request(), topic, "g", "w", 5, wait_ms=9000), peer="gone")
    rig.turn()
    rig.node.disconnect("gone")
    rig.produce(topic, [b"a"])
    assert rig.lease(topic, most=5).runs == [(0, 1, 1)]


def test_cold_pages_are_waited_for_and_read_once_they_are_there(rig: Rig):
    topic = rig.topic()
    for number in range(4):
        rig.produce(topic, [b"%d" % number * 9000])
    rig.port.cold = []
    request = rig.ask_lease(topic, most=4)
    for _ in range(8):
        assert rig.answers(request) == []
        (token,) = rig.port.cold
        rig.port.cold = None
        reads = rig.port.reads
        rig.port.read, read = one_read(rig), rig.port.read
        rig.node.warmed(token)
        rig.turn()
        rig.port.read = read
        if rig.answers(request):
            break
        assert rig.port.reads == reads + 1
        rig.port.cold = [token]
    (leased,) = rig.answers(request)
    assert values(rig, leased) == [b"%d" % number * 9000 for number in range(4)]


def one_read(rig: Rig):
    """A port that reads once and is cold then."""
    read = rig.port.read

    def once(cursor, max_bytes, limit_seq, token):
        found = read(cursor, min(max_bytes, 9000), limit_seq, token)
        rig.port.cold = rig.port.cold if rig.port.cold is not None else []
        return found

    return once


def test_reading_goes_on_where_the_last_lease_ended_without_reading_again(rig: Rig):
    topic = rig.topic()
    for first in range(0, 100, 10):
        rig.produce(topic, [b"%d" % number for number in range(first, first + 10)])
    rig.lease(topic)
    before = rig.port.reads
    got = [rig.lease(topic, most=3) for _ in range(30)]
    assert rig.port.reads - before <= 1
    assert [value for leased in got for value in values(rig, leased)] == [b"%d" % number for number in range(1, 91)]


def test_a_record_that_was_carried_forward_is_read_where_it_stands(rig: Rig):
    topic = rig.topic()
    for number in range(6):
        rig.produce(topic, [b"%d" % number])
    first = rig.lease(topic, most=6)
    rig.settle(topic, *(m.Settle(0, first.token, NACK, [(offset, 1)], 0) for offset in range(6)))
    carry(rig, topic, [1, 4])
    again = rig.lease(topic, most=9)
    assert again.runs == [(0, 6, 2)]
    assert values(rig, again) == [b"%d" % number for number in range(6)]
    assert kinds(rig, again).count(Kind.KEPT) == 1, "both stand in one batch"


def carry(rig: Rig, topic: bytes, offsets: list[int]) -> None:
    """Carry records forward as retention does."""
    chunk = rig.node._registry.topics.get(topic).readable[0].cursor(0).next()
    parts = [
        (batch, [(offset - batch.base_offset, 1)])
        for offset in offsets
        for batch in chunk.batches
        if batch.base_offset <= offset < batch.end_offset
    ]
    opened(rig, topic).propose_kept(parse(keep_all(parts)), Gather(int, print))
    rig.turn()


def test_every_record_is_handed_out_once_whatever_the_sizes(rig: Rig):
    topic = rig.topic()
    sizes = [1, 50_000, 3, 700, 200_000, 9, 9, 40_000]
    for size in sizes:
        rig.produce(topic, [bytes([size % 251]) * size, b"beside"])
    offsets: list[int] = []
    while (leased := rig.lease(topic, most=5, max_bytes=60_000)).runs:
        assert len(values(rig, leased)) == sum(count for _, count, _ in leased.runs)
        offsets += [offset for first, count, _ in leased.runs for offset in range(first, first + count)]
        rig.settle(topic, m.Settle(0, leased.token, ACK))
    assert sorted(offsets) == list(range(16))
    assert all(one != other for one, other in pairwise(sorted(offsets)))


# -- what cannot be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 5000])
def test_a_damaged_batch_dies_at_once_and_the_same_request_gets_what_is_behind_it(rig: Rig, wait_ms: int):
    topic = rig.topic()
    rig.produce(topic, [b"spoiled-%03d" % number * 300 for number in range(200)])
    rig.produce(topic, [b"behind"])
    flip(rig.store.files, b"spoiled-150")
    leased = rig.lease(topic, most=50, max_bytes=50_000, wait_ms=wait_ms)
    while leased is None:
        rig.turn()
        (leased,) = [message for _, message, _ in rig.port.sent if isinstance(message, m.Leased)] or [None]
    assert values(rig, leased) == [b"behind"]
    dead = opened(rig, topic).committed.queues.by_name["g"].dead_letters
    assert list(dead) == list(range(200))
    assert {task.reason.split(":")[0] for task in dead.values()} == {"it cannot be read"}


def test_who_asked_for_what_is_all_damaged_waits_for_what_comes(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"spoiled" * 300] * 1000)
    flip(rig.store.files, b"spoiled")
    waiting = rig.ask_lease(topic, most=10)
    while opened(rig, topic).committed.queues.by_name["g"].frontier < 1000:
        rig.turn()
    assert rig.answers(waiting) == []
    rig.produce(topic, [b"good"])
    (leased,) = rig.answers(waiting)
    assert values(rig, leased) == [b"good"]


def failing_disk(rig: Rig) -> Callable[[], None]:
    """From now on reads fail, until the function that is returned is called."""
    read = rig.port.read

    def fails(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    rig.port.read = fails
    return lambda: setattr(rig.port, "read", read)


def test_a_record_whose_read_failed_once_is_tried_again_after_a_pause(rig: Rig):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 10.0, "jitter": 0.0})
    rig.produce(topic, [b"a", b"b"])
    heal = failing_disk(rig)
    waiting = rig.ask_lease(topic, most=2, wait_ms=0)
    while not rig.answers(waiting):
        rig.turn()
    queue = opened(rig, topic).committed.queues.by_name["g"]
    assert not queue.dead_letters
    heal()
    assert rig.lease(topic, most=2).runs == []
    rig.pass_time(10.0)
    leased = rig.lease(topic, most=2)
    assert (values(rig, leased), leased.runs) == ([b"a", b"b"], [(0, 2, 2)])
    assert rig.partition(topic).state == "ok"


def test_a_record_whose_reads_fail_is_dead_lettered_after_its_last_attempt_and_stops_no_other(rig: Rig):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 1.0, "jitter": 0.0, "max_attempts": 2})
    rig.produce(topic, [b"a"])
    heal = failing_disk(rig)
    for _ in range(2):
        waiting = rig.ask_lease(topic, most=1, wait_ms=0)
        while not rig.answers(waiting):
            rig.turn()
        rig.pass_time(5.0)
    (task,) = opened(rig, topic).committed.queues.by_name["g"].dead_letters.values()
    assert (task.reason, task.attempt) == ("it cannot be read: [Errno 5] Input/output error", 2)
    heal()
    rig.produce(topic, [b"b"])
    assert values(rig, rig.lease(topic, most=1)) == [b"b"]


def test_a_broker_without_the_codec_sends_batches_whole(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"%03d" % number * 300 for number in range(1000)], codec=Codec.ZSTD)
    rig.produce(topic, [b"x" * 200_000])
    with hidden_codec():
        leased = rig.lease(topic, most=3)
    assert leased.runs == [(0, 3, 1)]
    assert values(rig, leased) == [b"%03d" % number * 300 for number in range(3)]
    assert rig.partition(topic).state == "ok"
