"""`penstock.Log`: the log inside one process, without a broker.

Idea: buffer, encode, append, publish; read through the same readers as everybody else. `write` only puts a
record into the buffer; `flush` makes one batch of it.

Contract: one writer per log, any number of readers in any process. When `append` or `flush` returns, the
records are durable (commit="durable") or safe from the death of this process (commit="written"); buffered ones
are neither. `read_only` takes no lock and sees what is committed. Not for use by several threads at once.
Errors: InvalidTopic, EndOfLog, OutOfBounds, BadChecksum, and those of writing (StorageFull, Poisoned, AlreadyOpen).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from . import forks, layout, lock
from .arrow import ARROW_COLUMNS, record_batch
from .background_sync import BackgroundSync
from .batch import Batch, encode, joined
from .buffer import RecordBuffer
from .errors import AlreadyOpen, Closed, EndOfLog, InvalidTopic
from .extents import Extents
from .files import Files
from .following import Follower, Publisher
from .log import LogOptions, LogWriter
from .playback import Playback, records_from, values_from
from .promises import Promises
from .reader import LogReader
from .record import Record
from .retention import Extent
from .ticker import Ticker
from .units import seconds, size_bytes

if TYPE_CHECKING:
    import pyarrow

Value = bytes | Sequence[bytes]
Headers = Mapping[str, bytes] | Sequence[Mapping[str, bytes] | None] | None
MAX_RECORD_BYTES = 16 << 20


class Log:
    """A log in a directory.

    Args:
        path: the directory, made when missing.
        segment_bytes: size of a segment file, as 64 << 20 or "64MB".
        commit: "durable" (every append and flush ends with a sync) or "written".
        flush_records: flush when so many records are buffered.
        flush_seconds: flush what is buffered at least so often, from a background thread; None: never by itself.
        read_only: read beside whoever writes.
        files: where it lives; MemoryFiles for one that does not outlive the process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segment_bytes: int | str = "64MB",
        commit: Literal["durable", "written"] = "durable",
        flush_records: int = 1000,
        flush_seconds: float | None = None,
        read_only: bool = False,
        max_record_bytes: int | str = MAX_RECORD_BYTES,
        files: Files | None = None,
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.read_only = read_only
        self._files = files or Files()
        self._buffer = RecordBuffer(flush_records, size_bytes(max_record_bytes))
        self._options = LogOptions(segment_bytes=size_bytes(segment_bytes), commit=commit)
        self._closing: list[Callable[[], None]] = []
        self._writer: LogWriter | None = None
        self._mapped: LogReader | None = None
        self._ticker: Ticker | None = None
        self._turn: AbstractContextManager[Any] = nullcontext()
        try:
            self._reader = self._open_to_read() if read_only else self._open_to_write()
            self._closing.append(self._reader.close)
            self._playback = Playback(self._reader)
        except BaseException:
            self._release()
            raise
        self._ahead: list[Record] = []
        self._coming: Iterator[list[Record]] = iter(())
        if flush_seconds is not None and not read_only:
            self._ticker = Ticker(seconds(flush_seconds), self.flush)
            self._turn = self._ticker.lock
        forks.tell(self)

    def _forked(self) -> None:
        """A child has neither the lock nor the threads, and what is mapped for writing is its parent's to write."""
        self._turn = self._reader = self._playback = self._buffer = cast("Any", forks.Parents(self._is_parents))
        self._ticker = self._writer = self._mapped = None
        self._closing, self._ahead, self._coming = [], [], iter(())

    def _is_parents(self) -> AlreadyOpen:
        return AlreadyOpen(f"{self.path} belongs to the process this one was forked from: open it in the child")

    # -- opening and closing ----------------------------------------------------------------------

    def _open_to_read(self) -> LogReader:
        if not layout.live_segments(self._files.listdir(self.path))[0]:
            raise InvalidTopic(f"there is no log in {self.path}")
        follower = Follower(self.path, self._files)
        self._closing.append(follower.close)
        return LogReader(self.path, self._files, limit=follower.limit)

    def _open_to_write(self) -> LogReader:
        try:
            self._files.mkdir(self.path)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise InvalidTopic(f"{self.path} cannot be a log's directory: {error.strerror}") from error
        guard = lock.lock_path(self.path, self._files)
        self._lock = lock.take(guard, self._files)
        self._closing.append(self._lock.release)
        promises = Promises(f"{os.path.dirname(guard)}/{layout.PROMISES}", self._files)
        self._closing.append(promises.close)
        writer = self._writer = LogWriter.create_or_open(
            self.path, files=self._files, log_id=os.urandom(16), promises=promises, options=self._options
        )
        self._closing.append(lambda: writer.close(clean=False))
        self._publisher = Publisher(writer, self._files)
        self._closing.append(self._publisher.close)
        self._background = BackgroundSync(writer, self._files)
        return writer.reader()

    def close(self) -> None:
        """Flush, sync and let go; may be called twice. What could not be flushed is raised after letting go."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.stop()
        try:
            writer = self._writer
            if writer is not None:
                try:
                    if len(self._buffer):
                        self.flush()
                finally:
                    self._background.finish()
                    writer.close()
        finally:
            self._writer = None
            self._release()

    def _release(self) -> None:
        while self._closing:
            self._closing.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self,
        value: Value,
        key: bytes | None = None,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = None,
    ) -> int:
        """Append one record, or a list of them as one batch, and wait as `commit` says. Returns the first offset.

        Args:
            key: of one record; `keys` has one or None for each of a list.
            headers: a mapping for one record; a list of mappings or None for a list.

        What was buffered before goes first. Raises InvalidBatch, RecordTooLarge, StorageFull, Poisoned.
        """
        with self._turn:
            offset = self._flush()
            self._buffer.add(value, key, keys, headers)
            try:
                self._flush()
            except BaseException:
                self._buffer.clear()
                raise
        return offset

    def write(
        self,
        value: Value,
        key: bytes | None = None,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = None,
    ) -> None:
        """Buffer one record or a list of them; arguments as for `append`. Flushes when the buffer is full."""
        if self._ticker is None:
            if self._buffer.add(value, key, keys, headers):
                self._flush()
            return
        with self._turn:
            if self._buffer.add(value, key, keys, headers):
                self._flush()

    def flush(self) -> int:
        """Append what is buffered and wait as `commit` says; returns the end offset.

        When it fails, the records stay buffered and the next flush tries again (not after Poisoned).
        """
        with self._turn:
            return self._flush()

    def _flush(self) -> int:
        writer = self._writable()
        if self._ticker is not None:
            self._ticker.check()
        if len(self._buffer):
            batches = self._buffer.batches(encode)
            self._background.collect()
            writer.append(batches, time.time_ns() // 1000)
            self._buffer.clear()
            if self._options.commit == "durable":
                writer.sync()
            self._publisher.publish()
        return writer.end_offset

    def sync(self) -> int:
        """Flush, and make everything durable whatever `commit` is; returns the end offset."""
        with self._turn:
            self._flush()
            writer = self._writable()
            writer.sync()
            self._publisher.publish()
            return writer.end_offset

    def _writable(self) -> LogWriter:
        if self._writer is None:
            raise Closed(f"{self.path} is {'open for reading only' if self.read_only else 'closed'}")
        return self._writer

    # -- reading ----------------------------------------------------------------------------------

    @property
    def first_offset(self) -> int:
        """The first offset that can be read."""
        return self._reader.first_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last committed record."""
        return self._reader.end_offset

    @property
    def position(self) -> int:
        """Offset of the record that iteration hands out next."""
        return self._playback.position

    def read(self, offset: int, max_records: int = 1000) -> list[Record]:
        """Committed records from `offset` on, at least one.

        Raises EndOfLog at the end, OutOfBounds outside the log, BadChecksum or Corrupt in a damaged place.
        """
        ahead = self._ahead
        if not ahead or ahead[0].offset != offset:
            reading = Playback(self._reader)
            reading.seek(offset)
            ahead, self._coming = [], reading.lists(_records_of)
        while len(ahead) < max_records and (more := next(self._coming, None)) is not None:
            ahead = ahead + more if ahead else more
        self._ahead = ahead[max_records:]
        if not ahead:
            raise EndOfLog(f"{self.path} ends at offset {offset}; nothing is committed there yet")
        return ahead[:max_records]

    def seek(self, where: int | datetime | Literal["earliest", "latest"]) -> int:
        """Move iteration to an offset, to the first record appended at a time or later, or to either end.

        Returns the offset. Raises OutOfBounds.
        """
        if isinstance(where, datetime):
            offset = self._reader.offset_at(round(where.timestamp() * 1e6))
        elif isinstance(where, str):
            if where not in ("earliest", "latest"):
                raise ValueError(f"cannot seek to {where!r}: give an offset, a datetime, 'earliest' or 'latest'")
            offset = self._reader.first_offset if where == "earliest" else self._reader.end_offset
        else:
            offset = where
        self._playback.seek(offset)
        return offset

    def __iter__(self) -> Iterator[Record]:
        """Records from the position to the committed end; iterating again goes on from there."""
        return self._playback.items(records_from)

    def values(self) -> Iterator[bytes]:
        """As iteration, only the values: the fastest way to plain bytes."""
        return self._playback.items(values_from)

    def batches(self, form: Literal["records", "values", "arrow"] = "records") -> Iterator[Any]:
        """From the position to the end, a batch at a time: lists of Record or bytes, or pyarrow.RecordBatch."""
        forms = {"records": _records_of, "values": _values_of, "arrow": _arrow_of}
        if form not in forms:
            raise ValueError(f"{form!r} is no form of a batch: use one of {', '.join(forms)}")
        if form == "arrow" and self._mapped is None:
            self._mapped = LogReader(self.path, self._files, mapped=True, limit=self._reader.limit)
            self._closing.append(self._mapped.close)
        return self._playback.lists(forms[form], self._mapped if form == "arrow" else None)

    def segments(self) -> list[Extent]:
        """The segments and what lies in each, oldest first."""
        reader = self._reader
        end = reader.limit()
        row = reader.row(end) if end >= reader.names[0].base_seq else None
        time_us = row.append_time_us if row is not None else 0
        return Extents(reader).all(end, reader.end_offset_at(end), time_us)


def _records_of(batch: Batch, start: int) -> list[Record]:
    return joined(records_from(batch, start))


def _values_of(batch: Batch, start: int) -> list[bytes]:
    return joined(values_from(batch, start))


def _arrow_of(batch: Batch, start: int) -> pyarrow.RecordBatch:
    found = record_batch(batch, ARROW_COLUMNS)
    return found.slice(start - batch.base_offset) if start > batch.base_offset else found
