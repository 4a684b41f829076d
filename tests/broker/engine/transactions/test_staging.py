"""Staging through a node: answered when durable, invisible, idempotent; and published as what was sent."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.stages import Stage
from penstock.broker.engine.transactions import staging
from penstock.storage.batch import Batch, Codec, Kind, batches, encode, of_kind
from penstock.storage.errors import StorageFull
from penstock.storage.record import records as records_of
from penstock.transport import messages as m
from support.engine import Rig, placed
from support.staging import STAGE, Told, partition_of, portion, publish, stage, stage_of, staged
from support.transactions import transactions


def failure(answer: object) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def sent_batches(rig: Rig) -> list[Batch]:
    """Everything that left the node."""
    payloads = [payload for _, _, payload in [*rig.port.sent, *rig.port.delivered]]
    return [batch for payload in payloads for batch in batches(payload)]


# -- taking ------------------------------------------------------------------------------------------


def test_a_staged_batch_is_answered_once_it_is_durable():
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Produce(request, topic, 0), staged([b"a", b"b"]))
    rig.turn()
    assert rig.answers(request) == []
    rig.sync()
    assert [type(answer) for answer in rig.answers(request)] == [m.Produced]
    assert stage_of(rig, topic) == Stage(STAGE, 2, 2, 0, [(1, 1)], len(staged([b"a", b"b"])), rig.now.wall_us)


def test_it_takes_no_offset_and_records_around_it_follow_each_other():
    rig = Rig()
    topic = rig.topic()
    assert rig.produce(topic, [b"a"]).offset == 0
    stage(rig, topic, [b"never"] * 5)
    assert rig.produce(topic, [b"b"]).offset == 1
    assert (rig.partition(topic).end, rig.read(topic)) == (2, [b"a", b"b"])


@pytest.mark.parametrize("hold", [False, True], ids=["committed", "in flight"])
def test_a_resend_is_answered_and_stored_once(hold: bool):
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = hold
    requests = [rig.next_request() for _ in range(3)]
    for request in requests:
        rig.send(m.Produce(request, topic, 0), staged([b"a", b"b"]))
        rig.turn()
    assert [bool(rig.answers(request)) for request in requests] == [not hold] * 3
    rig.sync()
    assert [type(rig.answers(request)[0]) for request in requests] == [m.Produced] * 3
    found = stage_of(rig, topic)
    assert found is not None
    assert (found.next_sequence, found.runs) == (2, [(1, 1)])


def test_a_resend_in_the_same_turn_waits_for_the_same_append():
    rig = Rig()
    topic = rig.topic()
    requests = [rig.next_request() for _ in range(3)]
    for request in requests:
        rig.send(m.Produce(request, topic, 0), staged([b"a"]))
    rig.turn()
    assert [type(rig.answers(request)[0]) for request in requests] == [m.Produced] * 3
    assert partition_of(rig, topic).seq == 1


REFUSED = [
    (staged([b"a"], 0), "invalid_batch", "not 0"),
    (staged([b"a"], producer_epoch=1), "invalid_batch", "epoch 0, not 1"),
    (staged([b"a"], dedup=[b"key"]), "invalid_batch", "dedup"),
    (staged([b"a"], first=-1), "invalid_batch", "below 0"),
    (staged([b"a"], first=3), "unknown_producer", "goes on at record 3"),
    (staged([b"a"], not_before=[-5]), "invalid_batch", "negative"),
    (staged([b"x" * 70_000]), "record_too_large", "max_record_bytes=65536"),
    (bytes(of_kind(encode([b"a"], producer_id=STAGE), Kind.STATE)), "invalid_batch", "kind 2"),
    (bytes(of_kind(encode([b"a"], producer_id=STAGE), Kind.KEPT)), "invalid_batch", "kind 5"),
]


@pytest.mark.parametrize(("payload", "code", "named"), REFUSED, ids=[named for _, _, named in REFUSED])
def test_what_cannot_be_staged_is_refused_and_changes_nothing(payload: bytes, code: str, named: str):
    rig = Rig()
    topic = rig.topic(max_record_bytes=1 << 16)
    answer = rig.ask(m.Produce, topic, 0, payload=payload)
    assert failure(answer) == code
    assert named in answer.message
    assert (partition_of(rig, topic).log.written, len(partition_of(rig, topic).proposed.stages)) == (0, 0)


def test_a_gap_is_refused_and_the_stage_goes_on_where_it_was():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a", b"b"])
    assert failure(stage(rig, topic, [b"d"], first=3)) == "sequence_gap"
    assert failure(stage(rig, topic, [b"b", b"c"], first=1)) == "sequence_gap"
    assert isinstance(stage(rig, topic, [b"c"], first=2), m.Produced)


def test_an_id_is_a_producers_or_a_stages_and_never_both():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"], producer_id=5)
    assert failure(stage(rig, topic, [b"x"], 5)) == "invalid_batch"
    stage(rig, topic, [b"x"], 6)
    answer = rig.produce(topic, [b"x"], producer_id=6)
    assert failure(answer) == "invalid_batch"
    assert "is a stage of partition 0 of topic t" in answer.message
    assert rig.produce(topic, [b"b"], producer_id=5, first_sequence=1).offset == 1
    assert rig.read(topic) == [b"a", b"b"]


def test_a_partition_has_so_many_stages_and_no_more():
    rig = Rig(max_stages=2)
    topic = rig.topic(partitions=2)
    for each in (1, 2):
        stage(rig, topic, [b"a"], each)
    answer = stage(rig, topic, [b"a"], 3)
    assert failure(answer) == "limit_reached"
    assert "max_stages" in answer.message
    assert isinstance(stage(rig, topic, [b"b"], 1, first=1), m.Produced)
    assert isinstance(stage(rig, topic, [b"a"], 3, partition=1), m.Produced)
    publish(rig, topic, 1)
    assert isinstance(stage(rig, topic, [b"a"], 3), m.Produced)


def test_nothing_is_added_to_a_stage_that_is_sealed():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a"])
    seals = transactions(rig)._commits.seals
    seals.add(partition_of(rig, topic), STAGE, None)
    assert failure(stage(rig, topic, [b"b"], first=1)) == "fenced"
    seals.remove(partition_of(rig, topic), STAGE)
    assert isinstance(stage(rig, topic, [b"b"], first=1), m.Produced)


def test_a_damaged_partition_stages_nothing():
    rig = Rig()
    topic = rig.topic()
    partition_of(rig, topic).history.damaged = True
    assert failure(stage(rig, topic, [b"a"])) == "unavailable"


def test_a_full_disk_refuses_what_is_staged_and_lets_cursors_move():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    log = partition_of(rig, topic).log
    append = log.append

    def full(given: Any, now_us: int) -> Any:
        if any(batch[13] == Kind.STAGED for batch in given):
            raise StorageFull("no space left")
        return append(given, now_us)

    log.append = full
    lost, moved = rig.next_request(), rig.next_request()
    rig.send(m.Produce(lost, topic, 0), staged([b"x", b"y"]))
    rig.send(m.Commit(moved, 0, topic, "g", [m.Position(0, 1, 0)]))
    rig.turn()
    assert failure(rig.answers(lost)[0]) == "storage_full"
    assert isinstance(rig.answers(moved)[0], m.Done)
    log.append = append
    assert failure(stage(rig, topic, [b"z"], first=2)) == "unknown_producer", "nothing of it stands"
    assert isinstance(stage(rig, topic, [b"x", b"y"]), m.Produced)


def test_a_poisoned_partition_stages_nothing_more():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a"])
    partition_of(rig, topic).log.poison("a sync failed")
    assert failure(stage(rig, topic, [b"b"], first=1)) == "poisoned"


# -- who does not see it -----------------------------------------------------------------------------


def mixed(rig: Rig, topic: bytes) -> list[bytes]:
    """Records with staged batches of all sizes between, before and behind them; returns the records."""
    number, values = 0, list[bytes]()
    for turn, size in enumerate((10, 30_000, 10, 10, 80_000, 100, 10)):
        for _ in range(turn + 1):
            stage(rig, topic, [b"hidden" + b"." * size], STAGE + turn % 2, first=[number, 0][turn % 2])
            number += 1 - turn % 2
            if turn % 2:
                partition_of(rig, topic).propose_in_order(fx.StagesDropped([STAGE + 1]))
        values.append(b"record %d" % turn + b"." * size)
        rig.produce(topic, [values[-1]])
    stage(rig, topic, [b"hidden last"], STAGE, first=number)
    return values


@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
def test_a_fetch_never_carries_a_staged_batch(max_bytes: int):
    rig = Rig()
    topic = rig.topic(segment_bytes=1 << 16)
    values, found, offset = mixed(rig, topic), list[bytes](), 0
    rig.port.sent.clear()
    while offset < len(values):
        request = rig.next_request()
        rig.send(m.Fetch(request, topic, 0, offset, -1, max_bytes, 0))
        offset = rig.answers(request)[0].next_offset
    for batch in sent_batches(rig):
        assert batch.kind != Kind.STAGED
        found += [value for _, value in placed(batch) if batch.kind == Kind.RECORDS]
    assert found == values
    assert not any(b"hidden" in payload for _, _, payload in rig.port.sent)


@pytest.mark.parametrize("delivery", ["push", "control"])
@pytest.mark.parametrize("chunk_bytes", [256, 1 << 18])
def test_a_delivery_never_carries_a_staged_batch(delivery: str, chunk_bytes: int):
    rig = Rig(chunk_bytes=chunk_bytes)
    topic = rig.topic(segment_bytes=1 << 16)
    joined = rig.join(topic, delivery=delivery, credit=(1 << 30, 1 << 30), timeout_ms=60_000)
    values = mixed(rig, topic)
    again = rig.join(topic, "g", "a", delivery=delivery, credit=(1 << 30, 1 << 30), timeout_ms=60_000)
    rig.turn(40)
    for session in (joined.session, again.session):
        told = [(message, payload) for _, message, payload in rig.port.sent if isinstance(message, m.Deliver)]
        told += [(message, payload) for _, message, payload in rig.port.delivered]
        found = [
            value
            for message, payload in told
            if message.session == session
            for batch in batches(payload)
            for _, value in placed(batch)
            if batch.kind == Kind.RECORDS
        ]
        assert found == values
    assert {batch.kind for batch in sent_batches(rig)} <= {Kind.RECORDS, Kind.STATE}


def test_a_fetch_that_waits_is_not_answered_by_what_is_staged():
    rig = Rig()
    topic = rig.topic()
    assert rig.fetch(topic, 0, wait_ms=1000) is None
    request = rig._request
    reads = rig.port.reads
    for number in range(20):
        stage(rig, topic, [b"x"], first=number)
    assert (rig.answers(request), rig.port.reads) == ([], reads), "nor is it looked at"
    rig.produce(topic, [b"a"])
    assert rig.answers(request)[0].next_offset == 1


def test_a_mapped_session_is_not_woken_by_what_is_staged():
    rig = Rig()
    topic = rig.topic()
    rig.join(topic, delivery="mapped")
    stage(rig, topic, [b"x"])
    assert rig.port.wakes == []
    rig.produce(topic, [b"a"])
    assert len(rig.port.wakes) == 1


def test_queue_groups_lease_nothing_that_is_staged_and_everything_once_it_is_published():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"low", b"high"], priorities=[0, 9])
    assert rig.lease(topic, most=5).runs == []
    rig.produce(topic, [b"record"])
    publish(rig, topic)
    assert [value for _, value in leased(rig, topic, 5)] == [b"high", b"record", b"low"]


def leased(rig: Rig, topic: bytes, most: int) -> list[tuple[int, bytes]]:
    """What leases one by one get."""
    found: list[tuple[int, bytes]] = []
    for _ in range(most):
        answer = rig.lease(topic)
        if not isinstance(answer, m.Leased) or not answer.runs:
            break
        payload = rig.port.sent[-1][2]
        offset = answer.runs[0][0]
        found += [(at, value) for batch in batches(payload) for at, value in placed(batch) if at == offset]
    return found


# -- publishing --------------------------------------------------------------------------------------


def test_published_records_are_what_was_staged_in_order_behind_what_came_meanwhile():
    rig = Rig()
    topic = rig.topic(segment_bytes=1 << 16)
    values = [b"%d" % number + b"." * 9000 for number in range(30)]
    for number, value in enumerate(values):
        stage(rig, topic, [value], first=number)
        if number % 10 == 0:
            rig.produce(topic, [b"other"])
    places = publish(rig, topic, max_bytes=1 << 30)
    assert [place.offset for place in places] == list(range(3, 33))
    assert rig.read(topic) == [b"other"] * 3 + values
    assert stage_of(rig, topic) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_published_records_have_every_column_that_was_staged(codec: Codec):
    rig = Rig()
    topic = rig.topic()
    how: dict[str, Any] = {
        "keys": [b"k", None], "headers": [{"h": b"1"}, None], "event_times": [5, 6], "priorities": [0, 3],
        "not_before": [0, rig.now.wall_us + 10**9], "codec": codec,
    }  # fmt: skip
    stage(rig, topic, [b"a", b"b"], **how)
    rig.pass_time(3)
    publish(rig, topic)
    rig.fetch(topic, 0)
    (batch,) = batches(rig.port.sent[-1][2])
    batch.check()
    sent = next(batches(staged([b"a", b"b"], **how)))
    assert [bytes(batch.stored(column)) for column in batch.directory()] == [
        bytes(sent.stored(column)) for column in sent.directory()
    ]
    assert (batch.kind, batch.producer_id, batch.first_sequence, batch.base_offset) == (Kind.RECORDS, STAGE, 0, 0)
    assert batch.append_time_us == rig.now.wall_us
    assert [(one.value, one.key, one.headers, one.timestamp) for one in records_of(batch)] == [
        (b"a", b"k", {"h": b"1"}, 5), (b"b", None, {}, 6),
    ]  # fmt: skip


def test_a_stage_is_published_in_portions_and_goes_on_after_a_restart():
    rig = Rig()
    topic = rig.topic()
    values = [b"%d" % number + b"." * 1000 for number in range(10)]
    for number, value in enumerate(values):
        stage(rig, topic, [value], first=number)
    assert len(publish(rig, topic, max_bytes=3000)) == 3
    for clean in (False, True):
        rig.restart(clean=clean)
        found = stage_of(rig, topic)
        assert found is not None
        assert (found.published, found.runs) == (3, [(4, 7)])
    publish(rig, topic, max_bytes=1 << 20)
    assert (rig.read(topic), stage_of(rig, topic)) == (values, None)


def test_a_published_stage_leaves_no_producer_behind():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a"])
    publish(rig, topic)
    for clean in (False, True):
        state = partition_of(rig, topic).committed
        assert (state.producers.by_id, len(state.stages)) == ({}, 0)
        rig.restart(clean=clean)


def test_a_publication_that_is_lost_leaves_the_stage_as_it_was():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a"])
    partition = partition_of(rig, topic)
    told, log = Told(), partition.log
    append = log.append

    def full(given: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    (batch,) = portion(rig, topic).batches
    log.append = full
    staging.publish(partition, batch, told)
    assert STAGE not in partition.proposed.stages
    rig.turn()
    assert [error.code for error in told.errors] == ["storage_full"]
    assert STAGE in partition.proposed.stages
    log.append = append
    assert [place.offset for place in publish(rig, topic)] == [0]


# -- what stays --------------------------------------------------------------------------------------


def test_stages_survive_a_restart_in_the_log_and_in_a_snapshot():
    rig = Rig(snapshot_batches=5)
    topic = rig.topic()
    for number in range(13):
        stage(rig, topic, [b"%d" % number], STAGE + number % 2, first=number // 2)
    before = partition_of(rig, topic).committed.stages.dump()
    assert any(path.endswith("/0") for path, _ in rig.store.snapshots), "one was taken"
    for clean in (False, True, False):
        rig.restart(clean=clean)
        assert partition_of(rig, topic).committed.stages.dump() == before
    assert isinstance(stage(rig, topic, [b"12"], STAGE, first=6), m.Produced)
    assert partition_of(rig, topic).committed.stages.dump() == before, "it was there already"


def test_dropped_stages_are_gone_for_good():
    rig = Rig()
    topic = rig.topic()
    stage(rig, topic, [b"a"])
    partition_of(rig, topic).propose_in_order(fx.StagesDropped([STAGE]))
    assert failure(stage(rig, topic, [b"b"], first=1)) == "unknown_producer"
    for clean in (False, True):
        rig.restart(clean=clean)
        assert stage_of(rig, topic) is None


def segments(rig: Rig, topic: bytes) -> list[str]:
    path = rig.store.directory(topic, 0)
    return sorted(name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment"))


def test_segments_with_staged_batches_stay_until_these_are_published_or_dropped():
    rig = Rig(housekeeping_s=5.0)
    topic = rig.topic(segment_bytes=1 << 16, retention_s=10.0)
    first, second = segments(rig, topic)[0], None
    stage(rig, topic, [b"one"])
    for number in range(12):
        rig.produce(topic, [b"x" * 20_000])
        rig.pass_time(1)
        if number == 6:
            stage(rig, topic, [b"two"], STAGE + 1)
            second = segments(rig, topic)[-1]
    rig.pass_time(60, step=1)
    assert rig.partition(topic).first == 9
    assert first in segments(rig, topic)
    written = partition_of(rig, topic).log.written
    rig.pass_time(60, step=1)
    assert partition_of(rig, topic).log.written == written, "nothing is written because something is held"
    publish(rig, topic)
    rig.pass_time(60, step=1)
    assert first not in segments(rig, topic)
    assert segments(rig, topic)[0] == second
    partition_of(rig, topic).propose_in_order(fx.StagesDropped([STAGE + 1]))
    rig.pass_time(120, step=1)
    assert second not in segments(rig, topic)


def test_what_is_published_and_not_durable_still_holds_what_was_staged():
    """A power cut would take it, and it would have to be published again."""
    rig = Rig(housekeeping_s=5.0, snapshot_batches=3)
    topic = rig.topic(segment_bytes=1 << 16, retention_s=10.0, commit="written")
    first = segments(rig, topic)[0]
    stage(rig, topic, [b"one"])
    for _ in range(12):
        rig.produce(topic, [b"x" * 20_000])
        rig.pass_time(1)
    rig.pass_time(60, step=1)
    assert rig.partition(topic).first == 9
    rig.store.hold = True
    assert [place.offset for place in publish(rig, topic)] == [12]
    assert stage_of(rig, topic) is None
    for _ in range(10):
        rig.produce(topic, [b"more"])
        rig.pass_time(5, step=1)
    assert first in segments(rig, topic)
    for _ in range(10):
        rig.sync()
        rig.produce(topic, [b"more"])
        rig.pass_time(5, step=1)
    assert first not in segments(rig, topic), "though the log is never durable to its end when it is looked at"
