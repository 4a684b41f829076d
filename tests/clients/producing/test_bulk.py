"""Cutting many records into batches: every record once, in order, in pieces worth sending."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from penstock.clients.producing.bulk import pieces
from penstock.clients.producing.pieces import Shape
from penstock.storage.batch import parse
from penstock.storage.errors import InvalidBatch, RecordTooLarge
from penstock.transport.partitioner import partition_of
from penstock.transport.producer_session import TARGET_BYTES
from support.columns import end_to_end

SHAPE = Shape(4, 0, 16 << 20, "t")


def decoded(found):
    """(partition, values, keys) of every piece."""
    for piece in found:
        batch = parse(piece.encode(7, 1, 0))
        assert batch.record_count == piece.count
        yield piece.partition, batch.values(), batch.keys()


def sizes(seed: int, count: int = 3000) -> list[bytes]:
    rng = random.Random(seed)
    return [bytes([number % 256]) * rng.choice([0, 1, 100, 5000, 200_000] if rng.random() < 0.01 else [0, 1, 100])
            for number in range(count)]  # fmt: skip


@pytest.mark.parametrize("kind", [iter, list, tuple])
@pytest.mark.parametrize("given", range(5))
def test_every_record_goes_once_in_order_whatever_its_size(given, kind):
    values = sizes(given)
    found = list(decoded(pieces(kind(values), None, SHAPE, None)))
    assert [value for _, part, _ in found for value in part] == values
    assert all(partition is None for partition, _, _ in found)


@pytest.mark.parametrize("given", range(5))
def test_runs_that_lie_end_to_end_are_batches_where_they_are_not_too_large(given):
    values = sizes(given)
    runs = [end_to_end(values[at : at + 700]) for at in range(0, len(values), 700)]
    found = list(decoded(pieces(iter(runs), None, SHAPE, None)))
    assert [value for _, part, _ in found for value in part] == values
    small = [end_to_end([b"x"] * count) for count in (1, 3000, 2)]
    assert [piece.count for piece in pieces(small, None, SHAPE, None)] == [1, 3000, 2]
    with pytest.raises(RecordTooLarge):
        list(pieces([end_to_end([b"x" * 20])], None, Shape(1, 0, 10, "t"), None))
    with pytest.raises(InvalidBatch):
        list(decoded(pieces([end_to_end([b"x"])], [b"key"], SHAPE, None)))


@pytest.mark.parametrize("given", range(5))
def test_keys_choose_the_partition_and_keep_their_order(given):
    values = sizes(given)
    keys = [None if number % 7 == 0 else b"%d" % (number % 23) for number in range(len(values))]
    numbered = [b"%06d" % number + value for number, value in enumerate(values)]
    found = list(decoded(pieces(numbered, keys, SHAPE, None)))
    sent = [
        (value, key) for _, part, their in found for value, key in zip(part, their or [None] * len(part), strict=True)
    ]
    assert sorted(sent, key=lambda pair: pair[0]) == list(zip(numbered, keys, strict=True))
    for partition, part, their in found:
        assert part == sorted(part)
        if partition is not None:
            assert {partition_of(key, 4) for key in their} == {partition}


@pytest.mark.parametrize("kind", [iter, list, tuple])
def test_nulls_go_with_the_others_in_order(kind):
    values = sizes(1)
    values[2000] = None
    assert [value for _, part, _ in decoded(pieces(kind(values), None, SHAPE, None)) for value in part] == values


def test_pieces_are_worth_sending_and_none_is_huge():
    found = list(pieces([bytes(100)] * 50_000, None, SHAPE, None))
    assert all(TARGET_BYTES // 2 < piece.size <= 2 * TARGET_BYTES for piece in found[1:-1])
    mixed = list(pieces([bytes(10)] * 5000 + [bytes(300_000)] * 50, None, SHAPE, None))
    assert max(piece.size for piece in mixed) <= max(2 * TARGET_BYTES, 300_000)


def test_arrow_slices_keep_their_place():
    column = pa.array([b"%06d" % number for number in range(100_000)]).slice(1000, 80_000)
    found = list(decoded(pieces(column, None, SHAPE, 2)))
    assert [value for _, part, _ in found for value in part] == column.to_pylist()
    assert {partition for partition, _, _ in found} == {2}
    assert len(found) > 1


def test_arrow_rows_are_split_by_key():
    keys = pa.array([None if number % 5 == 0 else f"{number % 11}" for number in range(9000)])
    values = pa.array([b"%06d" % number for number in range(9000)])
    table = pa.table({"key": keys, "value": values})
    sent = []
    for partition, part, their in decoded(pieces(table, None, SHAPE, None)):
        assert part == sorted(part)
        assert partition is None or {partition_of(key, 4) for key in their} == {partition}
        sent += list(zip(part, their or [None] * len(part), strict=True))
    wanted = [
        (value, key.encode() if key else None) for value, key in zip(values.to_pylist(), keys.to_pylist(), strict=True)
    ]
    assert sorted(sent, key=lambda pair: pair[0]) == wanted


def test_frames_of_other_libraries_are_tables():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed, and tables of it are sent")
    frame = pandas.DataFrame({"value": [b"a", b"b", b"c"], "partition": [1, 0, 1]})
    sent = {number: values for number, values, _ in decoded(pieces(frame, None, SHAPE, None))}
    assert sent == {0: [b"b"], 1: [b"a", b"c"]}


def test_nothing_gives_nothing():
    assert list(pieces([], None, SHAPE, None)) == []
    assert list(pieces(pa.array([], pa.binary()), None, SHAPE, None)) == []
    assert list(pieces(pa.chunked_array([], pa.binary()), None, SHAPE, None)) == []


def test_a_record_over_the_limit_stops_before_it_is_encoded():
    small = Shape(1, 0, 1000, "t")
    with pytest.raises(RecordTooLarge, match="1001 bytes"):
        list(pieces([b"x", bytes(1001)], None, small, None))
    with pytest.raises(RecordTooLarge, match="1001 bytes"):
        list(pieces(pa.array([b"x", bytes(1001)]), None, small, None))


def test_nulls_are_records_and_numbers_are_not():
    for given in (pa.array([b"x", None]), [b"x", None], iter([b"x", None])):
        (piece,) = pieces(given, None, SHAPE, None)
        assert parse(piece.encode(7, 1, 0)).values() == [b"x", None]
    with pytest.raises(InvalidBatch, match="bytes"):
        list(pieces([1, 2], None, SHAPE, None))


def test_keys_count_as_bytes_of_their_records():
    keys = [b"%d" % number + bytes(100_000) for number in range(100)]
    found = list(pieces([b"v"] * 100, keys, SHAPE, None))
    assert max(piece.size for piece in found) <= 2 * TARGET_BYTES
    for piece in found:
        assert piece.count * 100_000 <= piece.size <= len(piece.encode(7, 1, 0))


def test_one_key_for_all_records_of_a_topic_with_many_partitions_makes_no_huge_piece():
    many = Shape(1000, 0, 16 << 20, "t")
    found = list(pieces([bytes(1000)] * 5000, [b"k"] * 5000, many, None))
    assert max(piece.size for piece in found) <= 2 * TARGET_BYTES
    assert sum(piece.count for piece in found) == 5000


def test_a_key_over_the_limit_stops_before_it_is_encoded():
    small = Shape(1, 0, 1000, "t")
    with pytest.raises(RecordTooLarge, match="a key of 1001 bytes"):
        list(pieces([b"x", b"y"], [None, bytes(1001)], small, None))
    assert len(list(pieces([b"x", bytes(1000)], [None, bytes(1000)], small, None))) == 1
