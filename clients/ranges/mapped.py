"""A range read directly from mapped segments.

Contract: as `ranges.Reading`. Never reads beyond the end of the range, which is committed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from ...storage.errors import Corrupt, Diverged, Error
from ..errors import MappedUnavailable
from ..reading.mapped import CHUNK_BYTES, LogSource
from ..reading.readable import readable

if TYPE_CHECKING:
    from ...storage.batch import Batch
    from ...storage.reader import Cursor, LogReader
    from ...transport.messages import Partition
    from ..connection.steps import Pause


class MappedRange:
    """See the module."""

    def __init__(self, logs: LogSource, partition: Partition, start: int, end: int, term: int) -> None:
        """Raises MappedUnavailable, Diverged, OutOfBounds, Corrupt."""
        self._logs = logs
        self._start = start
        self._end = end
        self._error: Error | None = None  # what stands behind the batches that were returned last
        try:
            self._reader = logs.open(partition).reader
            _check_term(self._reader, start, term)
            self._last = self._last_seq(partition)
            self._cursor: Cursor = self._reader.cursor(start)
        except OSError as error:
            raise _not_mapped(partition, error) from error

    def _last_seq(self, partition: Partition) -> int | None:
        """The batch with the last record; None if it is damaged, and all others may be read."""
        if self._reader.end_offset < self._end:
            raise MappedUnavailable(
                f"partition {partition.partition} is not told to be committed to {self._end}, use delivery='auto'"
            )
        try:
            return self._reader.seq_at(self._end - 1)
        except Corrupt:
            return None

    def more(self) -> Generator[Pause, None, list[Batch]]:
        """The next batches; waits only for the disk. See Reading."""
        yield from ()
        if self._error is not None:
            raise self._error
        try:
            while (chunk := self._cursor.next(CHUNK_BYTES, self._last)) is not None:
                found, self._error = readable(chunk.batches, self._start, self._end)
                if found:
                    return found
                if self._error is not None:
                    raise self._error
        except OSError as error:  # out of descriptors, mostly
            raise MappedUnavailable(f"{self._reader.path} cannot be mapped, use delivery='auto': {error}") from error
        raise MappedUnavailable(f"{self._reader.path} ends before offset {self._end}, use delivery='auto'")

    def close(self) -> None:
        """See Reading."""
        self._reader.close()
        self._logs.close()


def _not_mapped(partition: Partition, error: OSError) -> MappedUnavailable:
    return MappedUnavailable(f"partition {partition.partition} cannot be mapped, use delivery='auto': {error}")


def _check_term(reader: LogReader, start: int, term: int) -> None:
    """Raise Diverged unless the record before `start` is of `term`, if both are known."""
    first = reader.first_offset
    if term > 0 and start > first and reader.term_at(start - 1) != term:
        valid = min(reader.end_of_term(term, first, reader.end_offset), start)
        error = Diverged(
            f"position {start} of term {term} is not in {reader.path}, whose records up to that term end at {valid}: "
            "what was read after that was lost, go on from there"
        )
        error.offset = valid
        raise error
