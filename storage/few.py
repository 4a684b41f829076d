"""Encodes and recognises a few plain records, as most single sends have them: one column of values, no codec.

Idea: nearly all bytes of such a header are known beforehand, so two struct calls and two digests make or verify the
batch, where the general way takes a dozen steps.

Contract: what is encoded is byte for byte what `encoding.lay_out` makes of the same records. What is recognised passes
every check of a batch; anything else is left to the general checks, which say what is wrong with it. Pure: bytes in,
bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from . import columns
from .codecs import Codec
from .header import (
    ALIGNMENT,
    DIRECTORY_STRUCT,
    HEADER_BYTES,
    HEADER_STRUCT,
    MAGIC,
    STAMP_POSITION,
    VERSION,
    ColumnId,
    Kind,
    aligned,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

_HEADER_BYTES = aligned(HEADER_BYTES + DIRECTORY_STRUCT.size)
_PRODUCER_POSITION = STAMP_POSITION + struct.calcsize("<qqq16sqQ")

_BLANK = HEADER_STRUCT.pack(
    0, MAGIC, VERSION, Kind.RECORDS, 0, _HEADER_BYTES, 0, 0, 1, 0, 0, 0, bytes(16), 0, 0, 0, 0, 0
)
_START = _BLANK[8:20]  # from the magic to header_bytes
_PLACE = _BLANK[28:_PRODUCER_POSITION]  # column_count, and what the writer of a log fills in
_COLUMN = DIRECTORY_STRUCT.pack(ColumnId.VALUE, Codec.NONE, 0, _HEADER_BYTES, 0, 0, 0)[:8]

# _START, batch_bytes, record_count, _PLACE, producer id, sequence and epoch, then the entry of the directory.
_HEAD = struct.Struct(f"<12sII{len(_PLACE)}sQqI20x8sIIQ{_HEADER_BYTES - HEADER_BYTES - DIRECTORY_STRUCT.size}x")
# Its parts to be taken apart: the header with its checksum before it, and the entry.
_HEADER = struct.Struct(f"<Q12sII{len(_PLACE)}sQqI20s")
_ENTRY = struct.Struct("<8sIIQ")
_RESERVED = bytes(20)
_OFFSETS = [
    struct.Struct(f"<{count + 1}i{columns.data_start(count) - 4 * (count + 1)}x") for count in range(columns.FEW + 1)
]

_PADDINGS = [bytes(size) for size in range(ALIGNMENT)]

assert _HEAD.size + 8 == _HEADER_BYTES
assert (_HEADER.size, _ENTRY.size) == (HEADER_BYTES, DIRECTORY_STRUCT.size)


FEW_BYTES = 64 << 10
"""Of all values together: above, the three copies made here cost more than the calls they save, and blocks of some
100 KiB come from the kernel and go back each time (256 KiB: 226 against 17 us; 4 MiB: 18 against 0.5 ms)."""


def encode_few(values: Sequence[Any], producer_id: int, producer_epoch: int, first_sequence: int) -> bytes | None:
    """The batch of 1 to columns.FEW values; None when they have more than FEW_BYTES, or a null is among them.

    Raises InvalidBatch.
    """
    count = len(values)
    try:
        if count == 1:
            value = values[0]
            data_bytes = len(value)
            if data_bytes > FEW_BYTES:
                return None
            column = _OFFSETS[1].pack(0, data_bytes) + value
        else:
            ends = list(accumulate(map(len, values), initial=0))
            data_bytes = ends[-1]
            if data_bytes > FEW_BYTES:
                return None
            column = _OFFSETS[count].pack(*ends) + b"".join(values)
    except TypeError as error:
        if None in values:
            return None
        raise columns.not_bytes(error) from None
    size = len(column)
    if size != _OFFSETS[count].size + data_bytes:
        raise columns.not_single_bytes()
    padding = -size & (ALIGNMENT - 1)
    head = _HEAD.pack(
        _START, _HEADER_BYTES + size + padding, count, _PLACE, producer_id, first_sequence, producer_epoch,
        _COLUMN, size, size, xxh3_64_intdigest(column),
    )  # fmt: skip
    # A digest is the number with its highest byte first; the header has it with the lowest.
    return xxh3_64_digest(head)[::-1] + head + column + _PADDINGS[padding]


def recognise_few(batch: Buffer) -> tuple[int, int, int, int, int] | None:
    """Header checksum, record count, producer id, first sequence and epoch of a batch that `encode_few` could make.

    None for any other, and for one that is damaged.
    """
    view = memoryview(batch)
    size = len(view)
    if size <= _HEADER_BYTES:
        return None
    checksum, start, batch_bytes, count, place, producer_id, first_sequence, epoch, reserved = _HEADER.unpack_from(view)
    if start != _START or place != _PLACE or reserved != _RESERVED or batch_bytes != size:
        return None
    if xxh3_64_intdigest(view[8:_HEADER_BYTES]) != checksum or few_ends(view, count) is None:
        return None
    return checksum, count, producer_id, first_sequence, epoch


def few_ends(batch: memoryview, count: int) -> Sequence[int] | None:
    """Where each of `count` values begins, and where the last one ends, in the data of a whole batch with one column.

    The column is verified: None where `encode_few` could not have made it, and where it is damaged.
    """
    column, stored, raw, digest = _ENTRY.unpack_from(batch, HEADER_BYTES)
    end = _HEADER_BYTES + stored
    if column != _COLUMN or raw != stored or end + (-stored & (ALIGNMENT - 1)) != len(batch):
        return None
    if not 0 < count <= columns.FEW or stored < _OFFSETS[count].size:
        return None
    values = batch[_HEADER_BYTES:end]
    if xxh3_64_intdigest(values) != digest:
        return None
    ends = _OFFSETS[count].unpack_from(values)
    if ends[0] or ends[-1] != stored - _OFFSETS[count].size or (count > 1 and sorted(ends) != [*ends]):
        return None
    return ends


def few_values(batch: memoryview, ends: Sequence[int]) -> list[bytes]:
    """The values of a batch, from what `few_ends` said of it."""
    start = _HEADER_BYTES + _OFFSETS[len(ends) - 1].size
    data = batch[start : start + ends[-1]]
    return [bytes(data)] if len(ends) == 2 else columns.cut(data, ends)
