"""Columns of values: measured once, and decoded whole or a run at a time, in Python and through Arrow alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain

import pytest
from penstock.storage import arrow, columns
from penstock.storage.batch import Codec, encode, parse
from penstock.storage.columns import FEW, LARGE, RUN_BYTES, Lengths
from support.columns import end_to_end

SHAPES = {
    "one": [b"only"],
    "one empty": [b""],
    "few": [b"x" * size for size in (3, 0, 7)],
    "few of one length": [bytes([number]) * 9 for number in range(FEW)],
    "few and large": [bytes([number]) * (LARGE + number) for number in range(FEW)],
    "few and huge": [bytes([number]) * RUN_BYTES for number in range(3)],
    "many": [b"%d" % number * (number % 40) for number in range(20_000)],
    "many of one length": [b"%0100d" % number for number in range(10_000)],
    "many empty": [b""] * 10_000,
    "many and large": [bytes([number % 251]) * 3000 for number in range(500)],
}
Runs = Callable[[memoryview, int, int], Iterator[list[bytes]]]
DECODERS: dict[str, Runs] = {
    "python": columns.decode_runs,
    "arrow": lambda column, count, first: arrow.decode_runs(column, count, first, checked=False),
}


def column_of(values: list[bytes]) -> memoryview:
    pieces = columns.pieces(values)
    return memoryview(columns.join(pieces.parts, pieces.size))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_end_to_end_are_the_batch_of_their_list(shape: str, codec: int) -> None:
    values = SHAPES[shape]
    found = end_to_end(values)
    assert (list(found), len(found), found[-1]) == (values, len(values), values[-1])
    assert encode(found, headers={"a": b"b"}, codec=codec) == encode(values, headers={"a": b"b"}, codec=codec)
    assert encode(found) == encode(values)


def test_a_part_of_values_end_to_end_is_one_itself() -> None:
    values = [b"", b"one", b"", b"three", b"four"]
    found = end_to_end(values)
    for first in range(-6, 7):
        for last in range(-6, 7):
            assert list(found[first:last]) == values[first:last]
            assert bytes(found[first:last].block) == b"".join(values[first:last])
    assert list(found[1:4][1:]) == values[2:4]
    assert list(found[2:][:1].lengths) == [0]
    with pytest.raises(IndexError):
        found[5]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_runs_are_the_values_from_any_place_on(shape: str, decoder: str) -> None:
    values = SHAPES[shape]
    column, runs = column_of(values), DECODERS[decoder]
    for first in {0, 1, len(values) // 2, len(values) - 1, len(values)}:
        assert list(chain.from_iterable(runs(column, len(values), first))) == values[first:]
    assert columns.decode_variable(column, len(values)) == values


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_run_fits_the_cache_or_is_one_value(decoder: str) -> None:
    for values in SHAPES.values():
        runs = list(DECODERS[decoder](column_of(values), len(values), 0))
        average = sum(map(len, values)) / len(values)
        assert all(len(run) == 1 or len(run) * average <= RUN_BYTES for run in runs)


def test_many_values_of_one_length_come_out_of_a_run_that_begins_anywhere() -> None:
    values = SHAPES["many of one length"]
    assert list(chain.from_iterable(columns.decode_runs(column_of(values), len(values), 4321))) == values[4321:]


@pytest.mark.parametrize("shape", SHAPES)
def test_lengths_that_are_known_change_nothing(shape: str) -> None:
    values = SHAPES[shape]
    assert encode(values, lengths=columns.lengths(values)) == encode(values)


def test_lengths_are_those_of_the_values() -> None:
    for values in SHAPES.values():
        lengths: Lengths = columns.lengths(values)
        assert list(lengths) == list(map(len, values))
        assert columns.total(lengths) == sum(map(len, values))


def test_a_batch_gives_its_values_in_runs_and_whole() -> None:
    source = random.Random(7)
    values = [source.randbytes(source.randrange(300)) for _ in range(5000)]
    batch = parse(encode(values))
    assert batch.values() == values
    assert list(chain.from_iterable(batch.value_runs(4000))) == values[4000:]


def test_a_column_of_no_values_decodes_to_none() -> None:
    """No record has one, but the header of an unchecked batch may say so."""
    column = column_of([])
    assert columns.decode_variable(column, 0) == []
    assert list(chain.from_iterable(columns.decode_runs(column, 0, 0))) == []
