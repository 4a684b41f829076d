"""`penstock.Log`: the log inside one process, without a broker.

Idea: buffer, encode, append, publish; read through the same readers as the broker and its clients. `write` only puts a
record into the buffer; `flush` makes one batch of it.

Contract: one writer per log, any number of readers in any process. When `append` or `flush` returns, the
records are durable (commit="durable") or safe from the death of this process (commit="written"); buffered ones
are neither. `read_only` takes no lock and sees what is committed. Any number of threads may use a log: durable appends
of several share a sync (group_commit.py), and reads do not wait for appends. The position is one for all threads, and
an iterator is for one. A forked child must open the log itself.
Errors: InvalidTopic, ForeignDirectory, EndOfLog, OutOfBounds, BadChecksum; writing: StorageFull, Poisoned, AlreadyOpen.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

from . import forks, layout, lock
from .adopting import LOG, adopting, directory_path
from .arguments import INT_MAX, microseconds, one_of, seconds, size_bytes, some_seconds, whole
from .arrow import ARROW_COLUMNS, column_names, record_batch
from .background_sync import BackgroundSync
from .batch import Batch, encode
from .buffer import RecordBuffer
from .data_directory import check_alone, identify
from .errors import AlreadyOpen, Closed, EndOfLog, ForeignDirectory, InvalidArgument, InvalidTopic, ReadOnly
from .extents import extents_of
from .files import Files
from .follow import Following
from .following import BoardPublisher, Follower
from .futex import Futex
from .group_commit import GroupCommit
from .log import LogOptions, LogWriter
from .order import Sole
from .playback import Playback, records_from, records_of, values_from, values_of
from .promises import Promises
from .reader import LogReader
from .record import Record
from .retention import Rules, SegmentExtent
from .ticker import Ticker
from .trimming import LogTrimming, rules_of

if TYPE_CHECKING:
    import pyarrow

Value = bytes | Sequence[bytes | None] | None
Headers = Mapping[str, bytes] | Sequence[Mapping[str, bytes] | None] | None
MAX_RECORD_BYTES = 16 << 20
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 4 << 10, 4 << 30
RECORD_BYTES_MAX = 1 << 30


class Log:
    """A log in a directory.

    Args:
        path: the directory, made when missing.
        segment_bytes: size of a segment file, as 64 << 20 or "64MB".
        retention_bytes: remove the oldest whole segments while at least so much stays. None: keep everything.
        retention_seconds: remove records so old (seconds, or "7d"): those that are kept are younger than this and a
            quarter, as long as the log is written to. None: keep everything.
        commit: "durable" (every append and flush ends with a sync) or "written".
        flush_records: flush when so many records are buffered.
        flush_seconds: flush what is buffered at least so often (seconds, or "500ms"), from a background thread.
            None: never by itself.
        read_only: read beside the process that writes.
        max_record_bytes: size of the largest value. A record has 64 MB with its key and headers at most.
        files: where it lives; MemoryFiles for one that does not outlive the process.

    Raises: ValueError for a setting that is not allowed; AlreadyOpen; ForeignDirectory for a directory that is no
    log's, is of a member of a cluster, or cannot be used; InvalidTopic where there is no log to read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segment_bytes: int | str = "64MB",
        retention_bytes: int | str | None = None,
        retention_seconds: float | timedelta | str | None = None,
        commit: Literal["durable", "written"] = "durable",
        flush_records: int = 1000,
        flush_seconds: float | timedelta | str | None = None,
        read_only: bool = False,
        max_record_bytes: int | str = MAX_RECORD_BYTES,
        files: Files | None = None,
    ) -> None:
        one_of("commit", commit, ("durable", "written"))
        flush_s = None if flush_seconds is None else some_seconds(flush_seconds, "flush_seconds")
        self._options = LogOptions(
            segment_bytes=size_bytes(segment_bytes, "segment_bytes", SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            commit=commit,
        )
        self._rules = rules_of(retention_bytes, retention_seconds)
        self._limits = (
            whole("flush_records", flush_records, 1),
            size_bytes(max_record_bytes, "max_record_bytes", 1, RECORD_BYTES_MAX),
        )
        self.path = directory_path(path)
        self.read_only = read_only
        self._files = files or Files()
        self._buffer = RecordBuffer(*self._limits)
        self._durable = commit == "durable"
        self._closing: list[Callable[[], None]] = []
        self._writer: LogWriter | None = None
        self._mapped: LogReader | None = None
        self._ticker: Ticker | None = None
        self._slot: Callable[[], Futex | None] = lambda: None  # what followers sleep on
        self._turn = threading.Lock()  # of the buffer and the writer
        self._reading = threading.RLock()  # of the reader; taken last
        try:
            if (data := lock.directory_above(self.path, self._files)) is not None:
                check_alone(identify(self._files, data), data)
            self._reader = self._open_to_read() if read_only else self._open_to_write()
            self._closing.append(self._reader.close)
            self._playback = Playback(self._reader, self._reading)
        except BaseException:
            self._release()
            raise
        self._ahead: list[Record] = []
        self._coming: Iterator[list[Record]] = iter(())
        if flush_s is not None and not read_only:
            self._ticker = Ticker(flush_s, self.flush)
        forks.tell(self)

    def _forked(self) -> None:
        """A child has neither the lock nor the threads, and what is mapped for writing is its parent's to write."""
        parents = cast("Any", forks.Parents(self._is_parents))
        self._turn = self._reading = self._commit = parents
        self._writer = self._reader = self._playback = self._buffer = parents
        self._ticker = self._mapped = None
        self._closing, self._ahead, self._coming = [], [], iter(())

    def _is_parents(self) -> AlreadyOpen:
        return AlreadyOpen(f"{self.path} belongs to the process this one was forked from: open it in the child")

    # -- opening and closing ----------------------------------------------------------------------

    def _open_to_read(self) -> LogReader:
        try:
            names = self._files.listdir(self.path)
        except PermissionError as error:
            raise ForeignDirectory(f"{self.path} cannot be read: {error.strerror}") from error
        if not layout.live_segments(names)[0]:
            raise InvalidTopic(f"there is no log in {self.path}")
        follower = Follower(self.path, self._files)
        self._closing.append(follower.close)
        self._slot = follower.slot
        return LogReader(self.path, self._files, limit=follower.limit, first=follower.first)

    def _open_to_write(self) -> LogReader:
        with adopting(self.path, LOG, self._files):
            return self._open_locked()

    def _open_locked(self) -> LogReader:
        guard = lock.lock_path(self.path, self._files)
        self._lock = lock.take(guard, self._files)
        self._closing.append(self._lock.release)
        promises = Promises(f"{os.path.dirname(guard)}/{layout.PROMISES}", self._files)
        self._closing.append(promises.close)
        writer = self._writer = LogWriter.create_or_open(
            self.path, files=self._files, log_id=self._files.new_id(), order=Sole(promises), options=self._options,
            suspect=self._durable,  # what a killed process had not heard of; without it that may be gigabytes
        )  # fmt: skip
        self._closing.append(lambda: writer.close(clean=False))
        self._trimming = LogTrimming(writer, self._files, self._rules or Rules())
        publisher = self._publisher = BoardPublisher(writer, self._files)
        self._closing.append(publisher.close)
        self._slot = lambda: publisher.slot
        self._background = BackgroundSync(writer, self._files)
        self._commit = GroupCommit(writer, self._turn, lambda: publisher.publish())
        return writer.reader()

    def close(self) -> None:
        """Flush, sync and let go; may be called twice. Raises the error of a failed flush after releasing everything.

        Appends of other threads end first; later ones raise Closed.
        """
        if not self._closing:
            return
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.stop()
        try:
            if self._writer is not None:
                with self._commit.syncing, self._turn:
                    self._finish()
        finally:
            self._writer = None
            self._release()

    def _finish(self) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            try:
                self._flush(writer)
            finally:
                self._background.finish()
        finally:
            self._writer = None
            writer.close()

    def _release(self) -> None:
        with self._reading:
            slot = self._slot() if self._closing else None
            while self._closing:
                self._closing.pop()()
        if slot is not None:
            slot.wake_all()

    def __repr__(self) -> str:
        state = ", read only" if self.read_only else ""
        return f"<{type(self).__name__} {self.path}{state}{'' if self._closing else ', closed'}>"

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
        """Append one record, or a list (one batch up to 4 MB), and wait as `commit` says. Returns the first offset.

        Args:
            value: bytes of one record, or a list of them. None, also in a list, for a null.
            key: of one record; `keys` has one or None for each of a list.
            headers: a mapping for one record; a list of mappings or None for a list.

        What was buffered before goes first. Raises InvalidBatch, RecordTooLarge, StorageFull, Poisoned.
        """
        if value.__class__ is bytes and key is None and keys is None and headers is None:
            batches = self._buffer.alone(value, encode)  # pyright: ignore[reportArgumentType]
        else:
            records = RecordBuffer(*self._limits)
            records.add(value, key, keys, headers)
            batches = records.batches(encode) if len(records) else []
        offset, seq = self._in_turn(self._append, batches)
        if self._durable:
            self._commit.through(seq)
        return offset

    def _append(self, writer: LogWriter, batches: list[bytes]) -> tuple[int, int]:
        if len(self._buffer):
            self._flush(writer)
        offset = writer.end_offset
        self._put(writer, batches)
        return offset, writer.written

    def write(
        self,
        value: Value,
        key: bytes | None = None,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = None,
    ) -> None:
        """Buffer what `append` takes: `value`, `key`, `keys`, `headers`. Flushes when the buffer is full."""
        if self._writer is None:
            self._writable()
        if value.__class__ is bytes and key is None and keys is None and headers is None:
            buffer = self._buffer  # RecordBuffer.add_plain, in place
            if len(value) > buffer.max_record_bytes:  # pyright: ignore[reportArgumentType]
                raise buffer.too_large(len(value))  # pyright: ignore[reportArgumentType]
            items = buffer.items
            items.append(value)  # pyright: ignore[reportArgumentType]
            full = len(items) >= buffer.limit
        else:
            with self._turn:
                full = self._buffer.add(value, key, keys, headers)
        if full:
            self.flush()

    def flush(self) -> int:
        """Append what is buffered and wait as `commit` says; returns the end offset.

        When it fails, the records stay buffered and the next flush tries again (not after Poisoned).
        """
        end, seq = self._in_turn(self._flush)
        if self._durable:
            self._commit.through(seq)
        return end

    def sync(self) -> int:
        """Flush, and make everything durable whatever `commit` is; returns the end offset."""
        if self._durable:
            return self.flush()
        writer = self._writable()
        with self._commit.syncing, self._turn:
            end, _ = self._flush(writer)
            self._background.sync()
            self._publisher.publish()
        return end

    def truncate(self, before: int | datetime | Literal["latest"]) -> int:
        """Remove the records before a place, durably. Whole files go, and nothing before the place is read again.

        Args:
            before: an offset; a datetime, for what was appended earlier; "latest" for all that is there.

        Returns the first offset that is left. Raises OutOfBounds for one behind the end, StorageFull, Poisoned.
        """
        writer = self._writable()
        self.sync()
        with self._reading:
            first = self._place(before, "before", ("latest",))
        with self._commit.syncing, self._turn:
            if first > writer.first_offset:
                self._trimming.truncate(first)
                with self._reading:
                    self._ahead = []
        return self.first_offset

    def _flush(self, writer: LogWriter) -> tuple[int, int]:
        if len(self._buffer):
            self._buffer.flush(writer, partial(self._put, writer), encode)
        return writer.end_offset, writer.written

    def _put(self, writer: LogWriter, batches: list[bytes]) -> None:
        now_us = time.time_ns() // 1000
        if self._rules is not None:
            self._trimming.look(now_us)
        if self._durable:
            writer.append(batches, now_us)
            return
        self._background.collect()
        writer.append(batches, now_us)
        self._publisher.publish()

    def _in_turn(self, step: Callable[..., tuple[int, int]], *arguments: Any) -> tuple[int, int]:
        """Run `step` with exclusive use of writer and buffer, and no concurrent sync if the writer has to prepare."""
        writer = self._writable()
        if self._ticker is not None:
            self._ticker.check()
        with self._turn:
            if writer.ready:
                return step(writer, *arguments)
        with self._commit.syncing, self._turn:
            return step(writer, *arguments)

    def _writable(self) -> LogWriter:
        if self._writer is None:
            if self.read_only and self._closing:
                raise ReadOnly(f"{self.path} is open for reading only: open it without read_only to append")
            raise Closed(f"{self.path} is closed")
        return self._writer

    # -- reading ----------------------------------------------------------------------------------

    @property
    def first_offset(self) -> int:
        """The first offset that can be read."""
        with self._reading:
            return self._readable().first_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last committed record."""
        with self._reading:
            return self._readable().end_offset

    @property
    def position(self) -> int:
        """Offset of the record that iteration hands out next."""
        return self._playback.position

    def read(self, offset: int, max_records: int = 1000) -> list[Record]:
        """Committed records from `offset` on, at least one, at most `max_records`.

        Raises EndOfLog at the end, OutOfBounds outside the log, BadChecksum or Corrupt in a damaged place.
        """
        whole("offset", offset, -INT_MAX)
        whole("max_records", max_records, 1)
        with self._reading:
            ahead, self._ahead = self._ahead, []  # what fails or is interrupted leaves nothing half read
            if not ahead or ahead[0].offset != offset:
                playback = Playback(self._readable(), self._reading)
                playback.seek(offset)
                ahead, self._coming = [], playback.lists(records_of)
            while len(ahead) < max_records and (more := next(self._coming, None)) is not None:
                ahead += more
            self._ahead = ahead[max_records:]
        if not ahead:
            raise EndOfLog(f"{self.path} ends at offset {offset}; nothing is committed there yet")
        return ahead[:max_records]

    def seek(self, where: int | datetime | Literal["earliest", "latest"]) -> int:
        """Move iteration: to an offset, to the first record appended at a time or later, or to either end.

        Args:
            where: an offset, a datetime, "earliest" or "latest".

        Returns the offset. Raises OutOfBounds.
        """
        with self._reading:
            offset = self._place(where, "where", ("earliest", "latest"))
            self._playback.seek(offset)
        return offset

    def _place(self, place: int | datetime | str, name: str, words: Sequence[str]) -> int:
        """The offset of a place. Raises InvalidArgument."""
        reader = self._readable()
        if isinstance(place, datetime):
            return reader.offset_at(microseconds(place, name))
        if isinstance(place, int):
            return whole(name, place, -INT_MAX)
        one_of(name, place, words, ", nor an offset or a datetime")
        return reader.first_offset if place == "earliest" else reader.end_offset

    def __iter__(self) -> Iterator[Record]:
        """Records from the position to the committed end; iterating again goes on from there."""
        return self._playback.items(records_from)

    def values(self) -> Iterator[bytes]:
        """As iteration, only the values: the fastest way to plain bytes."""
        return self._playback.items(values_from)

    def follow(self, *, wait: float | timedelta | str | None = None) -> Following:
        """Records from the position on, and those that any process appends later: for `for` and for `async for`.

        Args:
            wait: end after so many seconds without a record; None waits for ever.

        Iteration ends when this `Log` is closed, by another thread or task. The disk blocks an event loop; waiting does
        not. Raises while iterating: OutOfBounds where retention was faster, Corrupt.
        """
        patience = float("inf") if wait is None else seconds(wait, "wait")
        self._end()
        return Following(partial(self._playback.endless, records_from), self._end, self._sleeping_place, patience)

    def _end(self) -> int:
        with self._reading:
            return self._readable().limit()

    def _sleeping_place(self) -> Futex | None:
        with self._reading:
            return self._slot() if self._readable() else None

    @overload
    def batches(self, format: Literal["records"] = "records") -> Iterator[list[Record]]: ...
    @overload
    def batches(self, format: Literal["values"]) -> Iterator[list[bytes | None]]: ...
    @overload
    def batches(
        self, format: Literal["arrow"], *, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]: ...

    def batches(
        self, format: Literal["records", "values", "arrow"] = "records", *, columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """Read from the position to the end, a batch at a time: lists of Record or bytes, or pyarrow.RecordBatch.

        Args:
            format: "records", "values" or "arrow".
            columns: of Arrow batches, any of value, key, offset, timestamp, headers; None: all of these.
        """
        if columns is not None and format != "arrow":
            raise InvalidArgument(f'columns= are those of batches("arrow"); {format} come as they are')
        names = ARROW_COLUMNS if columns is None else column_names(columns, None)
        forms: dict[str, Callable[[Batch, int], Any]] = {
            "records": records_of, "values": values_of,
            "arrow": lambda batch, start: record_batch(batch, names, start),
        }  # fmt: skip
        one_of("format", format, forms)
        with self._reading:
            reader = self._readable()
            if format == "arrow" and self._mapped is None:
                limits: dict[str, Any] = {"limit": reader.limit, "first": lambda: reader.first_offset}
                self._mapped = LogReader(self.path, self._files, mapped=True, **limits)
                self._closing.append(self._mapped.close)
        return self._playback.lists(forms[format], self._mapped if format == "arrow" else None)

    def segments(self) -> list[SegmentExtent]:
        """The segments and what lies in each, oldest first."""
        with self._reading:
            return extents_of(self._readable())

    def _readable(self) -> LogReader:
        if not self._closing:
            raise Closed(f"{self.path} is closed")
        return self._reader
