"""Builds KEPT batches: records taken out of their batches, under their own offsets.

Idea: a lease may cover only some records of a batch, and a few stragglers must not hold back a whole segment. Both
become a batch with the offset and append time of each record in columns, beside all other columns of the records.

Contract: source batches are verified first, so that damage never gets a fresh checksum. Keys, headers, priorities and
times are copied; a record without an event time gets its append time as one, too. Effects and the producer are not. A
run of records costs a slice per column and one copy of its bytes. Pure: batches in, bytes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import columns
from .batch import Batch
from .codecs import Codec
from .encoding import assemble
from .errors import InvalidBatch
from .header import ColumnId, Kind, Stamp, stamp

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    Found = list[tuple[int, int, Buffer | columns.Pieces]]

Runs = Sequence[tuple[int, int]]
"""Records of one batch: number of the first, and how many, in order."""

Rows = Runs | np.ndarray
"""Runs, or the numbers of single records, ascending."""

Taken = Sequence[tuple[Batch, Runs]]


def keep(batch: Batch, rows: Rows) -> bytearray:
    """Keep the chosen records of one batch. Raises as `keep_all` does."""
    return keep_all([(batch, rows)])


def cut(batch: Batch, first: int, count: int) -> bytearray:
    """Records that follow each other, from number `first` on, of a batch of kind RECORDS: another such batch.

    Its header has the place of the first one: with neither offsets nor times to keep, it is the cheaper one to make
    and to read. Raises InvalidBatch, BadChecksum.
    """
    if not batch.checked:
        batch.check()
    column = _variable_of(batch, ColumnId.VALUE)
    if column is None:
        raise InvalidBatch(f"batch {batch.seq} has records without values")
    values = columns.part(column, batch.record_count, first, count)
    found: Found = [(ColumnId.VALUE, Codec.NONE, values)]
    if batch.column_count > 1:
        taken = [(batch, [(first, count)])]
        found += _beside(taken, _ids(taken))
    return _placed(assemble(Kind.RECORDS, count, found), batch, batch.base_offset + first)


def keep_all(parts: Sequence[tuple[Batch, Rows]]) -> bytearray:
    """The records of all parts as one batch; their offsets must ascend.

    Its header has the offset, term, time and log of the first one. Raises InvalidBatch, BadChecksum.
    """
    taken = [(batch, _runs(rows)) for batch, rows in parts]
    count = sum(many for _, runs in taken for _, many in runs)
    if not count:
        raise InvalidBatch("a batch of kept records needs at least one record")
    for batch, _ in taken:
        if not batch.checked:
            batch.check()
    offsets = _fixed(taken, Batch.offsets)
    columns.check_ascending(offsets)
    ids = _ids(taken) | {ColumnId.EVENT_TIME}
    found: Found = [(ColumnId.VALUE, Codec.NONE, _variable(taken, ColumnId.VALUE)), *_beside(taken, ids)]
    found.append((ColumnId.OFFSET, Codec.NONE, offsets.tobytes()))
    found.append((ColumnId.APPEND_TIME, Codec.NONE, _fixed(taken, Batch.append_times).tobytes()))
    return _placed(assemble(Kind.KEPT, count, found), taken[0][0], offsets.item(0))


def runs_of(batch: Batch, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs of records that `batch` has of some ranges of offsets (first, how many), in order."""
    if batch.kind == Kind.KEPT:
        bounds = np.array([(first, first + many) for first, many in ranges], np.int64)
        found = np.searchsorted(batch.offsets(), bounds).tolist()
    else:
        base, count = batch.base_offset, batch.record_count
        found = [(max(first - base, 0), min(first + many - base, count)) for first, many in ranges]
    return [(first, end - first) for first, end in found if end > first]


def _runs(rows: Rows) -> Runs:
    """Single records as runs."""
    if not isinstance(rows, np.ndarray):
        return rows
    if not len(rows):
        return []
    starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
    return list(zip(rows[starts].tolist(), np.diff(starts, append=len(rows)).tolist(), strict=True))


def _placed(batch: bytearray, source: Batch, offset: int) -> bytearray:
    """With a header that says where the first record is from, for readers of the batch outside of a log."""
    head = stamp(batch, Stamp(0, offset, source.term, source.log_id, source.append_time_us, 0))
    batch[: len(head)] = head
    return batch


def _ids(taken: Taken) -> set[int]:
    """The columns that one of the batches has."""
    return {column.id for batch, _ in taken for column in batch.directory()}


def _beside(taken: Taken, ids: set[int]) -> Found:
    """Every column of `ids` but values, offsets and effects."""
    found: Found = [
        (id_, Codec.NONE, _variable(taken, id_))
        for id_ in (ColumnId.KEY, ColumnId.HEADERS, ColumnId.HEADER_LIST, ColumnId.DEDUP)
        if id_ in ids
    ]
    if ColumnId.EVENT_TIME in ids:
        found.append((ColumnId.EVENT_TIME, Codec.NONE, _fixed(taken, _times).tobytes()))
    if ColumnId.PRIORITY in ids:
        found.append((ColumnId.PRIORITY, Codec.NONE, _fixed(taken, _priorities).tobytes()))
    if ColumnId.NOT_BEFORE in ids:
        found.append((ColumnId.NOT_BEFORE, Codec.NONE, _fixed(taken, _not_before).tobytes()))
    for id_, of in ((ColumnId.KEY_VALIDITY, ColumnId.KEY), (ColumnId.VALUE_VALIDITY, ColumnId.VALUE)):
        present = _fixed(taken, lambda batch, id_=id_, of=of: _present(batch, id_, of)) if of in ids else None
        if present is not None and not present.all():
            found.append((id_, Codec.NONE, np.packbits(present, bitorder="little").tobytes()))
    return found


def _fixed(taken: Taken, of: Callable[[Batch], np.ndarray]) -> np.ndarray:
    """One value per kept record, from one per record of each batch."""
    pieces: list[np.ndarray] = []
    for batch, runs in taken:
        values = of(batch)
        pieces += [values[first : first + many] for first, many in runs]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _times(batch: Batch) -> np.ndarray:
    times = batch.event_times()
    return batch.append_times() if times is None else times


def _priorities(batch: Batch) -> np.ndarray:
    levels = batch.priorities()
    return np.zeros(batch.record_count, "u1") if levels is None else levels


def _not_before(batch: Batch) -> np.ndarray:
    times = batch.not_before()
    return np.zeros(batch.record_count, "<i8") if times is None else times


def _present(batch: Batch, id_: int, of: int) -> np.ndarray:
    """A mask of the records with a value in column `of`, whose validity is column `id_`."""
    bitmap = batch.column(id_)
    if bitmap is not None:
        return columns.decode_validity(bitmap, batch.record_count)
    return np.full(batch.record_count, batch.column(of) is not None)


def _variable(taken: Taken, id_: int) -> columns.Pieces:
    """A variable column: the bytes of a run stay together; a batch without the column has empty values."""
    lengths: list[np.ndarray] = []
    data: list[Buffer] = []
    for batch, runs in taken:
        column, count = _variable_of(batch, id_), batch.record_count
        if column is None:
            lengths.append(np.zeros(sum(many for _, many in runs), "<i4"))
            continue
        bounds, view = columns.offsets_of(column, count), memoryview(column)[columns.data_start(count) :]
        for first, many in runs:
            lengths.append(np.diff(bounds[first : first + many + 1]))
            data.append(view[bounds[first] : bounds[first + many]])
    return columns.joined(np.concatenate(lengths), data)


def _variable_of(batch: Batch, id_: int) -> Buffer | None:
    """A variable column with offsets that hold; None when the batch has none."""
    column = batch.column(id_)
    if column is not None and not batch.checked:  # it was compressed, so its offsets have not been checked yet
        columns.check_variable(column, batch.record_count)
    return column
