"""Reads the next batches of one stage, to be published.

Idea: a stage knows the runs of seqs of its batches; they are read run by run, a portion at a time.

Contract: `done` is called once, at once or from a later `warmed`, with batches of that stage in order and all their
columns verified: at most `most`, about `max_bytes` but at least one of them; `error` says why the next one cannot be
read. Memory: the batches handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ....storage.batch import Batch, Kind
from ....storage.errors import Corrupt, Error, ReadFailed
from ..ports import COLD, Cold, Port

if TYPE_CHECKING:
    from ....storage.reader import Chunk, Cursor
    from ..logs.partition import Partition


class Portion:
    """Batches that were asked for. `batches` are there once `done` was called."""

    __slots__ = ("batches", "cursor", "done", "error", "left", "max_bytes", "most", "partition", "size", "stage")

    def __init__(
        self, partition: Partition, stage: int, max_bytes: int, most: int, done: Callable[[Portion], None]
    ) -> None:
        """The unpublished batches, as committed; none when there is no such stage."""
        found = partition.committed.stages.get(stage)
        self.partition = partition
        self.stage = stage
        self.max_bytes = max_bytes
        self.most = most
        self.done = done
        self.left = [] if found is None else found.runs[::-1]  # where to read, the next run last
        self.batches: list[Batch] = []
        self.size = 0
        self.error: Error | None = None
        self.cursor: Cursor | None = None  # in the next run

    @property
    def open(self) -> bool:
        """Whether there is more to read."""
        is_full = self.size >= self.max_bytes or len(self.batches) >= self.most
        return bool(self.left) and not is_full and self.error is None


class StageReader:
    """Reads portions."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def read(self, portion: Portion) -> None:
        """Read on, and tell when all is there."""
        try:
            while portion.open:
                chunk = self._next(portion)
                if chunk is COLD:
                    return
                _take(portion, chunk)
        except Error as error:
            portion.error = error
        except OSError as error:
            portion.error = ReadFailed(f"what is staged in {portion.partition!r} cannot be read now: {error}")
        portion.cursor = None
        portion.done(portion)

    def warmed(self, portion: Portion) -> None:
        """Pages are in memory now."""
        if portion.cursor is not None:
            self.read(portion)

    def _next(self, portion: Portion) -> Chunk | Literal[Cold.COLD] | None:
        first, many = portion.left[-1]
        if portion.cursor is None:
            portion.cursor = portion.partition.reader.cursor_at(first)
        many = min(many, portion.most - len(portion.batches))
        return self._port.read(portion.cursor, portion.max_bytes - portion.size, first + many - 1, portion)


def _take(portion: Portion, chunk: Chunk | None) -> None:
    """The batches of a chunk. Raises what damage raises."""
    if chunk is None:
        first, _ = portion.left[-1]
        raise Corrupt(f"batch {first} of {portion.partition!r} is not there to be read, though it is committed")
    for batch in chunk.batches:
        batch.check()
        if (batch.kind, batch.producer_id) != (Kind.STAGED, portion.stage):
            raise Corrupt(f"batch {batch.seq} of {portion.partition!r} is none of stage {portion.stage:#x}")
        portion.batches.append(batch)
        portion.size += batch.batch_bytes
        _step(portion)


def _step(portion: Portion) -> None:
    """The next batch of the runs that are left is read."""
    first, many = portion.left.pop()
    if many > 1:
        portion.left.append((first + 1, many - 1))
    else:
        portion.cursor = None
