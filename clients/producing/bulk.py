"""Divides many records into pieces: one batch for one partition each.

Idea: a piece is about TARGET_BYTES of values and keys, cut by counting instead of adding up: the size of the last
piece says how many records the next one takes. Keys split a larger block over the partitions, so that every piece is
worth sending; a partition's share beyond that is cut again. arrow_pieces.py cuts Arrow data.

Contract: records keep their order within a partition. Pieces come out lazily; nothing is encoded before the sender's
session gives the sequence.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ...storage import columns
from ...storage.batch import encode
from ...storage.errors import InvalidBatch
from ...transport.producer_session import TARGET_BYTES
from ..errors import InvalidArgument
from .arrow_data import is_arrow
from .arrow_pieces import BLOCK_BYTES_MAX, arrow_pieces, stream_pieces
from .pieces import Piece, Shape, check_key, check_record, extras_bytes
from .queued import uniform_columns

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...storage.columns import Lengths
    from ..serializing import Dumping

Take = Callable[[int], Sequence[bytes | None]]
"""Gives the next values, about as many as asked for; none at their end."""

FIRST_COUNT = 256
COUNT_MAX = 1 << 16


def pieces(values: Any, keys: Any, shape: Shape, partition: int | None, dump: Dumping | None = None) -> Iterator[Piece]:
    """Cut `values` with their `keys`: an iterable of bytes, Arrow data with columns, or an iterable of such.

    Without keys also an iterable of values end to end, each of which is about as large as a batch should be.

    `dump`: makes bytes of each value, which Arrow data has already.
    """
    if isinstance(values, (bytes, bytearray, memoryview, str)):
        raise InvalidArgument(f"values={reprlib.repr(values)} is one record: send_many takes many, and send one")
    if dump is not None:
        if is_arrow(values):
            raise InvalidArgument("Arrow data is sent as it is: use a producer without value= for it")
        values = map(dump, _iterable("values", values))
    if is_arrow(values) and not hasattr(values, "read_next_batch"):
        return arrow_pieces(values, keys, shape, partition)
    first, values = _peeked(_iterable("values", values))
    if is_arrow(first) and hasattr(first, "columns"):
        return stream_pieces(values, keys, shape, partition)
    if isinstance(first, columns.EndToEnd) and keys is None:
        runs = iter(values)
        return _plain_pieces(lambda _: next(runs, ()), shape, partition)
    if keys is None:
        return _plain_pieces(_taker(values), shape, partition)
    return _keyed_pieces(values, _iterable("keys", keys), shape, partition)


def _iterable(name: str, given: Any) -> Any:
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, bytearray)):
        raise InvalidArgument(f"{name}={reprlib.repr(given)} is no list or other iterable of bytes, and no Arrow data")
    return given


def _peeked(values: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first value (None without one), and all values."""
    if isinstance(values, (list, tuple)):
        return values[0] if values else None, values
    source = iter(values)
    for first in source:
        return first, chain((first,), source)
    return None, ()


# -- lists ----------------------------------------------------------------------------------------------


def _plain_pieces(take: Take, shape: Shape, partition: int | None) -> Iterator[Piece]:
    beside = 0 if shape.headers is None else extras_bytes(None, shape.headers, shape)
    for block, size, lengths in _blocks(take, TARGET_BYTES, beside):
        yield _piece(partition, block, None, size, shape, lengths)


def _keyed_pieces(
    values: Iterable[bytes | None], keys: Iterable[bytes | None], shape: Shape, partition: int | None
) -> Iterator[Piece]:
    rest = iter(keys)
    wanted = min(TARGET_BYTES * (1 if partition is not None else shape.partitions), BLOCK_BYTES_MAX)
    for block, _, _ in _blocks(_taker(values), wanted):
        chosen = list(islice(rest, len(block)))
        if len(chosen) < len(block):
            raise InvalidArgument(
                f"{len(block) - len(chosen)} records or more have no key: give one (or None) for each"
            )
        for number, records, their_keys in _split(block, chosen, shape, partition):
            for part in _halved(records, their_keys, _size(records, their_keys), TARGET_BYTES):
                yield _piece(number, *part, shape)
    if next(rest, rest) is not rest:
        raise InvalidArgument("there are more keys than records")


def _split(
    values: Sequence[Any], keys: list[bytes | None], shape: Shape, partition: int | None
) -> Iterator[tuple[int | None, Sequence[Any], list[bytes | None] | None]]:
    """Records by partition; records without a key may go to any."""
    if partition is not None or shape.partitions == 1:
        yield partition or 0, values, keys
        return
    keyed = [index for index, key in enumerate(keys) if key is not None] if None in keys else range(len(keys))
    if len(keyed) < len(keys):
        yield None, [value for value, key in zip(values, keys, strict=True) if key is None], None
    found = [key for key in keys if key is not None]
    try:
        split = shape.partitioner.split(found, shape.partitions)
    except TypeError as error:
        raise InvalidBatch(f"keys must be bytes ({error}); text needs .encode()") from None
    for number, positions in split:
        taken = positions.tolist() if len(keyed) == len(keys) else [keyed[at] for at in positions.tolist()]
        yield number, _take(values, taken), list(_take(keys, taken))


def _take(values: Sequence[Any], positions: list[int]) -> Sequence[Any]:
    if len(positions) == 1:
        return [values[positions[0]]]
    return itemgetter(*positions)(values)


def _blocks(take: Take, wanted: int, beside: int = 0) -> Iterator[tuple[Sequence[bytes | None], int, Lengths | None]]:
    """Runs of records of about `wanted` bytes, each with its size, and those of its values where they were counted.

    `beside`: bytes that stand beside each value.
    """
    count = FIRST_COUNT
    while block := take(count):
        size, lengths = _measured(block)
        size += beside * len(block)
        count = min(max(wanted * len(block) // max(size, len(block)), 1), COUNT_MAX)
        for part, _, part_size in _halved(block, None, size, wanted):
            yield part, part_size, lengths if part is block else None


def _taker(values: Iterable[bytes | None]) -> Take:
    """A function that gives the next values, as many as asked for while there are. Slices cost half of an iterator."""
    if not isinstance(values, (list, tuple)):
        source = iter(values)
        return lambda count: list(islice(source, count))
    at = 0

    def take(count: int) -> Sequence[bytes | None]:
        nonlocal at
        block = values[at : at + count]
        at += count
        return block

    return take


def _halved(
    values: Sequence[bytes | None], keys: list[bytes | None] | None, size: int, wanted: int
) -> Iterator[tuple[Sequence[bytes | None], list[bytes | None] | None, int]]:
    """Split records in halves where they turned out much larger than wanted."""
    if size <= 2 * wanted or len(values) == 1:
        yield values, keys, size
        return
    middle = len(values) // 2
    halves = (values[:middle], keys and keys[:middle]), (values[middle:], keys and keys[middle:])
    first = _size(*halves[0])
    yield from _halved(*halves[0], first, wanted)
    yield from _halved(*halves[1], size - first, wanted)


def _size(values: Sequence[bytes | None], keys: list[bytes | None] | None) -> int:
    try:
        return _values_size(values) + (0 if keys is None else sum(map(len, filter(None, keys))))
    except TypeError as error:
        raise InvalidBatch(f"keys must be bytes ({error}); text needs .encode()") from None


def _measured(values: Sequence[bytes | None]) -> tuple[int, Lengths | None]:
    """The bytes of values, and of each of them where none is null: counted once, for the encoder too."""
    try:
        lengths = columns.lengths(values)  # pyright: ignore[reportArgumentType]
    except InvalidBatch:
        return _values_size(values), None
    return columns.total(lengths), lengths


def _values_size(values: Sequence[bytes | None]) -> int:
    """The bytes of values, of which some may be null. Raises InvalidBatch."""
    try:
        return sum(map(len, values))  # pyright: ignore[reportArgumentType]
    except TypeError:
        try:
            return sum(len(value) for value in values if value is not None)
        except TypeError:
            raise InvalidBatch("values must be bytes; something without a length is among them") from None


def _piece(
    partition: int | None,
    values: Sequence[bytes | None],
    keys: list[bytes | None] | None,
    size: int,
    shape: Shape,
    lengths: Lengths | None = None,
) -> Piece:
    if size > shape.max_record_bytes:
        check_record(max(map(len, filter(None, values)), default=0), shape)
        if keys is not None:
            check_key(max(map(len, filter(None, keys)), default=0), shape)

    def make(producer_id: int, epoch: int, sequence: int) -> Buffer:
        return encode(
            values,
            keys=keys,
            codec=shape.codec,
            kind=shape.kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            first_sequence=sequence,
            lengths=lengths,
            headers=shape.headers,
            **uniform_columns(shape.queued, len(values)),
        )

    return Piece(partition, len(values), size, make)
