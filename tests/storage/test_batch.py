"""Batches: what goes in comes out, and nothing that is not a batch gets through."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from penstock.storage import arrow, columns
from penstock.storage import batch as b
from penstock.storage.codecs import RAW_BYTES_MAX, inflate
from penstock.storage.errors import BadChecksum, InvalidBatch, NewerFormat
from penstock.storage.record import record_runs, records
from xxhash import xxh3_64_intdigest

VALUES = [b"", b"a", b"bb", bytes(300), b"last"]
KEYS = [b"k", None, b"", b"k", None]
HEADERS = [{"trace": b"\x00"}, None, {}, {"a": b"1", "b": b"2"}, None]
TIMES = [5, 4, 3, 2, 1]


def full_batch(**options: object) -> bytes:
    batch = b.encode(VALUES, keys=KEYS, headers=HEADERS, event_times=TIMES, **options)  # type: ignore[arg-type]
    return placed(batch)


def placed(batch: bytes | bytearray, **place: object) -> bytes:
    fields = {"seq": 7, "base_offset": 40, "term": 2, "log_id": b"L" * 16, "append_time_us": 99, "previous": 0} | place
    header = b.stamp(batch, b.Stamp(**fields))  # type: ignore[arg-type]
    return bytes(header) + bytes(batch[len(header) :])


def resealed(batch: bytes | bytearray) -> bytearray:
    """The same bytes with a header checksum that agrees: what a hostile producer would send."""
    changed = bytearray(batch)
    header_bytes = struct.unpack_from("<I", changed, 16)[0]
    struct.pack_into("<Q", changed, 0, xxh3_64_intdigest(memoryview(changed)[8:header_bytes]))
    return changed


@pytest.mark.parametrize("codec", list(b.Codec))
def test_records_come_back_as_they_were_written(codec: b.Codec) -> None:
    batch = b.parse(full_batch(codec=codec, producer_id=9, producer_epoch=3, first_sequence=11))
    batch.check()
    assert batch.values() == VALUES
    assert batch.keys() == KEYS
    assert batch.headers() == [headers or {} for headers in HEADERS]
    assert (batch.event_times() == TIMES).all()
    assert (batch.producer_id, batch.producer_epoch, batch.first_sequence) == (9, 3, 11)


def test_a_stamp_places_the_batch_and_leaves_its_columns_alone() -> None:
    loose = b.encode(VALUES)
    batch = b.parse(placed(loose, previous=77))
    assert (batch.seq, batch.base_offset, batch.end_offset, batch.term) == (7, 40, 45, 2)
    assert (batch.log_id, batch.append_time_us, batch.previous) == (b"L" * 16, 99, 77)
    assert bytes(batch.buffer[batch.header_bytes :]) == bytes(loose[batch.header_bytes :])


def test_records_carry_offset_time_and_place() -> None:
    found = records(b.parse(placed(b.encode([b"x", b"y"], keys=[None, b"k"]))), start=41, partition=3, topic="t")
    assert [(r.value, r.key, r.headers, r.offset, r.timestamp, r.partition, r.topic) for r in found] == [
        (b"y", b"k", {}, 41, 99, 3, "t")
    ]


def test_event_time_wins_over_append_time() -> None:
    assert [record.timestamp for record in records(b.parse(full_batch()))] == TIMES


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("width", [0, 1, 100, None])
def test_every_way_of_encoding_and_decoding_agrees(count: int, width: int | None) -> None:
    values = [bytes([i % 251]) * (i % 17 if width is None else width) for i in range(count)]
    batch = b.parse(b.encode(values))
    batch.check()
    assert batch.values() == values
    assert batch.lengths().tolist() == [len(value) for value in values]


def test_a_state_batch_has_effects_and_no_records() -> None:
    batch = b.parse(placed(b.encode_state(b"effects")))
    batch.check()
    assert (batch.kind, batch.record_count, batch.effects(), batch.values()) == (b.Kind.STATE, 0, b"effects", [])


def test_effects_can_ride_on_records() -> None:
    batch = b.parse(b.with_effects(full_batch(codec=b.Codec.ZSTD), b"effects"))
    batch.check()
    assert (batch.values(), batch.effects()) == (VALUES, b"effects")


def test_effects_are_checked_without_the_records_beside_them() -> None:
    whole = b.with_effects(b.encode([b"value"]), b"effects")
    of_records, of_effects = bytes(whole).replace(b"value", b"xalue"), bytes(whole).replace(b"effects", b"xffects")
    b.parse(of_records).check_effects()
    for damaged in (of_records, of_effects):
        with pytest.raises(BadChecksum):
            b.parse(damaged).check()
    with pytest.raises(BadChecksum):
        b.parse(of_effects).check_effects()


def test_batches_stand_back_to_back() -> None:
    buffer = full_batch() + placed(b.encode([b"z"])) + placed(b.encode_raft())
    assert [batch.record_count for batch in b.batches(buffer)] == [5, 1, 0]


def test_a_batch_and_its_columns_are_aligned_for_arrow() -> None:
    batch = b.parse(full_batch())
    assert batch.batch_bytes % 64 == batch.header_bytes % 64 == 0
    assert all(column.position % 64 == 0 for column in batch.directory())


@pytest.mark.parametrize("size", [0, 1, 128, 4096])
def test_zeros_never_parse(size: int) -> None:
    with pytest.raises(InvalidBatch):
        b.parse(bytes(size))


def test_every_flipped_bit_is_seen_or_harmless() -> None:
    original = placed(b.encode([b"one", b"two"], keys=[b"k", None]))
    good = b.parse(original)
    for bit in range(len(original) * 8):
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            batch = b.parse(damaged)
            batch.check()
        except InvalidBatch:
            continue
        assert (batch.values(), batch.keys(), batch.base_offset) == (good.values(), good.keys(), good.base_offset)


def test_every_truncation_is_refused() -> None:
    original = full_batch()
    for size in range(len(original)):
        with pytest.raises(InvalidBatch):
            b.parse(original[:size])


def test_a_newer_version_says_so() -> None:
    changed = bytearray(full_batch())
    changed[12] = b.VERSION + 1
    with pytest.raises(NewerFormat, match="upgrade"):
        b.parse(resealed(changed))


def hostile(column_id: int, change: str) -> bytes:
    """A batch whose checksums agree but whose `column_id` lies."""
    batch = b.parse(full_batch())
    found = []
    for column in batch.directory():
        data = bytearray(batch.stored(column))
        if column.id == column_id:
            data = HOSTILE[change](data)
        found.append((column.id, 0, bytes(data)))
    return bytes(b.assemble(b.Kind.RECORDS, batch.record_count, found))


HOSTILE = {
    "starts late": lambda data: struct.pack("<i", 1) + data[4:],
    "falls": lambda data: data[:8] + struct.pack("<i", -5) + data[12:],
    "ends early": lambda data: data + b"more",
    "too short": lambda data: data[:3],
}


@pytest.mark.parametrize("change", HOSTILE)
@pytest.mark.parametrize("column_id", [b.ColumnId.VALUE, b.ColumnId.KEY, b.ColumnId.HEADERS])
def test_lying_offsets_are_refused_though_the_checksums_agree(column_id: int, change: str) -> None:
    batch = b.parse(hostile(column_id, change))
    with pytest.raises(InvalidBatch):
        batch.check()


def test_a_column_outside_its_batch_is_refused() -> None:
    changed = bytearray(full_batch())
    struct.pack_into("<I", changed, 128 + 4, 1 << 30)
    with pytest.raises(InvalidBatch, match="outside"):
        b.parse(resealed(changed)).check()


def test_a_column_twice_is_refused() -> None:
    one = (int(b.ColumnId.VALUE), 0, b.parse(b.encode([b"x"])).column(b.ColumnId.VALUE))
    with pytest.raises(InvalidBatch, match="twice"):
        b.parse(b.assemble(b.Kind.RECORDS, 1, [one, one])).check()  # type: ignore[list-item]


def test_unknown_optional_columns_are_skipped_and_critical_ones_stop() -> None:
    value = (int(b.ColumnId.VALUE), 0, bytes(b.parse(b.encode([b"x"])).column(b.ColumnId.VALUE) or b""))
    batch = bytearray(b.assemble(b.Kind.RECORDS, 1, [value, (900, 0, b"future")]))
    b.parse(batch).check()
    assert b.parse(batch).values() == [b"x"]
    batch[128 + 24 + 3] = 1
    with pytest.raises(NewerFormat):
        b.parse(resealed(batch)).check()


def test_control_columns_are_never_compressed() -> None:
    batch = bytearray(full_batch())
    index = [column.id for column in b.parse(batch).directory()].index(b.ColumnId.EVENT_TIME)
    batch[128 + 24 * index + 2] = b.Codec.LZ4
    with pytest.raises(InvalidBatch, match="codec"):
        b.parse(resealed(batch)).check()


def test_a_damaged_column_is_found_by_check_only() -> None:
    damaged = bytearray(full_batch())
    position = b.parse(damaged).directory()[0].position
    damaged[position + 60] ^= 1
    with pytest.raises(BadChecksum):
        b.parse(damaged).check()


@pytest.mark.parametrize("codec", [b.Codec.LZ4, b.Codec.ZSTD])
def test_inflating_is_bounded(codec: b.Codec) -> None:
    bomb = b.parse(b.encode([bytes(1 << 20)], codec=codec))
    stored = bytes(bomb.stored(bomb.directory()[0]))
    for claimed in (10, 2 << 20):
        with pytest.raises(InvalidBatch):
            inflate(codec, stored, claimed)
    with pytest.raises(InvalidBatch, match="limit"):
        inflate(codec, stored, RAW_BYTES_MAX + 1)


@pytest.mark.parametrize("codec", [b.Codec.LZ4, b.Codec.ZSTD])
def test_garbage_does_not_inflate(codec: b.Codec) -> None:
    with pytest.raises(InvalidBatch):
        inflate(codec, b"\xff" * 40, 100)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"values": []}, "at least one"),
        ({"values": ["text"]}, "encode"),
        ({"values": [b"x"], "keys": [b"a", b"b"]}, "2 keys for 1"),
        ({"values": [b"x"], "headers": [{"n": "text"}]}, "bytes value"),
        ({"values": [b"x"], "priorities": [256]}, "priority 256 is outside 0 to 255"),
        ({"values": [b"x", b"y"], "priorities": [0, -1]}, "priority -1 is outside"),
        ({"values": [b"x"], "priorities": [1, 2]}, "2 priorities for 1"),
        ({"values": [b"x"], "not_before": [1, 2]}, "2 not_before times for 1"),
        ({"values": [b"x"], "dedup": [b"a", b"b"]}, "2 dedup keys for 1"),
        ({"values": [memoryview(np.zeros(3, np.int64))]}, "single bytes"),
    ],
)
def test_records_that_cannot_be_encoded_say_why(arguments: dict, says: str) -> None:
    with pytest.raises(InvalidBatch, match=says):
        b.encode(**arguments)


def test_what_queues_look_at_comes_back_as_it_was_written() -> None:
    batch = b.parse(b.encode(VALUES, priorities=[0, 255, 1, 0, 7], not_before=[0, 5, 2**62, 0, 1], dedup=VALUES))
    batch.check()
    assert batch.values() == VALUES
    assert batch.priorities().tolist() == [0, 255, 1, 0, 7]
    assert batch.not_before().tolist() == [0, 5, 2**62, 0, 1]
    assert batch.dedup() == VALUES


def test_what_queues_look_at_costs_nothing_where_it_says_nothing() -> None:
    batch = b.encode(VALUES, priorities=[0] * 5, not_before=[0] * 5, dedup=[b""] * 5)
    assert bytes(batch) == bytes(b.encode(VALUES))
    assert b.parse(batch).priorities() is b.parse(batch).not_before() is b.parse(batch).dedup() is None


def test_no_key_at_all_needs_no_column() -> None:
    assert b.parse(b.encode([b"x", b"y"], keys=[None, None])).keys() is None


def test_arrow_sees_the_same_records() -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    table = b.parse(full_batch()).arrow(("value", "key", "offset", "timestamp"))
    assert table.column("value").to_pylist() == VALUES
    assert table.column("key").to_pylist() == KEYS
    assert table.column("offset").to_pylist() == [40, 41, 42, 43, 44]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == TIMES
    table.validate(full=True)


def test_arrow_values_lie_in_the_batch_itself() -> None:
    pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    batch = b.parse(np.frombuffer(full_batch(), np.uint8))
    start = np.frombuffer(batch.buffer, np.uint8).ctypes.data
    address = batch.arrow(("value",)).column(0).buffers()[2].address
    assert start <= address < start + batch.batch_bytes


def test_arrow_arrays_become_the_same_batch_as_lists() -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    from penstock.storage.arrow_encoding import encode_arrow

    values, keys = pa.array([b"skipped", *VALUES], pa.binary())[1:], pa.array([b"skipped", *KEYS], pa.binary())[1:]
    assert bytes(encode_arrow(values, keys=keys)) == bytes(b.encode(VALUES, keys=KEYS))
    assert bytes(encode_arrow(pa.array(["a", "b"]))) == bytes(b.encode([b"a", b"b"]))
    nulls = pa.array([b"skipped", None, b"x", b"", None])[1:]
    assert bytes(encode_arrow(nulls)) == bytes(b.encode([None, b"x", b"", None]))


@pytest.mark.parametrize("decoder", ["ours", "arrow"])
@pytest.mark.parametrize("count", [1, 3, columns.FEW, columns.FEW + 1, 20_000])
def test_runs_of_values_have_their_nulls_from_any_record_on(monkeypatch, decoder: str, count: int) -> None:
    monkeypatch.setattr(arrow, "is_fast", lambda: decoder == "arrow")
    values = [None if number % 3 == 0 else b"%d" % number * (number % 5) for number in range(count)]
    batch = b.parse(b.encode(values))
    batch.check()
    assert batch.values() == values
    assert batch.nulls().tolist() == list(range(0, count, 3))
    for first in {0, 1, count // 2, count - 1} - {count}:
        assert [value for run in batch.value_runs(first) for value in run] == values[first:]
        assert [record.value for run in record_runs(batch, first) for record in run] == values[first:]


def test_a_batch_of_values_alone_has_no_column_for_nulls_and_one_without_nulls_of_other_columns_neither() -> None:
    assert [column.id for column in b.parse(b.encode([b"", b"x"])).directory()] == [b.ColumnId.VALUE]
    with pytest.raises(InvalidBatch, match="must be bytes"):
        b.encode(["text", None])
    with pytest.raises(InvalidBatch, match="must be bytes"):
        b.encode([7] * 100)
