"""Rows: what records become, whole, gathered, sliced and cut."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")

from penstock.spark.rows import LEAST_ROWS, MOST_BYTES, MOST_ROWS, Rows  # noqa: E402
from penstock.spark.schema import TYPES  # noqa: E402
from penstock.storage.batch import Batch, Stamp, encode, parse, stamp  # noqa: E402
from penstock.storage.errors import InvalidBatch  # noqa: E402
from penstock.storage.header_list import HeaderList  # noqa: E402

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
KINDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


def batch(base: int, values: list[Any], **columns: Any) -> Batch:
    """As the log has it: at an offset, appended `1000 + base` us after 1970."""
    encoded = encode(values, **columns)
    header = stamp(encoded, Stamp(1, base, 1, bytes(16), 1000 + base, 0))
    return parse(bytes(header) + bytes(encoded[len(header) :]))


def plain(base: int, count: int, **columns: Any) -> Batch:
    return batch(base, [b"v%d" % (base + number) for number in range(count)], **columns)


def made(batches: Iterable[Batch], begin: int = 0, end: int = 1 << 40, names: Iterable[str] = TYPES) -> list[Any]:
    names = list(names)
    rows = Rows(pa.schema([(name, KINDS[name]) for name in names]), names, "flights", 3)
    found = [out for one in batches for out in rows.add(one, begin, end)] + list(rows.rest())
    for out in found:
        out.validate(full=True)
    return found


def listed(batches: Iterable[Batch], *names: str, begin: int = 0, end: int = 1 << 40) -> list[dict[str, Any]]:
    return [row for out in made(batches, begin, end, names or TYPES) for row in out.to_pylist()]


def moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


def test_a_record_becomes_a_row():
    (row,) = listed([batch(7, [b"one"], keys=[b"k"], headers=[{"a": b"1", "b": b""}], event_times=[5])])
    assert row == {
        "key": b"k",
        "value": b"one",
        "topic": "flights",
        "partition": 3,
        "offset": 7,
        "timestamp": moment(5),
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}],
    }


def test_what_a_record_does_not_have_is_null_or_the_logs():
    (row,) = listed([batch(7, [b""])])
    assert row["value"] == b""
    assert row["key"] is row["headers"] is None
    assert row["timestamp"] == moment(1007)
    assert row["timestampType"] == 1


def test_some_records_have_keys_and_headers_and_some_have_none():
    found = listed([batch(0, [b"a", b"b", b"c"], keys=[b"", None, b"k"], headers=[None, {}, {"h": b"x"}])])
    assert [row["key"] for row in found] == [b"", None, b"k"]
    assert [row["headers"] for row in found] == [None, None, [{"key": "h", "value": b"x"}]]


def test_equal_headers_are_equal_and_each_is_its_records():
    given = [{"day": b"%d" % (number % 3)} for number in range(100)]
    found = listed([batch(0, [b"v"] * 100, headers=given)], "headers")
    assert [{pair["key"]: pair["value"] for pair in row["headers"]} for row in found] == given


def test_batches_of_different_kinds_are_gathered_into_one():
    parts = [
        plain(0, 2, keys=[b"a", None]),
        plain(2, 2, event_times=[5, 6], headers=[{"h": b"1"}, None]),
        plain(9, 1),  # behind a gap
    ]
    (out,) = made(parts)
    found = out.to_pylist()
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 9]
    assert [row["value"] for row in found] == [b"v0", b"v1", b"v2", b"v3", b"v9"]
    assert [row["key"] for row in found] == [b"a", None, None, None, None]
    assert [row["timestamp"] for row in found] == [moment(at) for at in (1000, 1000, 5, 6, 1009)]
    assert [row["timestampType"] for row in found] == [1, 1, 0, 0, 1]
    assert [row["headers"] for row in found] == [None, None, [{"key": "h", "value": b"1"}], None, None]


def test_records_outside_the_span_are_cut_off():
    parts = [plain(0, 4, keys=[b"k"] * 4, event_times=[1, 2, 3, 4]), plain(4, 4), plain(8, 4)]
    found = listed(parts, begin=2, end=6)
    assert [row["offset"] for row in found] == [2, 3, 4, 5]
    assert [row["value"] for row in found] == [b"v2", b"v3", b"v4", b"v5"]
    assert [row["timestamp"] for row in found] == [moment(at) for at in (3, 4, 1004, 1004)]
    assert listed(parts, begin=12) == []
    assert [row["offset"] for row in listed(parts, begin=5, end=6)] == [5]


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_a_large_batch_is_sliced_without_a_copy_of_its_values(codec):
    whole = plain(10, 2 * MOST_ROWS + 5, codec=codec)
    found = made([whole], begin=12)
    sizes = [out.num_rows for out in found]
    assert len(sizes) == 3
    assert max(sizes) - min(sizes) <= 1
    assert [offset for out in found for offset in out["offset"].to_pylist()] == list(range(12, whole.end_offset))
    assert found[-1]["value"][-1].as_py() == b"v%d" % (whole.end_offset - 1)
    if codec == 0:
        column = memoryview(whole.buffer)
        base = pa.py_buffer(column).address
        for out in found:
            data = out["value"].buffers()[2]
            assert base <= data.address < base + len(column)


def test_small_batches_come_out_at_the_least_number_of_rows():
    found = made(plain(base, 1000) for base in range(0, 40_000, 1000))
    sizes = [out.num_rows for out in found]
    assert sum(sizes) == 40_000
    assert all(LEAST_ROWS <= size < LEAST_ROWS + 1000 for size in sizes[:-1])


def test_order_is_kept_where_a_large_batch_follows_small_ones():
    parts = [plain(0, 3), plain(3, LEAST_ROWS), plain(3 + LEAST_ROWS, 2)]
    offsets = [row["offset"] for row in listed(parts, "offset")]
    assert offsets == list(range(LEAST_ROWS + 5))


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_large_values_make_short_batches_however_few_bytes_store_them(codec):
    values = [bytes(MOST_BYTES // 4)] * 10
    sizes = [out.num_rows for out in made([batch(0, values, codec=codec)])]
    assert sum(sizes) == 10
    assert max(sizes) <= 4
    gathered = made(batch(number, values[:1], codec=codec) for number in range(10))
    assert sum(out.num_rows for out in gathered) == 10
    assert max(out.num_rows for out in gathered) <= 5


def test_columns_come_in_the_order_of_the_schema():
    (out,) = made([plain(0, 3)], names=["offset", "value"])
    assert out.schema.names == ["offset", "value"]
    assert out["value"].to_pylist() == [b"v0", b"v1", b"v2"]


def test_headers_that_are_none_are_refused():
    whole = plain(0, 2, headers=[{"a": b"1"}, {"a": b"2"}])
    at = bytes(whole.buffer).index(b"\x81\xa1a")
    broken = bytearray(whole.buffer)
    broken[at] = 0xC1
    with pytest.raises(InvalidBatch, match="headers of a record are not a map of text to bytes"):
        made([parse(bytes(broken))])


def test_values_that_are_not_there_are_refused():
    from penstock.storage.header import ColumnId
    from penstock.storage.projection import project

    with pytest.raises(InvalidBatch, match="holds no values"):
        made([parse(project([plain(0, 2, keys=[b"a", b"b"])], [ColumnId.KEY]))], names=["value"])


def test_lists_of_headers_keep_their_order_and_their_nulls_beside_batches_without_any():
    pairs = [("a", b"1"), ("b", None), ("a", b"2")]
    entries = [{"key": name, "value": value} for name, value in pairs]
    parts = [
        plain(0, 3, headers=[{"m": b"x"}, HeaderList(pairs), None]),
        plain(3, 1),
        plain(4, 1, headers=[{"m": b"y"}]),
    ]
    wanted = [[{"key": "m", "value": b"x"}], entries, None, None, [{"key": "m", "value": b"y"}]]
    assert [row["headers"] for row in listed(parts, "headers")] == wanted
    assert [row["headers"] for row in listed(parts, "headers", begin=1, end=4)] == wanted[1:4]


def test_nulls_are_null_beside_batches_without_any():
    parts = [plain(0, 2), batch(2, [None, b""]), batch(4, [None], keys=[b"k"])]
    found = [row["value"] for row in listed(parts, "value")]
    assert found == [b"v0", b"v1", None, b"", None]
