"""Many batches as one Arrow batch: for who is handed small ones and hands on large ones.

Idea: what an Arrow batch costs whoever takes it does not depend on its size, so batches below some thousand rows are
put together; each column is copied once, and a large batch not at all.

Contract: as arrow.py: offsets are validated before Arrow may follow them, here all of them at once. Pure but for that
import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import columns
from .arrow import ARROW_COLUMNS, Kit, kit, nulls, record_batch
from .batch import Batch, ColumnId
from .errors import BatchTooLarge, InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow as pa


def grouped(found: Iterable[Batch], rows: int, most_bytes: int) -> Iterator[list[Batch]]:
    """Batches in order, so many together that they have `rows` rows, or more than `most_bytes` as stored.

    One with half of either is not put together with any other, because that would copy it.
    """
    group: list[Batch] = []
    held_rows = held_bytes = 0
    for batch in found:
        large = 2 * batch.record_count >= rows or 2 * batch.batch_bytes >= most_bytes
        if group and (large or held_rows + batch.record_count > rows or held_bytes + batch.batch_bytes > most_bytes):
            yield group
            group, held_rows, held_bytes = [], 0, 0
        if large:
            yield [batch]
            continue
        group.append(batch)
        held_rows += batch.record_count
        held_bytes += batch.batch_bytes
    if group:
        yield group


def gather(
    found: Sequence[Batch], names: Sequence[str] = ARROW_COLUMNS, schema: pa.Schema | None = None
) -> pa.RecordBatch:
    """The records of batches, in order, as one Arrow batch of the named columns (see `Batch.arrow`).

    Raises InvalidBatch, MissingLibrary, and BatchTooLarge when a column is too long for one.
    """
    if len(found) == 1:
        return record_batch(found[0], names, schema)
    arrow = kit()
    arrays = [_GATHERED[name](found, arrow) for name in names]
    return arrow.batch(arrays, list(names)) if schema is None else arrow.batch(arrays, schema=schema)


def gathered(found: Sequence[Batch], name: str) -> pa.Array:
    """One column of what `gather` gives."""
    return gather(found, [name]).column(0)


def _variable(found: Sequence[Batch], arrow: Kit, id_: int, validity: int | None) -> pa.Array:
    """A variable column; null where a batch does not have it, and where it says so."""
    counts = np.array([batch.record_count for batch in found])
    bounds: list[np.ndarray] = []
    data: list[Buffer] = []
    missing = 0
    for batch, count in zip(found, counts.tolist(), strict=True):
        column = batch.column(id_)
        if column is None:
            bounds.append(np.zeros(count + 1, "<i4"))
            data.append(b"")
            missing += 1
        else:
            bounds.append(columns.offsets_of(column, count))
            data.append(memoryview(column)[columns.data_start(count) :])
    if missing == len(found):
        return nulls(int(counts.sum()))
    offsets = _offsets(bounds, data, counts)
    present = None if validity is None and not missing else _validity(found, id_, validity)
    return arrow.array(arrow.binary, len(offsets) - 1, [present, arrow.buffer(offsets), arrow.buffer(b"".join(data))])


def _offsets(bounds: list[np.ndarray], data: list[Buffer], counts: np.ndarray) -> np.ndarray:
    """All offsets as those of one column. Raises InvalidBatch unless those of each begin at 0, rise, and reach its end.

    They do when the whole never falls: where one column ends the next one begins.
    """
    sizes = np.array(list(map(len, data)), np.int64)
    total = int(sizes.sum())
    if total > columns.COLUMN_BYTES_MAX:
        raise BatchTooLarge(f"{total} bytes are too many for one column of Arrow: gather fewer batches")
    lasts, firsts = [each.item(-1) for each in bounds], [each.item(0) for each in bounds]
    if lasts != sizes.tolist() or any(firsts):
        raise InvalidBatch("column offsets do not run from the first byte to the last one")
    offsets = np.zeros(int(counts.sum()) + 1, "<i4")
    np.concatenate([each[1:] for each in bounds], out=offsets[1:])
    offsets[1:] += np.repeat(np.cumsum(sizes) - sizes, counts).astype("<i4")
    if np.count_nonzero(offsets[1:] < offsets[:-1]):
        raise InvalidBatch("column offsets fall")
    return offsets


def _validity(found: Sequence[Batch], id_: int, validity: int | None) -> pa.Buffer | None:
    """Which records have a value; None when all have."""
    present = np.concatenate([_present(batch, id_, validity) for batch in found])
    return None if present.all() else kit().buffer(np.packbits(present, bitorder="little"))


def _present(batch: Batch, id_: int, validity: int | None) -> np.ndarray:
    bitmap = None if validity is None else batch.column(validity)
    if bitmap is not None:
        return columns.decode_validity(bitmap, batch.record_count)
    return np.full(batch.record_count, any(column.id == id_ for column in batch.directory()))


def _value(found: Sequence[Batch], arrow: Kit) -> pa.Array:
    for batch in found:
        if not any(column.id == ColumnId.VALUE for column in batch.directory()):
            raise InvalidBatch(f"batch {batch.seq} holds no values")
    return _variable(found, arrow, ColumnId.VALUE, None)


def _key(found: Sequence[Batch], arrow: Kit) -> pa.Array:
    return _variable(found, arrow, ColumnId.KEY, ColumnId.KEY_VALIDITY)


def _headers(found: Sequence[Batch], arrow: Kit) -> pa.Array:
    return _variable(found, arrow, ColumnId.HEADERS, None)


def _offset(found: Sequence[Batch], arrow: Kit) -> pa.Array:
    offsets = np.concatenate([batch.offsets() for batch in found])
    return arrow.array(arrow.int64, len(offsets), [None, arrow.buffer(offsets)])


def _timestamp(found: Sequence[Batch], arrow: Kit) -> pa.Array:
    counts = [batch.record_count for batch in found]
    told = [batch.event_times() for batch in found]
    times = np.repeat(np.array([batch.append_time_us for batch in found], np.int64), counts)
    at = 0
    for count, some in zip(counts, told, strict=True):
        if some is not None:
            times[at : at + count] = some
        at += count
    return arrow.array(arrow.time, len(times), [None, arrow.buffer(times)])


_GATHERED: dict[str, Callable[[Sequence[Batch], Kit], pa.Array]] = {
    "value": _value,
    "key": _key,
    "headers": _headers,
    "offset": _offset,
    "timestamp": _timestamp,
}
