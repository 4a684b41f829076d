"""Projection: of a batch the columns that were asked for, as they were stored, under a header that holds."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from penstock.storage.batch import Batch, Codec, ColumnId, Kind, batches, encode, encode_state, parse, with_effects
from penstock.storage.errors import BadChecksum, InvalidBatch
from penstock.storage.header import HEADER, Stamp, stamp
from penstock.storage.header_list import HeaderList, pairs_of
from penstock.storage.projection import project, with_validity

COUNT = 5
PAIRS = (("a", b"1"), ("a", None))
BESIDE = {
    "keys": [b"a", None, b"", b"bb", None],
    "headers": [{"h": b"v"}, None, {}, None, {"x": b""}],
    "event_times": [5, -6, 7, 8, 9],
    "priorities": [0, 255, 1, 2, 3],
    "not_before": [0, 1, 2, 3, 4],
    "dedup": [b"", b"d", b"", b"e", b"f"],
}
NAMES = (
    ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS, ColumnId.EVENT_TIME, ColumnId.PRIORITY, ColumnId.NOT_BEFORE,
    ColumnId.DEDUP,
)  # fmt: skip
VALUES = [b"one", b"", b"three" * 50, b"4", b"5"]
FIELDS = [name for name in HEADER.names or () if name not in ("header_checksum", "reserved")]


def placed(raw: bytes | bytearray, seq: int = 7, offset: int = 40) -> Batch:
    head = stamp(raw, Stamp(seq, offset, 2, b"L" * 16, 99, 5))
    return parse(bytes(head) + bytes(raw[len(head) :]))


def whole(codec: Codec = Codec.NONE, **without: None) -> Batch:
    """A batch that has every column, effects too."""
    return placed(with_effects(encode(VALUES, codec=codec, **{**BESIDE, **without}), b"effects"))


def read(batch: Batch, id_: int) -> object:
    """What a reader makes of one column."""
    return {
        ColumnId.VALUE: batch.values,
        ColumnId.KEY: batch.keys,
        ColumnId.HEADERS: batch.headers,
        ColumnId.EVENT_TIME: lambda: _list(batch.event_times()),
        ColumnId.PRIORITY: lambda: _list(batch.priorities()),
        ColumnId.NOT_BEFORE: lambda: _list(batch.not_before()),
        ColumnId.DEDUP: batch.dedup,
    }[ColumnId(id_)]()


def test_headers_come_with_the_lists_that_do_not_fit_a_map():
    batch = placed(encode([b"v"] * 2, headers=[{"a": b"1"}, HeaderList(PAIRS)]))
    (found,) = batches(project([batch], [ColumnId.HEADERS]))
    assert [pairs_of(each) for each in found.headers() or []] == [(("a", b"1"),), PAIRS]
    (found,) = batches(project([batch], [ColumnId.VALUE]))
    assert found.headers() is None


def _list(found: object) -> object:
    return None if found is None else found.tolist()  # type: ignore[attr-defined]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_choice_of_columns_comes_as_it_was_and_nothing_else_does(codec: Codec):
    batch = whole(codec)
    batch.check()
    for count in range(len(NAMES) + 1):
        for chosen in combinations(NAMES, count):
            (found,) = batches(project([batch], chosen))
            found.check_columns()
            assert {column.id for column in found.directory()} == with_validity(chosen) & {
                column.id for column in batch.directory()
            }
            for id_ in NAMES:
                missing: object = [] if id_ == ColumnId.VALUE else None
                assert read(found, id_) == (read(batch, id_) if id_ in chosen else missing)


def test_the_header_says_the_same_but_for_what_is_left_out():
    batch = whole()
    (found,) = batches(project([batch], [ColumnId.KEY]))
    same = [name for name in FIELDS if name not in ("header_bytes", "batch_bytes", "column_count")]
    fields = ("kind", "record_count", "base_offset", "seq", "term", "log_id", "append_time_us", "previous")
    assert set(fields) <= set(same)
    assert [getattr(found, name) for name in fields] == [getattr(batch, name) for name in fields]
    assert (found.producer_id, found.first_sequence) == (batch.producer_id, batch.first_sequence)
    assert found.header_checksum != batch.header_checksum
    assert found.batch_bytes == len(found.buffer) < batch.batch_bytes


def test_checksums_are_those_of_the_columns_so_that_damage_is_found_by_the_reader():
    batch = whole()
    column = next(column for column in batch.directory() if column.id == ColumnId.VALUE)
    damaged = bytearray(batch.buffer)
    damaged[column.position + column.stored_bytes - 1] ^= 1
    (found,) = batches(project([parse(damaged)], [ColumnId.VALUE, ColumnId.KEY]))
    with pytest.raises(BadChecksum):
        found.check_columns()
    (fine,) = batches(project([parse(damaged)], [ColumnId.KEY]))
    fine.check_columns()


def test_a_batch_without_a_column_that_was_asked_for_comes_without_it():
    batch = placed(encode(VALUES))
    (found,) = batches(project([batch], [ColumnId.KEY]))
    assert (found.record_count, found.base_offset, found.column_count) == (COUNT, 40, 0)
    found.check_columns()
    assert found.keys() is None


def test_a_batch_of_which_nothing_is_left_out_is_the_same_bytes():
    batch = placed(encode(VALUES, keys=[b"k"] * COUNT))
    assert project([batch], [ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS]) == bytes(batch.buffer)


def test_only_batches_of_records_come_in_their_order():
    found = [placed(encode([b"%d" % number]), number, number) for number in range(1, 4)]
    state = placed(encode_state(b"effects"), 9, 4)
    projected = list(batches(project([found[0], state, *found[1:]], [ColumnId.EVENT_TIME])))
    assert [(batch.kind, batch.seq) for batch in projected] == [(Kind.RECORDS, 1), (Kind.RECORDS, 2), (Kind.RECORDS, 3)]


def test_a_directory_that_leads_out_of_its_batch_is_refused():
    raw = bytearray(whole().buffer)
    batch = parse(raw)
    column = batch.directory()[0]
    batch.known = [type(column)(column.id, 0, 0, column.position, 1 << 30, 1 << 30, 0), *batch.directory()[1:]]
    with pytest.raises(InvalidBatch, match="outside"):
        project([batch], [ColumnId.VALUE])


def test_only_the_columns_asked_for_are_verified_of_a_whole_batch():
    batch = whole()
    column = next(column for column in batch.directory() if column.id == ColumnId.HEADERS)
    damaged = bytearray(batch.buffer)
    damaged[column.position] ^= 1
    found = parse(damaged)
    found.check_columns([ColumnId.VALUE, ColumnId.KEY])
    assert not found.checked, "the offsets of other columns were not seen"
    with pytest.raises(BadChecksum):
        found.check_columns([ColumnId.HEADERS])
    with pytest.raises(BadChecksum):
        found.check_columns()


def test_random_batches_keep_what_was_asked_for():
    rng = random.Random(5)
    for _ in range(200):
        count = rng.choice([1, 2, 63, 64, 65, 300])
        values = [rng.randbytes(rng.choice([0, 1, 30])) for _ in range(count)]
        keys = [rng.choice([None, b"", b"k"]) for _ in range(count)]
        chosen = rng.sample(NAMES, rng.randint(0, len(NAMES)))
        batch = placed(encode(values, keys=keys, codec=rng.choice(list(Codec))))
        (found,) = batches(project([batch], chosen))
        found.check_columns()
        assert found.values() == (values if ColumnId.VALUE in chosen else [])
        assert found.keys() == (batch.keys() if ColumnId.KEY in chosen else None)
