"""Picking: reads single records from a log by offset, without waiting for the disk.

Idea: dead letters, stragglers and outbox records may be anywhere in the log. Each is taken out of the batch that holds
it: the one it was appended in, or the KEPT batch it was carried forward to.

Contract: `done` is called once, at once or from a later `warmed`, with KEPT batches in order of offsets. Unreadable
records are left out; `missing` says why good ones are: a codec that is not installed, a disk that did not answer.
Reads stop at `max_bytes` of records, after at least one. Memory: the records taken out, and one chunk. Must not know
its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from .....storage.batch import Batch, Kind, parse
from .....storage.errors import Error, MissingCodec, OutOfBounds, ReadFailed
from .....storage.header import VARIABLE
from .....storage.kept import keep
from ...ports import COLD, Cold, Port

if TYPE_CHECKING:
    from .....storage.reader import Chunk, Cursor
    from ...logs.partition import Partition

CHUNK_BYTES = 64 << 10
"""Bytes read at once: dead letters seldom lie close together."""


class Pick:
    """Offsets asked for, ascending, and what was found so far. `next` is the place of the next one in `offsets`."""

    __slots__ = (
        "batches", "cursor", "done", "kept_seq", "max_bytes", "missing", "next", "offsets", "partition", "size",
    )  # fmt: skip

    def __init__(
        self, partition: Partition, offsets: Sequence[int], max_bytes: int, done: Callable[[Pick], None]
    ) -> None:
        self.partition = partition
        self.offsets = np.array(offsets, np.int64)
        self.max_bytes = max_bytes
        self.done = done
        self.next = 0
        self.size = 0
        self.batches: list[Batch] = []
        self.missing: MissingCodec | ReadFailed | None = None  # why good records were left out
        self.cursor: Cursor | None = None  # where the next offset stands
        self.kept_seq = 0  # of the batch it was carried forward to

    @property
    def open(self) -> bool:
        """Whether there is more to read."""
        return self.next < len(self.offsets) and (not self.size or self.size < self.max_bytes)


class Picker:
    """Reads for picks."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def pick(self, pick: Pick) -> None:
        """Read on, and call `done` when complete."""
        while pick.open:
            before = pick.next
            try:
                chunk = self._read(pick)
                if chunk is COLD:
                    return
                if chunk is not None:
                    self._take(pick, chunk)
            except (MissingCodec, ReadFailed) as error:
                pick.missing = error
            except OSError as error:
                pick.missing = ReadFailed.of(pick.partition, error)
            except Error as error:
                if not isinstance(error, OutOfBounds):
                    pick.partition.damaged = True  # the others can still be had
            pick.next = max(pick.next, before + 1)
            pick.cursor = None
        pick.done(pick)

    def warmed(self, pick: Pick) -> None:
        """Pages are in memory now."""
        if pick.cursor is not None:
            self.pick(pick)

    def _read(self, pick: Pick) -> Chunk | Literal[Cold.COLD] | None:
        partition = pick.partition
        if pick.cursor is None:
            offset = int(pick.offsets[pick.next])
            kept = pick.kept_seq = partition.committed.kept.seq(offset)
            pick.cursor = partition.reader.cursor_after(kept - 1) if kept else partition.cursor(offset)
        return self._port.read(pick.cursor, CHUNK_BYTES, pick.kept_seq or partition.seq, pick)

    def _take(self, pick: Pick, chunk: Chunk) -> None:
        """Take the wanted records out of a chunk. Raises what damage raises."""
        kind = Kind.KEPT if pick.kept_seq else Kind.RECORDS
        for batch in chunk.batches:
            if pick.open and batch.kind == kind:
                self._take_from(pick, batch)

    def _take_from(self, pick: Pick, batch: Batch) -> None:
        rows = _rows(batch, pick.offsets[pick.next :])
        if not len(rows):
            return
        try:
            batch.check()
            sizes = np.cumsum(_sizes(batch)[rows])
            rows = rows[: 1 + int(np.searchsorted(sizes, pick.max_bytes - pick.size))]
            pick.batches.append(parse(keep(batch, rows)))
            pick.size += int(sizes[len(rows) - 1])
        finally:
            pick.next += len(rows)  # nor are those of a damaged batch looked at again


def _rows(batch: Batch, wanted: np.ndarray) -> np.ndarray:
    """Which records of a batch are the first ones wanted; none when it does not have the first one."""
    offsets = batch.offsets()
    places = np.searchsorted(offsets, wanted)
    here = (places < len(offsets)) & (offsets[np.minimum(places, len(offsets) - 1)] == wanted)
    return places if here.all() else places[: int(np.argmin(here))]


def _sizes(batch: Batch) -> np.ndarray:
    """Bytes of each record in the columns that may be large."""
    found = np.zeros(batch.record_count, np.int64)
    for column in batch.directory():
        if column.id in VARIABLE:
            found += batch.lengths(column.id)
    return found
