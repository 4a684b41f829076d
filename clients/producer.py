"""The producer for threads: `client.producer(topic)`.

Contract: any number of threads may share one. A record is acknowledged once it stands at the topic's commit
level; what is acknowledged is never lost, and sending again after a lost connection never doubles a record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..storage.errors import Closed
from .arguments.checking import checks
from .arguments.quantities import Duration, seconds
from .connection.driver import Driver
from .connection.steps import Steps
from .errors import InvalidArgument
from .producing.arrow_data import ArrowData
from .producing.bulk import pieces
from .producing.core import ProducerCore, Sent
from .producing.pending import Future, Pending

if TYPE_CHECKING:
    from .transactions.staging import Transaction

__all__ = ["Future", "Producer"]


def wall_us() -> int:
    """Now, in microseconds UTC."""
    return time.time_ns() // 1000


@checks
class Producer:
    """Sends records to one topic. Leaving its `with` block flushes."""

    def __init__(self, driver: Driver, core: ProducerCore) -> None:
        """Made by `Client.producer`."""
        self._driver = driver
        self._core = core
        self._sending = core  # or the core of the transaction that stages what is sent now
        self._lock = driver.lock
        self._adopt(core)

    def _adopt(self, core: ProducerCore) -> None:
        """Wait and look for its answers as threads do."""
        core.lock = self._driver.lock
        core.wait = lambda pending, timeout: self._wait(core, pending, timeout)
        if self._driver.connection.channel.remote:
            core.look = self._driver.glance

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def partitions(self) -> int:
        """How many partitions it spreads records over."""
        return len(self._core.senders)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Send one record and wait until it is committed.

        Args:
            key: records of one key go to one partition, in order.
            headers: names with values as bytes.
            timestamp: event time, when it is not the time of appending: a datetime, or microseconds UTC.
            partition: where to, instead of by key.
            delay: how long no queue group gives it to anybody, counted by this machine's clock.
            at: the same, until a moment: a datetime with a zone.
            priority: 0 to 255; queue groups give the highest out first.
            dedup: a key of up to 1 KiB: a second record with it within the topic's `dedup_window_s` is nobody's work
                (or what the topic's `dedup` says). Goes by it to a partition where it has no `key`.
            timeout: seconds to wait, the client's when None.

        Returns: the record's offset in its partition; of a record that repeats another by `dedup`, the offset of that
        one, which is the task to ask after. The future of `send_nowait` tells them apart (`result()`, `repeats`).

        Raises: RecordTooLarge, UnknownTopic, Poisoned, Fenced ...; TimedOut says on what it waited, and the
        record may still be appended then.
        """
        core = self._sending
        task = core.as_task(delay, at, priority, dedup)
        deadline = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        return self._driver.run(self._send(value, key, headers, timestamp, partition, task, deadline))

    def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
    ) -> Future:
        """Send one record without waiting for its commit.

        Blocks while the window is full, and raises TimedOut after the client's timeout; the record was then
        not taken. Errors of its commit are raised by the future, or by `flush` when nobody asked the future.
        """
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            self._driver.run(self._unjam(core))
        lock = self._lock
        lock.acquire()  # `with` takes twice as long, and this is called a million times a second
        try:
            core = self._sending  # a transaction may have begun or ended meanwhile
            if core.closed:
                core.check_open()
            future = core.append(value, key, headers, timestamp, partition, task)
        finally:
            lock.release()
        if core.connection.finished:
            self._driver.call_back()
        if self._driver.pump_idle:
            self._driver.need_pump()
        return future

    def send_many(
        self,
        values: Iterable[bytes | ArrowData] | ArrowData,
        *,
        keys: Iterable[bytes | None] | ArrowData | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """Send many records, in large batches, and wait until all are committed.

        Args:
            values: bytes, or Arrow: binary or text; tables and record batches, or an iterable of these, with columns

                value: binary or text
                key: the same; null for none
                headers: list<struct<key: string, value: binary>>; null for none, the later of two with one name
                timestamp: event times, as timestamps or as microseconds UTC
                partition: where to, instead of by key; null goes by key

                of which all but `value` may be missing. Others are left out, so that what `batches("arrow")` gives is
                taken as it is: `offset` and `topic` say where a record was, and the broker gives it a new place.
            keys: one per record (None for none).
            partition: all to this one, instead of by key.
            delay, at, priority: of all of them, as in `send`.

        Returns: how many records were sent. The timeout counts from the last progress, not from the start.

        Raises: as `send`. An error stops it, and what was sent before stays sent.
        """
        core, run = self._sending, self._driver.run
        sent = Sent()
        for piece in pieces(values, keys, core.shape_of(delay, at, priority), partition):
            sent.add(run(core.send_piece(piece, core.connection.deadline())))
        run(core.finish(sent.waiting))
        return sent.count

    def send_many_nowait(
        self,
        values: Iterable[bytes | ArrowData] | ArrowData,
        *,
        keys: Iterable[bytes | None] | ArrowData | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """As `send_many`, without waiting for commits: it blocks only while the window is full.

        Returns: how many records are on their way. `flush` says what became of them: it raises the first error.
        """
        core, run = self._sending, self._driver.run
        count = 0
        for piece in pieces(values, keys, core.shape_of(delay, at, priority), partition):
            run(core.send_piece(piece, core.connection.deadline()))
            count += piece.count
        if self._driver.pump_idle:
            self._driver.need_pump()
        return count

    @contextmanager
    def transaction(self, id: str | None = None, epoch: int | None = None) -> Iterator[Transaction]:
        """Stage what this producer sends within a `with` block, in whichever thread, and commit when it is left.

        Nobody reads any of it before, everybody can read all of it after; an exception drops it. Sends and futures say
        -1. Records that go to other topics with them are sent by `producer(topic)` of what this yields.

        Args:
            id, epoch: as in `Client.transaction`.
        """
        from .transactions.staging import Transaction
        from .transactions.staging_core import begin
        from .transactions.staging_producer import StagedFuture

        own = self._core
        own.check_open()
        core = begin(own.connection, id, epoch, now_us=wall_us, future=StagedFuture)
        staging = core.new_producer(own.topic, codec=own.codec.name.lower(), window_bytes=own.window_bytes)
        self._adopt(staging)
        with Transaction(self._driver, core) as transaction:
            with self._lock:
                if self._sending is not own:
                    raise InvalidArgument(f"this producer of topic {own.topic.name} is in a transaction already")
                self._sending = staging
            try:
                yield transaction
            finally:
                self._sending = own

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything sent is committed. Raises the first error that no future was asked about."""
        deadline = self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        self._core.check_open()
        for core in {self._core: None, self._sending: None}:
            self._driver.run(core.flush(deadline))

    def next_sequence(self, partition: int = 0) -> int:
        """How many records this (named) producer has sent to a partition, over all its lives."""
        return self._driver.run(self._core.next_sequence(partition, self._core.connection.deadline()))

    def close(self) -> None:
        """Flush and close. Repeating it does nothing."""
        if not self._core.closed and not self._driver.closed:
            self._driver.run(self._core.close(self._core.connection.deadline()))

    def _send(self, *record: Any) -> Steps[int]:
        """Send it through the core that is sending when there is room."""
        if self._sending.jammed is not None:
            yield from self._unjam(self._sending)
        return (yield from self._sending.send(*record))

    def _unjam(self, core: ProducerCore) -> Steps[None]:
        """Wait for room, unless the transaction ends meanwhile: what is sent next then goes elsewhere."""
        try:
            yield from core.unjam(core.connection.deadline())
        except Closed:
            if core is self._sending:
                raise

    def _wait(self, core: ProducerCore, pending: Pending, timeout: float | None) -> None:
        self._driver.run(core.settled(pending, core.connection.deadline(timeout)))

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
