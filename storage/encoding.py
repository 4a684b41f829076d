"""Encodes records into a batch, for producers and for the engine's own effects.

Contract: the result has no place in any log yet; the log's writer stamps it. Every column carries its checksum from
here to the last reader. Pure: lists in, bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from . import columns
from .codecs import Codec, compress
from .errors import InvalidBatch
from .few import encode_few
from .header import (
    ALIGNMENT,
    CHECKSUM_STRUCT,
    DIRECTORY_STRUCT,
    HEADER_BYTES,
    HEADER_STRUCT,
    MAGIC,
    VERSION,
    ColumnId,
    Kind,
    aligned,
)  # fmt: skip
from .header_list import HeaderList

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    Raw = Buffer | columns.Pieces


PRIORITY_MAX = 255
"""The most urgent; 0 is the default."""

_RECORDS = int(Kind.RECORDS)


def encode(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Mapping[str, bytes] | None] | Mapping[str, bytes] | None = None,
    event_times: Sequence[int] | None = None,
    priorities: Sequence[int] | None = None,
    not_before: Sequence[int] | None = None,
    dedup: Sequence[bytes] | None = None,
    codec: int = Codec.NONE,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
    kind: int = _RECORDS,
    lengths: columns.Lengths | None = None,
) -> bytes | bytearray:
    """Encode records as a batch without a place in a log; `kind` is STAGED for those of a transaction.

    A value of None is null. What stands beside `values` is as long as they are, or None; single keys and headers may be
    None. One map of `headers` is that of all records, and is packed once. Times are microseconds UTC; a `not_before` of
    0 is none, an empty `dedup` key is none, priorities are 0 to 255. `lengths` are `columns.lengths(values)`, if the
    caller has them already and no value is null. Raises InvalidBatch (no records, not bytes, lengths differ) and
    BatchTooLarge.
    """
    if not values:
        raise InvalidBatch("a batch needs at least one record")
    if keys is headers is event_times is priorities is not_before is dedup is None:
        if not codec and kind == _RECORDS and len(values) <= columns.FEW:
            few = encode_few(values, producer_id, producer_epoch, first_sequence)
            if few is not None:
                return few
    found = _value_columns(values, codec, lengths)
    if keys is not None:
        found += _key_columns(_same_length("keys", keys, values), codec)
    if headers is not None:
        if isinstance(headers, Mapping):
            found += _shared_header_columns(headers, len(values), codec)
        else:
            found += _header_columns(_same_length("headers", headers, values), codec)
    if event_times is not None:
        times = np.asarray(_same_length("event_times", event_times, values), "<i8")
        found.append((ColumnId.EVENT_TIME, Codec.NONE, times.tobytes()))
    if priorities is not None:
        found += priority_column(_same_length("priorities", priorities, values))
    if not_before is not None:
        found += not_before_column(_same_length("not_before times", not_before, values))
    if dedup is not None and any(_same_length("dedup keys", dedup, values)):
        found.append((ColumnId.DEDUP, Codec.NONE, columns.pieces(dedup)))
    return assemble(kind, len(values), found, producer_id, producer_epoch, first_sequence)


def encode_state(effects: bytes) -> bytearray:
    """A batch of effects: a change of state without records. The encoding of effects is the engine's."""
    return assemble(Kind.STATE, 0, [(ColumnId.EFFECTS, Codec.NONE, effects)])


def encode_raft(entry: bytes = b"") -> bytearray:
    """A no-op (empty) or a change of configuration."""
    return assemble(Kind.RAFT, 0, [(ColumnId.EFFECTS, Codec.NONE, entry)] if entry else [])


def assemble(
    kind: int,
    record_count: int,
    found: Sequence[tuple[int, int, Raw]],
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
) -> bytearray:
    """Lay raw columns [(id, codec, raw bytes)] out as one unstamped batch, compressing those with a codec."""
    stored = [_stored(id_, codec, raw) for id_, codec, raw in found]
    return lay_out(kind, record_count, stored, producer_id, producer_epoch, first_sequence)


def _stored(id_: int, codec: int, raw: Raw) -> tuple[int, int, Raw, int]:
    if not codec:
        return id_, codec, raw, _size(raw)
    block = columns.join(raw.parts, raw.size) if isinstance(raw, columns.Pieces) else raw
    return id_, codec, compress(codec, block), len(block)


def _size(raw: Raw) -> int:
    return raw.size if isinstance(raw, columns.Pieces) else len(raw)


def lay_out(
    kind: int,
    record_count: int,
    stored: Sequence[tuple[int, int, Raw, int]],
    producer_id: int,
    producer_epoch: int,
    first_sequence: int,
) -> bytearray:
    """The bytes of a batch from stored columns [(id, codec, stored bytes, raw size)]."""
    header_bytes = total = aligned(HEADER_BYTES + DIRECTORY_STRUCT.size * len(stored))
    parts: list[Buffer] = [bytes(header_bytes)]
    sizes: list[int] = []
    for _, _, data, _ in stored:
        if isinstance(data, columns.Pieces):
            parts += data.parts
            size = data.size
        else:
            parts.append(data)
            size = len(data)
        padding = -size % ALIGNMENT
        parts.append(bytes(padding))
        sizes.append(size)
        total += size + padding
    batch = columns.join(parts, total)
    view = memoryview(batch)
    position = header_bytes
    for index, (id_, codec, _, raw_bytes) in enumerate(stored):
        size = sizes[index]
        checksum = xxh3_64_intdigest(view[position : position + size])
        entry = (id_, codec, 0, position, size, raw_bytes, checksum)
        DIRECTORY_STRUCT.pack_into(batch, HEADER_BYTES + DIRECTORY_STRUCT.size * index, *entry)
        position += size + -size % ALIGNMENT
    fixed = (0, MAGIC, VERSION, kind, 0, header_bytes, len(batch), record_count, len(stored))
    HEADER_STRUCT.pack_into(
        batch, 0, *fixed, 0, 0, 0, bytes(16), 0, 0, producer_id, first_sequence, producer_epoch
    )  # fmt: skip
    CHECKSUM_STRUCT.pack_into(batch, 0, xxh3_64_intdigest(view[8:header_bytes]))
    return batch


def _same_length(name: str, given: Sequence[Any], values: Sequence[object]) -> Sequence[Any]:
    if len(given) != len(values):
        raise InvalidBatch(f"{len(given)} {name} for {len(values)} records: there must be one for each")
    return given


def _value_columns(values: Sequence[Any], codec: int, lengths: columns.Lengths | None) -> list[tuple[int, int, Raw]]:
    """Values, and a bitmap only when some are null. That none are is not looked for: a null has no length."""
    try:
        return [(ColumnId.VALUE, codec, columns.pieces(values, lengths))]
    except InvalidBatch:
        if None not in values:
            raise
    filled = columns.pieces([b"" if value is None else value for value in values])
    present = columns.encode_validity([value is not None for value in values])
    return [(ColumnId.VALUE, codec, filled), (ColumnId.VALUE_VALIDITY, Codec.NONE, present)]


def _key_columns(keys: Sequence[bytes | None], codec: int) -> list[tuple[int, int, Raw]]:
    """Keys, and a bitmap only when some record has none. No keys at all need no column."""
    missing = keys.count(None) if isinstance(keys, (list, tuple)) else sum(key is None for key in keys)
    if missing == len(keys):
        return []
    if not missing:
        return [(ColumnId.KEY, codec, columns.pieces(keys))]  # pyright: ignore[reportArgumentType]
    filled = columns.pieces([key or b"" for key in keys])
    present = columns.encode_validity([key is not None for key in keys])
    return [(ColumnId.KEY, codec, filled), (ColumnId.KEY_VALIDITY, Codec.NONE, present)]


def priority_column(priorities: Sequence[int]) -> list[tuple[int, int, Raw]]:
    """The column, or an empty list when all are 0, which is what records without the column have."""
    lowest, highest = min(priorities), max(priorities)
    if lowest < 0 or highest > PRIORITY_MAX:
        wrong = lowest if lowest < 0 else highest
        raise InvalidBatch(f"priority {wrong} is outside 0 to {PRIORITY_MAX}")
    return [(ColumnId.PRIORITY, Codec.NONE, bytes(priorities))] if highest else []


def not_before_column(times: Sequence[int] | np.ndarray) -> list[tuple[int, int, Raw]]:
    """The column, or an empty list when every record may be worked on at once."""
    return [(ColumnId.NOT_BEFORE, Codec.NONE, np.asarray(times, "<i8").tobytes())] if any(times) else []


def _header_columns(headers: Sequence[Mapping[str, bytes] | None], codec: int) -> list[tuple[int, int, Raw]]:
    """Maps, and the lists of records whose headers do not fit one."""
    found: list[tuple[int, int, Raw]] = [(ColumnId.HEADERS, codec, columns.pieces(list(map(pack_headers, headers))))]
    if HeaderList in set(map(type, headers)):
        found.append((ColumnId.HEADER_LIST, codec, columns.pieces(list(map(pack_list, headers)))))
    return found


def _shared_header_columns(headers: Mapping[str, bytes], count: int, codec: int) -> list[tuple[int, int, Raw]]:
    """The same of records that all have these headers."""
    found: list[tuple[int, int, Raw]] = [(ColumnId.HEADERS, codec, columns.repeated(pack_headers(headers), count))]
    if isinstance(headers, HeaderList):
        found.append((ColumnId.HEADER_LIST, codec, columns.repeated(pack_list(headers), count)))
    return found


_header_encoder = msgspec.msgpack.Encoder()

HEADER_DECODER = msgspec.msgpack.Decoder(dict[str, bytes])
"""Of the headers of one record."""


LIST_DECODER = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])
"""Of the headers of one record that do not fit a map."""


def pack_headers(headers: Mapping[str, bytes] | None) -> bytes:
    """The headers of one record as a column has them: a map of msgpack, nothing for none. Raises InvalidBatch."""
    if not headers:
        return b""
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidBatch(f"header {name!r} must be a str with a bytes value, not {type(value).__name__}")
    return _header_encoder.encode(headers)


def pack_list(headers: Mapping[str, bytes] | None) -> bytes:
    """The pairs of headers that do not fit a map, as a column has them: an array of msgpack; nothing for others."""
    return _header_encoder.encode(headers.pairs) if isinstance(headers, HeaderList) else b""
