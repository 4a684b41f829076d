"""Few plain records make the bytes that laying columns out in general makes of them, and are checked as in general."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.storage import batch as batch_module
from penstock.storage import columns
from penstock.storage.batch import HEADER_BYTES, encode, parse, parse_few
from penstock.storage.encoding import assemble
from penstock.storage.errors import Error, InvalidBatch
from penstock.storage.few import FEW_BYTES, encode_few
from penstock.storage.header import CHECKSUM_STRUCT, ColumnId, Kind
from xxhash import xxh3_64_intdigest

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


FIELDS = (
    "header_checksum", "kind", "flags", "header_bytes", "batch_bytes", "record_count", "column_count", "base_offset",
    "seq", "term", "log_id", "append_time_us", "previous", "producer_id", "first_sequence", "producer_epoch",
)  # fmt: skip


def checked(batch: bytes) -> tuple[bool, list[bytes]] | type[Error]:
    """What the checks of a batch say of its columns, and its values."""
    try:
        found = parse(batch)
        found.check()
        return found.checked, found.values()
    except Error as error:
        return type(error)


def agrees(batch: bytes) -> bool:
    """Whether it is recognised. What is must be to the general way, which checks it, the same."""
    with patch.object(batch_module, "few_ends", lambda *_: None):
        general = checked(batch)
    assert checked(batch) == general
    found = parse_few(batch)
    if found is not None:
        general = parse(batch)
        general.check()
        assert [getattr(found, name) for name in FIELDS] == [getattr(general, name) for name in FIELDS]
        assert found.checked
        assert (found.values(), bytes(found.buffer)) == (general.values(), batch)
    return found is not None


@given(VALUES, UINT64, UINT32, INT63)
def test_a_batch_of_few_is_recognised(values: list[bytes], producer_id: int, epoch: int, first: int):
    batch = encode_few(values, producer_id, epoch, first)
    assert batch is not None
    assert agrees(batch)


def resealed(batch: bytearray) -> bytearray:
    """Under checksums that agree, as far as the directory makes sense."""
    stored = int.from_bytes(batch[136:140], "little")
    batch[144:152] = CHECKSUM_STRUCT.pack(xxh3_64_intdigest(batch[192 : 192 + stored]))
    batch[:8] = CHECKSUM_STRUCT.pack(xxh3_64_intdigest(batch[8:192]))
    return batch


@pytest.mark.parametrize("values", [[b"ab"], [b""], [b"", b"abc", b"d"], [b"v" * 56], [b"w" * 48, b""]])
@pytest.mark.parametrize("seal", [bytes, resealed])
def test_only_what_passes_the_general_checks_is_recognised(values: list[bytes], seal):
    batch = encode_few(values, 7, 2, 3)
    assert batch is not None
    refused = 0
    for at in range(len(batch)):
        for bit in range(8):
            changed = bytearray(batch)
            changed[at] ^= 1 << bit
            refused += not agrees(bytes(seal(changed)))
    assert refused >= HEADER_BYTES
    for size in (*range(len(batch)), len(batch) + 64):
        assert not agrees(batch[:size].ljust(size, b"\0"))


@pytest.mark.parametrize("count", [1, 2, columns.FEW])
def test_up_to_the_limit_any_number_is_recognised(count: int):
    assert agrees(encode([b""] * count))


def test_nothing_else_is_recognised():
    for batch in (
        encode([b"a"], keys=[b"k"]), encode([b"a", None]), encode([b"a"] * (columns.FEW + 1)),
        encode([b"a"], kind=Kind.STAGED, producer_id=1), b"",
    ):  # fmt: skip
        assert parse_few(batch) is None
    with pytest.raises(Error):
        parse(encode([b"a"])[:191])


def test_reserved_bytes_and_bytes_behind_the_values_are_left_to_the_general_checks():
    batch = bytearray(encode([b"ab"]))
    batch[HEADER_BYTES - 1] = 1
    assert parse_few(resealed(batch)) is None
    longer = bytearray(encode([b"ab"])) + bytes(64)
    longer[20:24] = len(longer).to_bytes(4, "little")
    assert parse_few(resealed(longer)) is None
