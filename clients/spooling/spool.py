"""`penstock.Spool`: accepts records on disk, while the broker is away too, and has them forwarded in order, each once.

    with penstock.Spool("./spool", to="tcp://broker:4440") as spool:
        spool.send("flights", b"UA 1545", key=b"UA")       # returns when the record is on this disk
        spool.flush()                                      # until the broker has stored all of them

Contract: any number of threads, and one process that accepts (AlreadyOpen); a forwarder may run here, with `to`, or in
another process (`penstock forward`). A record that was accepted is durable here until the broker has stored it, or
until `when_full="drop_oldest"` drops it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from ...storage import forks
from ...storage.adopting import SPOOL, adopting
from ...storage.errors import BatchTooLarge, Closed, Error, InvalidBatch, RecordTooLarge
from ...storage.files import Files
from ...storage.header_list import GivenHeaders, HeaderList, checked_headers
from ...storage.lock import take
from ...storage.rolling_logs import OFFSET_BITS, RollingLogs
from ...transport.url import addresses
from ..arguments.checking import check_name, checks
from ..arguments.quantities import Duration, Size, event_time, seconds, size_bytes
from ..errors import InvalidArgument, SpoolFull, TimedOut
from ..producing.pieces import Shape, check_record, extras_bytes
from . import spooled
from .forwarding import LOOK_S, keep_forwarding, reach

if TYPE_CHECKING:
    from ..connection.driver import Driver

LARGEST = 16 << 20
"""Limit of one record, as of topics that do not say otherwise."""

LOGS = 16
"""A spool is about so many logs when it is full: the oldest goes as a whole. A log gets records for a sixteenth of
`max_age`, so that it goes without young ones."""

BATCH_BYTES, RECORD_BYTES = 512, 16
"""What a batch, and each of its records, takes on disk at most beside its bytes, nearly."""

FORWARDER_TIMEOUT_S = 10.0

CLOSING_S = 0.5
"""How long `close` lets the chunk that is on its way arrive; the next forwarder sends it again."""

log = logging.getLogger("penstock.clients")


class SpoolStatus(msgspec.Struct, frozen=True):
    """The state of a spool: `waiting` records that the broker has not stored, `bytes` on disk, `dropped` records since
    it was opened, and the `trouble` of the forwarder in this process, "" without."""

    waiting: int
    bytes: int
    dropped: int
    trouble: str


@checks
class Spool:
    """Accepts records in a directory. Leaving its `with` block closes it, and what waits stays.

    Args:
        path: the directory, made when missing; it must not be copied while records wait.
        to: the broker's address: a thread of this process forwards. None: another process does.
        max_bytes: on disk, of what waits; a record takes about 300 bytes beside its own, and less among others.
        max_age: of the oldest record that waits; None: any.
        when_full: "refuse" raises SpoolFull; "drop_oldest" drops the oldest log, about a sixteenth of the spool.

    Raises: AlreadyOpen, InvalidUrl, InvalidArgument; ForeignDirectory for a directory that is no spool's, or cannot be
    used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        to: str | None = None,
        max_bytes: Size = "1GB",
        max_age: Duration | None = None,
        when_full: Literal["refuse", "drop_oldest"] = "refuse",
    ) -> None:
        if when_full not in ("refuse", "drop_oldest"):
            raise InvalidArgument(f'when_full={when_full!r} is neither "refuse" nor "drop_oldest"')
        if to is not None:
            addresses(to)
        self.path = os.path.abspath(os.fspath(path))
        self._max_bytes = size_bytes(max_bytes, "max_bytes")
        self._max_age_s = None if max_age is None else seconds(max_age, "max_age")
        self._drops = when_full == "drop_oldest"
        self._files = Files()
        with adopting(self.path, SPOOL, self._files):
            self._lock = take(f"{self.path}/lock", self._files)
        try:
            self._open_logs()
        except BaseException:
            self._lock.release()
            raise
        self._turn: Any = threading.RLock()
        self._closed = False
        self._ended = False  # an interrupted close is finished by the next
        self._dropped = 0
        self._oldest_at = 0.0  # when the age was looked at last
        self._trouble = ""
        self._stopping = threading.Event()
        self._driver: Driver | None = None  # of the forwarder, while it has a connection or waits for one
        self._forwarder: threading.Thread | None = None
        if to is not None:
            self._forwarder = threading.Thread(target=self._forward, args=(to,), name="penstock-spool", daemon=True)
            self._forwarder.start()
        forks.tell(self)

    def _open_logs(self) -> None:
        progress = spooled.load(self.path, self._files)
        self._logs = RollingLogs(
            spooled.records_path(self.path), self._files, "durable", max(self._max_bytes // LOGS, 1),
            inf if self._max_age_s is None else self._max_age_s / LOGS,
        )  # fmt: skip
        self._logs.look()
        spooled.check(self.path, progress, self._logs)
        self._sizes = {number: self._logs.size(number) for number in self._logs.known}
        self._last = max((self._logs.last_place(number) for number in self._logs.known), default=0)

    def _forked(self) -> None:
        """A child has neither the logs nor the thread."""
        self._turn, self._closed, self._ended = threading.RLock(), True, True

    @property
    def closed(self) -> bool:
        """Whether it accepts nothing any more."""
        return self._closed

    # -- accepting ----------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Accept one record, and return when it is durable on this disk. The broker may not have it yet: see `flush`.

        Args:
            topic, value, key, headers, partition: as in `Producer.send`; whether the topic is there, and takes the
                record, is only known when it is forwarded.
            timestamp: event time; None: now.

        Raises: SpoolFull, StorageFull; RecordTooLarge, also for what is over `max_bytes` by itself, and InvalidBatch.
        """
        given = None if headers is None else checked_headers(headers)
        self._accept(topic, [value], [key], given, timestamp, partition)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> int:
        """Accept many records together, and return when all are durable on this disk: all of them, or none.

        Of more than 4 MB, a program that is killed meanwhile may leave the first ones.

        Args:
            topic, partition: as in `send`, of all of them.
            values: bytes of each, None for a null.
            keys: one per record, None for none.

        Returns: how many they were.

        Raises: as `send`; BatchTooLarge when all of them are over `max_bytes`.
        """
        if keys is not None and len(keys) != len(values):
            raise InvalidArgument(f"keys has {len(keys)} entries, values has {len(values)}: give one per record")
        if values:
            self._accept(topic, list(values), keys, None, None, partition)
        return len(values)

    def _accept(
        self,
        topic: str,
        values: list[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Mapping[str, bytes] | None,
        timestamp: int | datetime | None,
        partition: int | None,
    ) -> None:
        shape = Shape(1, 0, LARGEST, topic)
        check_name("topic", topic)
        for value in values:
            if value is not None and type(value) is not bytes:
                raise InvalidBatch(f"the value of a record must be bytes, not {type(value).__name__}")
            check_record(len(value or b""), shape)
        beside = extras_bytes(None, headers, shape) + sum(extras_bytes(key, None, shape) for key in keys or ())
        event_us = None if timestamp is None else event_time(timestamp)
        envelope = spooled.Envelope(topic, partition, event_us, dict(headers) if headers else None)
        if isinstance(headers, HeaderList):
            envelope.header_list = list(headers.pairs)
        given = {False: {spooled.ENVELOPE: spooled.packed(envelope)}}
        if None in values:
            envelope.null = True
            given[True] = {spooled.ENVELOPE: spooled.packed(envelope)}
        envelopes, contents = [given[value is None] for value in values], [value or b"" for value in values]
        beside += sum(len(each[spooled.ENVELOPE]) for each in envelopes) + BATCH_BYTES + RECORD_BYTES * len(values)
        size = sum(map(len, contents)) + beside
        self._check_size(size, len(contents))
        self._make_room(size)
        place, _ = self._logs.append(
            self._turn, self._check_open, contents, beside_bytes=beside, keys=keys, headers=envelopes
        )
        with self._turn:
            self._last = max(self._last, place)
            number = place >> OFFSET_BITS
            if number in self._logs.known:
                self._sizes[number] = self._logs.size(number)

    def _check_size(self, size: int, count: int) -> None:
        """Raise RecordTooLarge or BatchTooLarge for what an empty spool has no room for."""
        if size <= self._max_bytes:
            return
        limit = f"max_bytes={self._max_bytes} of the spool {self.path}"
        if count == 1:
            raise RecordTooLarge(f"a record of {size} bytes is over {limit}: raise it, or split the record")
        raise BatchTooLarge(f"{count} records of {size} bytes are over {limit}: raise it, or send fewer together")

    def _make_room(self, size: int) -> None:
        """Have the limits hold. Raises SpoolFull."""
        with self._turn:
            self._check_open()
            if self._fits(size) and not self._is_old():
                return
            self._remove_stored()
            while not self._fits(size) or self._is_old(at_once=True):
                if not self._drops or not self._drop_oldest():
                    self._refuse(size)

    def _fits(self, size: int) -> bool:
        return sum(self._sizes.values()) + size <= self._max_bytes

    def _refuse(self, size: int) -> None:
        used, more = sum(self._sizes.values()), "forward it, raise the limit, or say when_full='drop_oldest'"
        if not self._fits(size):
            raise SpoolFull(f"the spool {self.path} has {used} of {self._max_bytes} bytes: {more}")
        raise SpoolFull(f"the spool {self.path} has records older than max_age={self._max_age_s:g} s: {more}")

    def _is_old(self, *, at_once: bool = False) -> bool:
        """Whether the oldest waiting record is over the age; looks once a second, or `at_once`."""
        if self._max_age_s is None or (not at_once and time.monotonic() - self._oldest_at < 1.0):
            return False
        self._oldest_at = time.monotonic()
        self._look()
        oldest = self._logs.time_behind(spooled.load(self.path, self._files).stored)
        return oldest is not None and time.time() - oldest > self._max_age_s

    def _remove_stored(self) -> None:
        """Remove logs of which nothing waits: a forwarder leaves the one that it has come to."""
        self._look()
        stored = spooled.load(self.path, self._files).stored
        for number in [number for number in self._sizes if not self._logs.count_within(number, stored)]:
            self._remove(number)

    def _drop_oldest(self) -> bool:
        """Drop the oldest log. False where there is none, or it stays."""
        oldest = min(self._sizes, default=None)
        if oldest is None:
            return False
        stored = spooled.load(self.path, self._files).stored
        waiting = self._logs.count_within(oldest, stored)
        if self._remove(oldest) and waiting:
            self._dropped += waiting
            log.warning("the spool %s is full: dropped %d records that were not forwarded", self.path, waiting)
        return oldest not in self._sizes

    def _remove(self, number: int) -> bool:
        """Remove a log; False where that was not to be done here, perhaps because a forwarder did it first."""
        if number == self._logs.own:
            self._logs.let_go()
        removed = self._logs.remove(number, lambda: True)
        self._look()
        return removed

    def _look(self) -> None:
        self._logs.look()
        self._sizes = {number: size for number, size in self._sizes.items() if number in self._logs.known}

    # -- what becomes of them -------------------------------------------------------------------------------

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until the broker has stored everything that was accepted before, at most `timeout` (None: without end).

        Raises TimedOut, which says what the forwarder of this process waits for.
        """
        until = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        last = self._last
        while self._waits(last):
            self._check_open()
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"timed out: forwarding the spool {self.path}: {self._trouble or 'records wait'}")
            time.sleep(LOOK_S / 2)

    def _waits(self, last: int) -> bool:
        """Whether a record up to a place is neither stored nor dropped."""
        stored = spooled.load(self.path, self._files).stored
        if stored >= last:
            return False
        with self._turn:
            self._check_open()
            self._look()
            return self._logs.count_behind(stored) > self._logs.count_behind(last)

    def status(self) -> SpoolStatus:
        """How much waits, and what the forwarder of this process waits for."""
        with self._turn:
            self._check_open()
            self._look()
            waiting = self._logs.count_behind(spooled.load(self.path, self._files).stored)
            return SpoolStatus(waiting, sum(self._sizes.values()), self._dropped, self._trouble)

    def _forward(self, to: str) -> None:
        stopping = self._stopping.is_set

        def troubled(error: Error) -> bool:
            if str(error) != self._trouble:
                log.warning("forwarding the spool %s to %s: %s", self.path, to, error)
            self._trouble = str(error)
            return True

        def opened(driver: Driver) -> None:
            self._driver = driver

        def told(count: int) -> None:
            self._trouble = ""

        keep_forwarding(
            self.path,
            lambda: reach(to, FORWARDER_TIMEOUT_S, stopping=stopping, troubled=troubled, opened=opened),
            stopping=stopping,
            pause=self._stopping.wait,
            patient=troubled,
            told=told,
        )

    # -- the end ------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the spool {self.path} was closed, or opened by the process this one was forked from")

    def close(self) -> None:
        """Stop accepting and forwarding, within about a second; what waits stays for the next one.

        Repeating it finishes what an interrupt left.
        """
        if self._ended:
            return
        with self._turn:
            self._closed = True
        self._stopping.set()
        if self._forwarder is not None:
            self._forwarder.join(CLOSING_S)
            if self._driver is not None:
                self._driver.close()  # ends all waits
            self._forwarder.join()
        with self._turn:
            self._logs.close()
            self._lock.release()
        self._ended = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{', closed' if self._closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
