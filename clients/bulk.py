"""Many records at once, as pieces: one batch for one partition each.

Idea: a piece is about TARGET_BYTES of records, cut by counting instead of adding up: the last piece tells how
many records the next one takes. Keys split a larger block over the partitions, so that every piece is worth
sending. Arrow arrays are sliced and never become Python objects, but for keys that choose a partition.

Contract: records keep their order within a partition. Pieces come out lazily; nothing is encoded before the
lane's session gives the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from ..storage.batch import encode
from ..storage.errors import InvalidBatch, RecordTooLarge
from ..transport.partitioner import split_by_partition
from ..transport.producer_session import TARGET_BYTES
from .errors import InvalidArgument
from .queued import PLAIN, Queued, uniform_columns

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow as pa

Encode = Callable[[int, int, int], "Buffer"]
"""Makes the batch from producer id, epoch and first sequence."""

FIRST_COUNT = 256
COUNT_MAX = 1 << 16

INT64 = 1 << 63


class Piece(msgspec.Struct):
    """One batch to be: `partition` is None where any will do."""

    partition: int | None
    count: int
    size: int
    encode: Encode


class Shape(msgspec.Struct, frozen=True):
    """What pieces are made for."""

    partitions: int
    codec: int
    max_record_bytes: int
    topic: str
    queued: Queued = PLAIN  # beside each record


def pieces(values: Any, keys: Any, shape: Shape, partition: int | None) -> Iterator[Piece]:
    """Cut `values` (an iterable of bytes, or an Arrow table, record batch or array) with their `keys`."""
    if type(values).__module__.partition(".")[0] == "pyarrow":
        return _arrow_pieces(*_arrow_columns(values, keys), shape, partition)
    if isinstance(values, (bytes, bytearray, memoryview, str)):
        raise InvalidArgument("send_many takes many records; one record goes through send")
    if keys is None:
        return _plain_pieces(values, shape, partition)
    return _keyed_pieces(values, keys, shape, partition)


# -- lists ----------------------------------------------------------------------------------------------


def _plain_pieces(values: Iterable[bytes], shape: Shape, partition: int | None) -> Iterator[Piece]:
    for block, size in _blocks(values, TARGET_BYTES):
        yield _piece(partition, block, None, size, shape)


def _keyed_pieces(
    values: Iterable[bytes], keys: Iterable[bytes | None], shape: Shape, partition: int | None
) -> Iterator[Piece]:
    rest = iter(keys)
    wanted = TARGET_BYTES * (1 if partition is not None else shape.partitions)
    for block, size in _blocks(values, wanted):
        chosen = list(islice(rest, len(block)))
        if len(chosen) < len(block):
            raise InvalidArgument(
                f"{len(block) - len(chosen)} records or more have no key: give one (or None) for each"
            )
        for number, records, their_keys in _split(block, chosen, shape.partitions, partition):
            yield _piece(number, records, their_keys, size * len(records) // len(block), shape)
    if next(rest, rest) is not rest:
        raise InvalidArgument("there are more keys than records")


def _split(
    values: Sequence[Any], keys: list[bytes | None], partitions: int, partition: int | None
) -> Iterator[tuple[int | None, Sequence[Any], list[bytes | None] | None]]:
    """Records by partition; those without a key may go anywhere."""
    if partition is not None or partitions == 1:
        yield partition or 0, values, keys
        return
    keyed = [index for index, key in enumerate(keys) if key is not None] if None in keys else range(len(keys))
    if len(keyed) < len(keys):
        yield None, [value for value, key in zip(values, keys, strict=True) if key is None], None
    found = [key for key in keys if key is not None]
    try:
        split = split_by_partition(found, partitions)
    except TypeError as error:
        raise InvalidBatch(f"keys must be bytes ({error}); text needs .encode()") from None
    for number, positions in split:
        taken = positions.tolist() if len(keyed) == len(keys) else [keyed[at] for at in positions.tolist()]
        yield number, _take(values, taken), list(_take(keys, taken))


def _take(values: Sequence[Any], positions: list[int]) -> Sequence[Any]:
    if len(positions) == 1:
        return [values[positions[0]]]
    return itemgetter(*positions)(values)


def _blocks(values: Iterable[bytes], wanted: int) -> Iterator[tuple[Sequence[bytes], int]]:
    """Runs of records of about `wanted` bytes, each with its size."""
    count = FIRST_COUNT
    source = iter(values)
    while block := list(islice(source, count)):
        try:
            size = sum(map(len, block))
        except TypeError:
            raise InvalidBatch("records must be bytes; something without a length is among them") from None
        count = min(max(wanted * len(block) // max(size, len(block)), 1), COUNT_MAX)
        yield from _halved(block, size, wanted)


def _halved(block: Sequence[bytes], size: int, wanted: int) -> Iterator[tuple[Sequence[bytes], int]]:
    """A block that came out much larger than wanted, in halves."""
    if size <= 2 * wanted or len(block) == 1:
        yield block, size
        return
    middle = len(block) // 2
    first = sum(map(len, block[:middle]))
    yield from _halved(block[:middle], first, wanted)
    yield from _halved(block[middle:], size - first, wanted)


def _piece(
    partition: int | None, values: Sequence[bytes], keys: list[bytes | None] | None, size: int, shape: Shape
) -> Piece:
    if size > shape.max_record_bytes:
        check_record(max(map(len, values)), shape)

    def make(producer_id: int, epoch: int, sequence: int) -> Buffer:
        return encode(
            values,
            keys=keys,
            codec=shape.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            first_sequence=sequence,
            **uniform_columns(shape.queued, len(values)),
        )

    return Piece(partition, len(values), size, make)


def check_record(size: int, shape: Shape) -> None:
    """Raise RecordTooLarge for a record that the topic would refuse."""
    if size > shape.max_record_bytes:
        raise RecordTooLarge(
            f"a record of {size} bytes is over max_record_bytes={shape.max_record_bytes} of topic {shape.topic}: "
            "raise the setting or split the record"
        )


def check_extras(key: Any, headers: Any, timestamp: Any) -> None:
    """Raise InvalidBatch for what cannot go with a record, before it would spoil those it is gathered with."""
    if key is not None and not isinstance(key, (bytes, bytearray, memoryview)):
        raise InvalidBatch(f"a key must be bytes, not {type(key).__name__}; text needs .encode()")
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise InvalidBatch(f"headers must be names with values as bytes, not {type(headers).__name__}")
        for name, value in headers.items():
            if not isinstance(name, str) or not isinstance(value, bytes):
                raise InvalidBatch(f"header {name!r} must be a str with a bytes value, not {type(value).__name__}")
    if timestamp is not None and not (isinstance(timestamp, int) and -INT64 <= timestamp < INT64):
        raise InvalidBatch(f"a timestamp must be whole microseconds UTC in 64 bits, not {timestamp!r}")


# -- Arrow ----------------------------------------------------------------------------------------------


def _arrow_columns(values: Any, keys: Any) -> tuple[list[pa.Array], list[pa.Array] | None]:
    """Values and keys as lists of arrays. A table has a column `value`, and may have one named `key`."""
    import pyarrow as pa

    if isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    if isinstance(values, pa.Table):
        if "value" not in values.column_names:
            raise InvalidArgument(f'a table to send needs a column "value"; this one has {values.column_names}')
        if keys is None and "key" in values.column_names:
            keys = values.column("key")
        values = values.column("value")
    if keys is not None and not isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = pa.array(keys, pa.binary())
    if keys is not None and len(keys) != len(values):
        raise InvalidArgument(f"{len(keys)} keys for {len(values)} records: give one (or null) for each")
    if keys is None:
        return _chunks(values), None
    return [_whole(values)], [_whole(keys)]


def _chunks(values: Any) -> list[pa.Array]:
    return list(values.chunks) if hasattr(values, "chunks") else [values]


def _whole(values: Any) -> pa.Array:
    import pyarrow as pa

    if not hasattr(values, "chunks"):
        return values
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _arrow_pieces(
    values: list[pa.Array], keys: list[pa.Array] | None, shape: Shape, partition: int | None
) -> Iterator[Piece]:
    if keys is not None and partition is None and shape.partitions > 1:
        yield from _arrow_by_key(values[0], keys[0], shape)
        return
    for index, array in enumerate(values):
        yield from _arrow_slices(partition, array, None if keys is None else keys[index], shape)


def _arrow_by_key(values: pa.Array, keys: pa.Array, shape: Shape) -> Iterator[Piece]:
    """Rows by partition, the sliced whole at a time so that the first pieces come early."""
    rows = _rows(values, TARGET_BYTES * shape.partitions)
    for start in range(0, len(values), rows):
        block, block_keys = values.slice(start, rows), keys.slice(start, rows)
        named = block_keys.to_pylist()
        for number, positions, _ in _split(range(len(named)), _as_bytes(named), shape.partitions, None):
            picked = list(positions)
            yield from _arrow_slices(number, block.take(picked), block_keys.take(picked), shape)


def _as_bytes(keys: list[Any]) -> list[bytes | None]:
    return [key.encode() if isinstance(key, str) else key for key in keys]


def _arrow_slices(partition: int | None, values: pa.Array, keys: pa.Array | None, shape: Shape) -> Iterator[Piece]:
    rows = _rows(values, TARGET_BYTES)
    for start in range(0, len(values), rows):
        part = values.slice(start, rows)
        yield _arrow_piece(partition, part, None if keys is None else keys.slice(start, rows), shape)


def _rows(values: pa.Array, wanted: int) -> int:
    return max(wanted * len(values) // max(values.nbytes, 1), 1)


def _arrow_piece(partition: int | None, values: pa.Array, keys: pa.Array | None, shape: Shape) -> Piece:
    import pyarrow.compute as pc

    from ..storage.arrow import encode_arrow

    size = values.nbytes
    if size > shape.max_record_bytes:
        compute: Any = pc  # its functions are made at import, where type checkers do not see them
        check_record(compute.max(compute.binary_length(values)).as_py() or 0, shape)

    def make(producer_id: int, epoch: int, sequence: int) -> Buffer:
        return encode_arrow(
            values,
            keys=keys,
            codec=shape.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            first_sequence=sequence,
            **uniform_columns(shape.queued, len(values)),
        )

    return Piece(partition, len(values), size, make)
