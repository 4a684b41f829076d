"""Plays a log's records back in order, from a position that can be read and set.

Idea: batches are decoded a run at a time, small enough to stay in the processor's cache until it is used, and the
caller gets C iterators over these lists; the position is the end of the last list less the items its iterator still
holds, so following it costs nothing per record.

Contract: every column is verified before a record of its batch is handed out. Records only: state batches are skipped,
batches of an unknown kind stop the reader. Not for use by several threads at once. Must not know: the writer, how far
may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from operator import length_hint
from typing import Any, TypeVar

from .accepted import passed
from .batch import Batch, Kind, Value, joined
from .cursor import Chunk, Cursor
from .errors import AcceptedLoss, BadChecksum, Corrupt, InvalidBatch, NewerFormat
from .reader import LogReader
from .record import Record, record_runs

Item = TypeVar("Item")
Decoded = TypeVar("Decoded")
_KNOWN_KINDS = frozenset(Kind)
_NOTHING_GIVEN: Iterator[object] = iter(())

Runs = Callable[[Batch, int], Iterator[list[Item]]]
"""The records of a batch from an offset on, a list at a time."""


def values_from(batch: Batch, start: int) -> Iterator[list[Value]]:
    """The values of `batch` from offset `start` on."""
    return batch.value_runs(max(start - batch.base_offset, 0))


def records_from(batch: Batch, start: int) -> Iterator[list[Record]]:
    """The records of `batch` from offset `start` on."""
    return record_runs(batch, start)


def records_of(batch: Batch, start: int) -> list[Record]:
    """The same, as one list."""
    return joined(records_from(batch, start))


def values_of(batch: Batch, start: int) -> list[Value]:
    """The values of `batch` from offset `start` on, as one list."""
    return joined(values_from(batch, start))


class Playback:
    """A position in a log, and iterators that move it. The reader is used only with `reading` held."""

    def __init__(self, reader: LogReader, reading: AbstractContextManager[Any]) -> None:
        self._reading = reading
        self._reader = reader
        with reading:
            self._at = reader.first_offset, _NOTHING_GIVEN  # where the last list ends, and what is left of it

    @property
    def position(self) -> int:
        """Offset of the next record."""
        end, given = self._at
        return end - length_hint(given)

    def seek(self, offset: int, reader: LogReader | None = None) -> Cursor:
        """Go to `offset`, or behind it where its loss was accepted. Raises OutOfBounds, Corrupt."""
        while True:
            try:
                with self._reading:
                    cursor = (reader or self._reader).cursor(offset)
                self._at = offset, _NOTHING_GIVEN
                return cursor
            except AcceptedLoss as loss:
                offset = passed(loss)

    def items(self, decode: Runs[Item]) -> Iterator[Item]:
        """The result of `decode(batch, start)` for every batch from the position to the end."""
        return chain.from_iterable(self._given_runs(decode))

    def _given_runs(self, decode: Runs[Item]) -> Iterator[Iterator[Item]]:
        for batch, start in self._batches():
            yield from self._runs_of(batch, start, decode)

    def endless(self, decode: Runs[Item]) -> Iterator[Iterator[Item] | None]:
        """The same, a run at a time, and None at the end: asked again, it goes on from there."""
        for found in self._endless_batches():
            if found is None:
                yield None
            else:
                yield from self._runs_of(*found, decode)

    def _runs_of(self, batch: Batch, end: int, decode: Runs[Item]) -> Iterator[Iterator[Item]]:
        try:
            for run in decode(batch, end):
                end, given = end + len(run), iter(run)
                self._at = end, given
                yield given
        except InvalidBatch as error:
            raise self._damaged(batch, error) from error

    def lists(self, decode: Callable[[Batch, int], Decoded], reader: LogReader | None = None) -> Iterator[Decoded]:
        """As `items`, a batch at a time; the position moves past a batch when it is handed out.

        Args:
            reader: another reader of the same log to read through.
        """
        for batch, start in self._batches(reader):
            try:
                found = decode(batch, start)
            except InvalidBatch as error:
                raise self._damaged(batch, error) from error
            self._at = batch.end_offset, _NOTHING_GIVEN
            yield found

    def _batches(self, reader: LogReader | None = None) -> Iterator[tuple[Batch, int]]:
        """Checked batches of records, from the position to the end, each with the first offset wanted of it."""
        for found in self._endless_batches(reader):
            if found is None:
                return
            yield found

    def _endless_batches(self, reader: LogReader | None = None) -> Iterator[tuple[Batch, int] | None]:
        """The same, and None at the end: asked again, it goes on from there."""
        cursor = self.seek(self.position, reader)
        while True:
            start = cursor.offset
            try:
                chunk = self._next(cursor)
            except AcceptedLoss as loss:
                cursor = self.seek(passed(loss), reader)
                continue
            if chunk is None:
                yield None
                continue
            for batch in chunk.batches:
                if batch.kind == Kind.RECORDS and batch.end_offset > start:
                    self._check(batch)
                    yield batch, max(start, batch.base_offset)
                elif batch.kind not in _KNOWN_KINDS:
                    where = f"batch {batch.seq} of {self._reader.path}"
                    raise NewerFormat(f"{where} is of kind {batch.kind}, which this penstock does not know; upgrade it")

    def _next(self, cursor: Cursor) -> Chunk | None:
        with self._reading:
            self._reader.check_first(cursor.offset)
            return cursor.next()

    def _check(self, batch: Batch) -> None:
        try:
            batch.check()
        except InvalidBatch as error:
            raise self._damaged(batch, error) from error

    def _damaged(self, batch: Batch, error: InvalidBatch) -> Corrupt:
        with self._reading:
            place = self._reader.cursor(batch.base_offset)
            path = self._reader.segment_of(batch.seq).ref.path
            found = self._reader.corrupt(path, place.position, error.message, batch.base_offset, batch.end_offset)
        if isinstance(error, BadChecksum):
            return BadChecksum(found.message, path=path, position=place.position, next_offset=batch.end_offset)
        return found
