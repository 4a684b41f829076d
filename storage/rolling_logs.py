"""Logs in one directory that are written in turn: a full one is ended, and removed when nothing needs it.

Idea: a log has one writer, so processes that write at the same time write to different logs. A log has a number, which
is never given again, and a record of any of them a place: number and offset as one integer. Numbers rise, so the places
of one process do.

Contract: not safe for threads, but for `append`; the caller has a lock. What vanishes was removed because nothing needs
it. Must not know what records mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import Any, Literal

from . import layout
from .embedded import Log
from .errors import Closed, StorageError
from .files import FileLock, Files
from .record import Record

OFFSET_BITS = 32
MAKING = "making"
REMOVED = "removed-"
"""What a removed log leaves: an empty directory with its number, until a later one is given."""

SEGMENT_BYTES = 16 << 20

FULL_RECORDS, FULL_BYTES = 100_000, 64 << 20
"""A log with so much gets no more, so that it can be removed once its records are not needed."""

BUSY_S = 0.1
"""How long a lock may be held by others before what wants it is put off."""

RETRY_S = 0.001
"""Between two tries for a lock that is held while one record is appended, or one log made."""


def lock_within(seconds: float, path: str, files: Files) -> FileLock | None:
    """Take a lock that other processes hold for a moment. None if one holds it for longer: it may be stopped."""
    until = time.monotonic() + seconds
    while True:
        held = files.try_lock(path)
        if not isinstance(held, bytes):
            return held
        if time.monotonic() >= until:
            return None
        time.sleep(RETRY_S)


class RollingLogs:
    """The logs in one directory. `known` are those that were there when it looked last."""

    def __init__(
        self, path: str, files: Files, commit: Literal["durable", "written"], full_bytes: int | None = None,
        full_s: float = inf,
    ) -> None:  # fmt: skip
        files.mkdir(path)
        self._full_bytes = full_bytes or FULL_BYTES
        self._full_s = full_s
        self._begun = 0.0  # when the log that is written was made
        self.path = path
        self._commit: Literal["durable", "written"] = commit
        self.known: set[int] = set()
        self._files = files
        self._logs: dict[int, Log] = {}
        self._own: int | None = None
        self._written = 0

    def look(self) -> set[int]:
        """Open logs that are new. Returns the numbers of those that vanished."""
        found = {int(name) for name in self._files.listdir(self.path) if name.isdigit()}
        for number in sorted(found - self._logs.keys()):
            try:
                self._logs[number] = Log(self._path_of(number), read_only=True)
            except (StorageError, OSError):
                if self._files.is_directory(self._path_of(number)):
                    raise
                found.discard(number)  # it was removed meanwhile
        vanished = self._logs.keys() - found
        for number in vanished:
            self._logs.pop(number).close()
        self.known = found
        return vanished

    def news(self) -> Iterator[tuple[int, Record]]:
        """Records that were not read yet, with their places."""
        for number, log in self._logs.items():
            with self._unless_removed(log):
                for record in log:
                    if record.offset:  # the first one is no news: `_made`
                        yield number << OFFSET_BITS | record.offset, record

    @contextmanager
    def _unless_removed(self, log: Log) -> Iterator[None]:
        """Raise what reading a log raises, unless the log was removed meanwhile."""
        try:
            yield
        except (StorageError, OSError):
            if self._files.is_directory(log.path):
                raise

    def rewind(self) -> None:
        """Have `news` begin with the first records again."""
        for log in self._logs.values():
            log.seek("earliest")

    def size(self, number: int) -> int:
        """Bytes of the records of a log."""
        return sum(segment.record_bytes for segment in self._logs[number].segments())

    def last_place(self, number: int) -> int:
        """The place of the last record of a log."""
        return number << OFFSET_BITS | self._logs[number].end_offset - 1

    def last_given(self) -> int:
        """The place of the newest record; where its log is removed, the last place that the log can have had."""
        names = self._files.listdir(self.path)
        newest = max((int(digits) for name in names if (digits := name.removeprefix(REMOVED)).isdigit()), default=0)
        return self.last_place(newest) if newest in self._logs else (newest + 1 << OFFSET_BITS) - 1

    def count_within(self, number: int, place: int) -> int:
        """How many records of a log there are behind a place, which may be in an earlier log or a later one.

        A log that was removed meanwhile has none.
        """
        offset, log = place - (number << OFFSET_BITS), self._logs[number]
        with self._unless_removed(log):
            return max(log.end_offset - 1 - max(offset, 0), 0)
        return 0

    def count_behind(self, place: int) -> int:
        """How many records there are behind a place."""
        return sum(self.count_within(number, place) for number in self._logs)

    def time_behind(self, place: int) -> float | None:
        """When the first record behind a place was appended; None without one."""
        for number in sorted(self._logs):
            if self.count_within(number, place):
                offset, log = max(place - (number << OFFSET_BITS), 0) + 1, self._logs[number]
                with self._unless_removed(log):
                    return log.read(offset, 1)[0].timestamp / 1e6
        return None

    @property
    def own(self) -> int | None:
        """The number of the log that is written."""
        return self._own

    def value(self, place: int) -> bytes:
        """The value of a record."""
        return self._logs[place >> OFFSET_BITS].read(place & (1 << OFFSET_BITS) - 1, 1)[0].value

    def writer(self) -> Log:
        """The log to append to."""
        if self._own is not None and time.monotonic() - self._begun > self._full_s:
            self.let_go()
        if self._own is not None:
            return self._logs[self._own]
        lock = lock_within(inf, f"{self.path}/{layout.LOCK}", self._files)
        assert lock is not None, "it waits"
        with lock:
            names = self._files.listdir(self.path)
            found = [int(digits) for name in names if (digits := name.removeprefix(REMOVED)).isdigit()]
            number = max(found, default=0) + 1
            log = self._made(number)
            for name in names:
                if name.startswith(REMOVED):
                    self._files.remove_tree(f"{self.path}/{name}")
        self._logs[number], self._own, self._written, self._begun = log, number, 0, time.monotonic()
        self.known = self.known | {number}
        return log

    def _made(self, number: int) -> Log:
        """A new log; other processes see it once it is whole."""
        making = f"{self.path}/{MAKING}"
        self._files.remove_tree(making)
        with Log(making) as log:
            log.append(b"")  # opening an empty log may make it anew
        self._files.rename_dir(making, self._path_of(number))
        self._files.sync_dir(self.path)
        return Log(self._path_of(number), segment_bytes=SEGMENT_BYTES, commit=self._commit)

    def append(
        self,
        turn: AbstractContextManager[Any],
        check_open: Callable[[], None],
        value: Any,
        *,
        beside_bytes: int = 0,
        **beside: Any,
    ) -> tuple[int, bool]:
        """Append what `Log.append` takes; the place of the last record, and whether the log is full and was ended.

        `beside_bytes` are those of keys and headers.
        `turn` is the caller's lock, which is free while the disk is waited for, so threads share a sync.
        `check_open` raises once the caller has closed.
        """
        many = isinstance(value, list)
        count, size = (len(value), sum(map(len, value))) if many else (1, len(value))
        size += beside_bytes
        while True:
            with turn:
                check_open()
                log, own = self.writer(), self._own
            assert own is not None, "a log that is written has a number"
            try:
                offset = log.append(value, **beside) + count - 1
            except Closed:
                continue  # it became full
            with turn:
                return own << OFFSET_BITS | offset, self._appended(log, offset, size)

    def _appended(self, log: Log, offset: int, size: int) -> bool:
        if self._own is None or self._logs[self._own] is not log:
            return False
        self._written += size
        if offset + 1 < FULL_RECORDS and self._written < self._full_bytes:
            return False
        self.let_go()
        return True

    def let_go(self) -> None:
        """End the log that is written; it is still read."""
        if self._own is not None:
            own, log = self._own, self._logs[self._own]
            reading = Log(log.path, read_only=True)  # first: without a writer it may be removed
            reading.seek(log.position)
            self._own, self._logs[own] = None, reading  # before it is closed: Ctrl-C leaves no closed one to append to
            log.close()

    def remove(self, number: int, unneeded: Callable[[], bool]) -> bool:
        """Remove a log without a writer if nothing needs it, which is asked once none can write to it any more."""
        path, removed = self._path_of(number), f"{self.path}/{REMOVED}{number}"
        lock = lock_within(BUSY_S, f"{self.path}/{layout.LOCK}", self._files)
        if lock is None:
            return False
        with lock:  # none is being made or removed
            try:
                held = self._files.try_lock(f"{path}/{layout.LOCK}")
            except FileNotFoundError:
                return False
            if isinstance(held, bytes):
                return False
            with held:
                if not unneeded():
                    return False
                self._files.rename_dir(path, removed)
            self._files.sync_dir(self.path)
            for name in self._files.listdir(removed):
                self._files.unlink(f"{removed}/{name}")
        return True

    def _path_of(self, number: int) -> str:
        return f"{self.path}/{number:010d}"

    def close(self) -> None:
        """Close all of them."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._own = None
