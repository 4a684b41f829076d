"""Few plain records make the bytes that laying columns out in general makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.storage import columns
from penstock.storage.batch import encode, parse
from penstock.storage.encoding import assemble
from penstock.storage.errors import InvalidBatch
from penstock.storage.few import FEW_BYTES, encode_few
from penstock.storage.header import ColumnId, Kind

VALUES = st.lists(st.binary(max_size=200), min_size=1, max_size=columns.FEW)
UINT64, INT63, UINT32 = (st.integers(0, 2**bits - 1) for bits in (64, 63, 32))


@given(VALUES, UINT64, UINT32, INT63)
def test_the_bytes_are_those_of_the_general_layout(values: list[bytes], producer_id: int, epoch: int, first: int):
    found = [(ColumnId.VALUE, 0, columns.pieces(values))]
    assert encode_few(values, producer_id, epoch, first) == assemble(
        Kind.RECORDS, len(values), found, producer_id, epoch, first
    )


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("more", [0, 1])
def test_large_values_are_laid_out_in_general(count: int, more: int):
    """Three copies of some megabytes would take longer than all the calls that are saved."""
    values = [bytes(FEW_BYTES // count) for _ in range(count - 1)]
    values.append(bytes(FEW_BYTES - sum(map(len, values)) + more))
    assert (encode_few(values, 1, 1, 1) is None) == bool(more)
    found = [(ColumnId.VALUE, 0, columns.pieces(values))]
    assert encode(values) == assemble(Kind.RECORDS, count, found)


@pytest.mark.parametrize("count", [1, 2, columns.FEW - 1, columns.FEW, columns.FEW + 1])
def test_what_encode_makes_of_few_and_of_many_comes_back(count: int):
    values = [b"%d" % number * (number % 7) for number in range(count)]
    batch = parse(encode(values, producer_id=9, producer_epoch=3, first_sequence=11))
    batch.check()
    assert batch.values() == values
    assert (batch.producer_id, batch.producer_epoch, batch.first_sequence) == (9, 3, 11)


@pytest.mark.parametrize("shape", [lambda one: [one], lambda one: [b"before", one]])
def test_anything_with_bytes_is_a_value(shape):
    for value in (bytearray(b"abc"), memoryview(b"abc")):
        assert encode(shape(value)) == encode(shape(b"abc"))


@pytest.mark.parametrize("values", [[None], [b"a", None], [None, b""]])
def test_nulls_are_for_the_general_layout(values) -> None:
    assert encode_few(values, 1, 1, 1) is None


@pytest.mark.parametrize("shape", [lambda one: [one], lambda one: [b"before", one]])
@pytest.mark.parametrize("value", ["text", 5, memoryview(b"abcdefgh").cast("I")])
def test_what_has_no_bytes_of_its_length_is_refused(shape, value):
    with pytest.raises(InvalidBatch, match=r"encode|cast"):
        encode(shape(value))


class Huge(bytes):
    """Says that it is longer than a column can be."""

    def __len__(self) -> int:
        return 1 << 31


@pytest.mark.parametrize("values", [[Huge()], [b"a", Huge()]])
def test_a_column_that_no_offset_reaches_is_refused(values):
    with pytest.raises(InvalidBatch, match="fewer records"):
        encode(values)
