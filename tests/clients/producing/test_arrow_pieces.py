"""Cutting Arrow data into batches: every row once, in order, where it belongs, whatever the columns say."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs
from penstock.broker.errors import UnknownPartition
from penstock.clients import InvalidArgument
from penstock.clients.producing.bulk import pieces
from penstock.clients.producing.pieces import HEADERS_BYTES_MAX, Shape
from penstock.storage.batch import Kind, parse
from penstock.storage.errors import InvalidBatch, RecordTooLarge
from penstock.transport.partitioner import Partitioner, partition_of
from penstock.transport.producer_session import TARGET_BYTES

EVENT_US = 1_600_000_000_000_000

SHAPE = Shape(4, 0, 16 << 20, "t", now_us=99)
ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def decoded(found):
    """(partition, batch) of every piece."""
    for piece in found:
        batch = parse(piece.encode(7, 1, 0))
        batch.check()
        assert batch.record_count == piece.count
        yield piece.partition, batch


def sent(given, *, keys=None, partition=None, shape=SHAPE):
    """{value: (partition, key, headers, time)} of all rows; their order within each partition is checked."""
    rows, last = {}, {}
    for number, batch in decoded(pieces(given, keys, shape, partition)):
        values, count = batch.values(), batch.record_count
        times = batch.event_times()
        beside = zip(
            values,
            batch.keys() or [None] * count,
            batch.headers() or [{}] * count,
            [None] * count if times is None else times.tolist(),
            strict=True,
        )
        for value, *rest in beside:
            assert value not in rows
            rows[value] = (number, *rest)
        assert values == sorted(values)
        assert last.setdefault(number, b"") < values[0]
        last[number] = values[-1]
    return rows


def numbered(count, size=10):
    return [b"%08d" % number + bytes(size) for number in range(count)]


def table(count, seed=1, size=10):
    rng = random.Random(seed)
    return pa.table(
        {
            "value": pa.array(numbered(count, size), pa.binary()),
            "key": pa.array([rng.choice([None, "", "a", "b", str(rng.random())]) for _ in range(count)]),
            "headers": pa.array(
                [rng.choice([None, [], [{"key": "h", "value": b"%d" % number}]]) for number in range(count)],
                ENTRIES,
            ),
            "timestamp": pa.array([rng.choice([None, EVENT_US + number]) for number in range(count)], pa.int64()),
            "partition": pa.array([rng.choice([None, None, 0, 3]) for _ in range(count)], pa.int32()),
            "offset": pa.array(range(count)),
        }
    )


def expected(rows):
    missing = None if rows.column("timestamp").null_count == len(rows) else 99
    for value, key, headers, time, partition in zip(
        *(rows.column(name).to_pylist() for name in ("value", "key", "headers", "timestamp", "partition")), strict=True
    ):
        key = None if key is None else key.encode()
        goes = partition if partition is not None else None if key is None else partition_of(key, 4)
        yield value, (
            goes, key, {entry["key"]: entry["value"] for entry in headers or []}, missing if time is None else time
        )  # fmt: skip


@pytest.mark.parametrize("count", [1, 7, 50_000])
def test_every_column_goes_with_its_row(count):
    rows = table(count)
    assert sent(rows) == dict(expected(rows))


@pytest.mark.parametrize("how", ["batch", "chunks", "stream", "reader", "tables", "small"])
def test_rows_come_in_any_wrapping(how):
    rows = table(20_000)
    batches = rows.to_batches(max_chunksize=3000)
    given = {
        "batch": rows.combine_chunks().to_batches()[0],
        "chunks": pa.Table.from_batches(batches),
        "stream": iter(batches),
        "reader": pa.RecordBatchReader.from_batches(rows.schema, batches),
        "tables": [rows.slice(0, 4000), rows.slice(4000)],
        "small": rows.to_batches(max_chunksize=7),
    }[how]
    assert sent(given) == dict(expected(rows))


def test_small_record_batches_are_put_together():
    rows = pa.table({"value": numbered(3000), "key": [b"k"] * 3000})
    assert len(list(pieces(iter(rows.to_batches(max_chunksize=10)), None, SHAPE, None))) == 1
    assert len(list(pieces(pa.Table.from_batches(rows.to_batches(max_chunksize=10)), None, SHAPE, None))) == 1


def test_pieces_are_worth_sending_and_none_is_huge():
    rng = random.Random(5)
    sizes = [rng.choice([10, 100, 100, 1000]) for _ in range(40_000)] + [300_000] * 5 + [1] * 40_000
    values = pa.array([b"%08d" % number + bytes(size) for number, size in enumerate(sizes)], pa.binary())
    keys = pa.array([b"%d" % (number % 999) for number in range(len(sizes))])
    found = list(pieces(pa.table({"value": values, "key": keys}), None, SHAPE, None))
    total = sum(piece.size for piece in found)
    assert max(piece.size for piece in found) <= TARGET_BYTES + 300_100
    assert len(found) <= 2.5 * total / TARGET_BYTES
    assert sum(piece.count for piece in found) == len(sizes)


def test_a_row_above_the_limit_of_a_piece_ends_one():
    rows = pa.array([b"a", bytes(3 * TARGET_BYTES), b"b", b"c"], pa.binary())
    found = list(pieces(rows, None, SHAPE, 1))
    assert [piece.count for piece in found] == [2, 2]
    assert [piece.partition for piece in found] == [1, 1]


def test_headers_count_as_bytes_of_their_rows():
    entry = [{"key": "h", "value": bytes(10_000)}]
    rows = pa.table({"value": numbered(200), "headers": pa.array([entry] * 200, ENTRIES)})
    assert max(piece.count for piece in pieces(rows, None, SHAPE, None)) <= 30


def test_a_named_partition_goes_before_columns():
    rows = table(100)
    assert {number for number, *_ in sent(rows, partition=2).values()} == {2}


def test_keys_given_beside_a_table_go_before_its_column():
    rows = pa.table({"value": numbered(3), "key": [b"x"] * 3})
    assert [key for _, key, _, _ in sent(rows, keys=[b"a", None, b"c"]).values()] != [b"x"] * 3
    assert sorted(str(key) for _, key, _, _ in sent(rows, keys=[b"a", None, b"c"]).values()) == ["None", "b'a'", "b'c'"]


def test_staged_pieces_say_so():
    shape = Shape(4, 0, 1 << 20, "t", kind=Kind.STAGED)
    for given in (pa.array([b"x"]), [b"x"]):
        assert {batch.kind for _, batch in decoded(pieces(given, None, shape, None))} == {Kind.STAGED}


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Vienna"), pa.timestamp("ms")])
def test_timestamps_of_any_unit_are_microseconds(kind):
    moment = datetime(2026, 3, 1, 12, 30, 0, 123_000, tzinfo=UTC)
    times = pa.array([moment.replace(tzinfo=None) if kind.tz is None else moment], kind)
    ((_, _, _, time),) = sent(pa.table({"value": [b"x"], "timestamp": times})).values()
    assert time == int(moment.timestamp() * 1000) * 1000


@pytest.mark.parametrize("many", [False, True])
def test_keys_go_where_each_of_them_goes_alone(many):
    """Keys that repeat are looked at once each; the others one by one."""
    keys = [b"%d" % (number if many else number % 10) for number in range(2000)]
    rows = sent(pa.table({"value": numbered(2000), "key": keys}))
    assert all(number == partition_of(key, 4) for number, key, _, _ in rows.values())
    assert {number for number, *_ in rows.values()} == {0, 1, 2, 3}


def test_whether_keys_repeat_is_seen_in_a_sample():
    looked = []

    def look(keys):
        looked.append(len(keys))
        return np.zeros(len(keys), np.uint64)

    shape = structs.replace(SHAPE, partitioner=Partitioner(lambda key: 0, look))
    for keys in ([b"same"] * 1000, [b"%d" % number for number in range(1000)]):
        assert len(list(pieces(pa.table({"value": numbered(1000), "key": keys}), None, shape, None))) == 1
    assert looked == [1, 1000]


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"key": [b"x"]}, InvalidArgument, 'needs a column "value"'),
        (
            {"value": [b"x"], "keys": [b"k"], "offset": [7]},
            InvalidArgument,
            r"'keys', which no record has: name them value, key, headers, timestamp, partition, or .* \(offset and",
        ),
        ({"value": [1]}, InvalidBatch, "column 'value' has type int64"),
        ({"value": [b"x"], "key": [1]}, InvalidBatch, "column 'key' has type int64"),
        ({"value": [b"x"], "headers": ["h"]}, InvalidBatch, "column 'headers' has type string"),
        ({"value": [b"x"], "timestamp": ["now"]}, InvalidBatch, "column 'timestamp' has type string"),
        ({"value": [b"x"], "timestamp": pa.array([2**63], pa.uint64())}, InvalidBatch, "not in 64 bits"),
        ({"value": [b"x"], "timestamp": pa.array([1_600_000_000_000])}, InvalidArgument, "counts no microseconds"),
        ({"value": [b"x", b"y"], "timestamp": pa.array([EVENT_US, EVENT_US * 1000])}, InvalidArgument, "no microsec"),
        ({"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("s"))}, InvalidBatch, "not in 64 bits"),
        ({"value": [b"x"], "partition": pa.array([2**64 - 1], pa.uint64())}, UnknownPartition, "no partition -1"),
        ({"value": [b"x"], "partition": ["0"]}, InvalidBatch, "column 'partition' has type string"),
        ({"value": [b"x"], "partition": [4]}, UnknownPartition, "topic t has no partition 4: it has 4"),
        ({"value": [b"x", b"y"], "partition": [3, -1]}, UnknownPartition, "no partition -1"),
        ({"value": [b"x"], "key": [bytes(2000)]}, RecordTooLarge, "2000 bytes is over max_record_bytes=1000"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_a_sentence_before_anything_goes(columns, error, says):
    shape = Shape(4, 0, 1000, "t")
    with pytest.raises(error, match=says):
        list(pieces(pa.table(columns), None, shape, None))


def test_keys_cannot_stand_beside_a_stream():
    with pytest.raises(InvalidArgument, match="give each a column `key`"):
        list(pieces(iter([pa.record_batch({"value": [b"x"]})]), [b"k"], SHAPE, None))


@pytest.mark.parametrize(
    "given", [pa.table({"value": pa.array([], pa.binary())}), [pa.record_batch({"value": pa.array([], pa.binary())})]]
)
def test_nothing_gives_nothing(given):
    assert list(pieces(given, None, SHAPE, None)) == []


def test_the_index_of_a_frame_of_pandas_is_passed_over():
    rows = pa.table({"value": [b"x"], "__index_level_0__": [3]})
    assert [piece.count for piece in pieces(rows, None, SHAPE, None)] == [1]


def headers_of(*sizes: int) -> pa.Array:
    return pa.array([[{"key": "h", "value": bytes(size)}] if size else None for size in sizes], ENTRIES)


def test_headers_over_the_limit_stop_before_they_are_encoded():
    values = numbered(2)
    with pytest.raises(RecordTooLarge, match=f"headers of {HEADERS_BYTES_MAX + 1} bytes"):
        list(pieces(pa.table({"value": values, "headers": headers_of(0, HEADERS_BYTES_MAX - 7)}), None, SHAPE, None))
    small = Shape(1, 0, 1000, "t")
    with pytest.raises(RecordTooLarge, match="headers of 1001 bytes is over max_record_bytes=1000 of topic t"):
        list(pieces(pa.table({"value": values, "headers": headers_of(0, 995)}), None, small, None))
    assert list(pieces(pa.table({"value": values, "headers": headers_of(0, 994)}), None, small, None))


def test_entries_of_headers_count_beside_their_bytes():
    entries = [{"key": "", "value": b""}] * 1000
    rows = pa.table({"value": numbered(200), "headers": pa.array([entries] * 200, ENTRIES)})
    assert max(piece.count for piece in pieces(rows, None, SHAPE, None)) <= TARGET_BYTES // 8000 + 1
