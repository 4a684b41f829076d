"""Gathering: many batches as one Arrow batch are the same records as one after the other."""

from __future__ import annotations

import random
from itertools import product

import pytest
from penstock.storage import columns
from penstock.storage.batch import Batch, Codec, ColumnId, assemble, encode, parse
from penstock.storage.errors import BatchTooLarge, InvalidBatch
from penstock.storage.gathering import gather, gathered, grouped
from penstock.storage.header import Stamp, stamp

pa = pytest.importorskip("pyarrow")

NAMES = ("value", "key", "offset", "timestamp", "headers")


def placed(raw: bytes | bytearray, offset: int) -> Batch:
    head = stamp(raw, Stamp(offset + 1, offset, 1, b"L" * 16, 1_000_000 + offset, 0))
    return parse(bytes(head) + bytes(raw[len(head) :]))


def some(rng: random.Random, count: int, codec: Codec = Codec.NONE) -> list[Batch]:
    """Batches that differ in what they have."""
    found, offset = [], rng.randrange(100)
    for _ in range(count):
        rows = rng.choice([1, 1, 2, 7, 64, 65, 200])
        beside = {
            "keys": [rng.choice([None, b"", b"key"]) for _ in range(rows)],
            "headers": [rng.choice([None, {}, {"h": b"v"}]) for _ in range(rows)],
            "event_times": [rng.randrange(10**9) for _ in range(rows)],
        }
        chosen = {name: beside[name] for name in beside if rng.random() < 0.5}
        values = [rng.randbytes(rng.choice([0, 1, 30])) for _ in range(rows)]
        found.append(placed(encode(values, codec=codec, **chosen), offset))
        offset += rows + rng.choice([0, 0, 3])
    return found


@pytest.mark.parametrize(("seed", "codec"), list(product(range(10), Codec)))
def test_the_same_records_come_as_from_single_batches(seed: int, codec: Codec):
    batches = some(random.Random(seed), 12, codec)
    found = gather(batches, NAMES)
    found.validate(full=True)
    alone = pa.Table.from_batches([batch.arrow(NAMES) for batch in batches]).combine_chunks().to_batches()
    assert [found.to_pydict()] == [each.to_pydict() for each in alone]
    assert found.schema.types == alone[0].schema.types


@pytest.mark.parametrize("name", NAMES)
def test_one_column_comes_by_itself(name: str):
    batches = some(random.Random(1), 5)
    assert gathered(batches, name).equals(gather(batches, NAMES).column(NAMES.index(name)))


def test_a_single_batch_is_not_copied():
    (batch,) = some(random.Random(2), 1)
    value = gather([batch], ["value"]).column(0)
    address = value.buffers()[2].address
    held = memoryview(batch.buffer)
    start = pa.py_buffer(held).address
    assert start <= address < start + len(held)


def test_columns_that_no_batch_has_are_null_and_all_present_ones_have_no_bitmap():
    batches = [placed(encode([b"a", b"b"]), 0), placed(encode([b"c"]), 2)]
    found = gather(batches, ["key", "headers", "value"])
    assert [column.null_count for column in found.columns] == [3, 3, 0]
    keyed = [placed(encode([b"a"], keys=[b"k"]), offset) for offset in range(3)]
    assert gathered(keyed, "key").buffers()[0] is None


def test_a_schema_given_is_the_one_that_comes():
    schema = pa.schema([("value", pa.binary())], metadata={"topic": "t"})
    assert gather(some(random.Random(3), 4), ["value"], schema).schema.metadata == {b"topic": b"t"}


def damaged(offsets: list[int], data: bytes) -> Batch:
    """A batch whose value column has these offsets."""
    head = b"".join(offset.to_bytes(4, "little", signed=True) for offset in offsets)
    block = head + bytes(columns.data_start(len(offsets) - 1) - len(head)) + data
    return parse(assemble(1, len(offsets) - 1, [(ColumnId.VALUE, Codec.NONE, block)]))


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 4], [1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 5], [0, -1, 3, 4], [0, 9, 3, 4]]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_offsets_that_would_lead_elsewhere_are_refused(offsets: list[int], place: int):
    batches = [placed(encode([b"good", b"values"]), 0), placed(encode([b"x"]), 2)]
    batches.insert(place, damaged(offsets, b"four"))
    with pytest.raises(InvalidBatch):
        gather(batches, ["value"])


def test_a_batch_without_values_has_none_to_gather():
    batches = [placed(encode([b"a"]), 0), parse(assemble(1, 1, []))]
    with pytest.raises(InvalidBatch, match="no values"):
        gather(batches, ["value"])


def test_more_than_a_column_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(columns, "COLUMN_BYTES_MAX", 10)
    with pytest.raises(BatchTooLarge, match="gather fewer"):
        gather([placed(encode([b"123456"]), 0)] * 2, ["value"])


# -- groups -----------------------------------------------------------------------------------------


def sized(*rows: int) -> list[Batch]:
    return [placed(encode([b"x"] * count), 0) for count in rows]


def counts(groups: list[list[Batch]]) -> list[list[int]]:
    return [[batch.record_count for batch in group] for group in groups]


def test_small_batches_come_together_and_large_ones_alone():
    found = list(grouped(sized(1, 2, 3, 50, 4, 5, 49, 49, 49, 1, 200), 100, 1 << 30))
    assert counts(found) == [[1, 2, 3], [50], [4, 5, 49], [49, 49, 1], [200]]


def test_groups_are_bounded_in_bytes():
    batches = [placed(encode([bytes(1000)]), 0) for _ in range(10)]
    size = batches[0].batch_bytes
    assert counts(list(grouped(batches, 1 << 30, 3 * size))) == [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1]]
    assert counts(list(grouped(batches, 1 << 30, size))) == [[1]] * 10


def test_nothing_gives_no_group():
    assert list(grouped([], 10, 10)) == []
