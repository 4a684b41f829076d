"""The producer for threads: `client.producer(topic)`.

Contract: any number of threads may share one. A record is acknowledged once it stands at the topic's commit
level; what is acknowledged is never lost, and sending again after a lost connection never doubles a record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .bulk import pieces
from .pending import Future, Pending
from .producer_core import ProducerCore, Sent
from .quantities import Duration, seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from .driver import Driver

__all__ = ["Future", "Producer"]


def wall_us() -> int:
    """Now, in microseconds UTC."""
    return time.time_ns() // 1000


class Producer:
    """Sends records to one topic. Leaving its `with` block flushes."""

    def __init__(self, driver: Driver, core: ProducerCore) -> None:
        """Made by `Client.producer`."""
        self._driver = driver
        self._core = core
        self._lock = driver.lock
        core.lock = driver.lock
        core.wait = self._wait
        if driver.connection.channel.remote:
            core.look = driver.glance

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def partitions(self) -> int:
        """How many partitions it spreads records over."""
        return len(self._core.lanes)

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
        timestamp: int | None = None,
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
            timestamp: event time in microseconds UTC, when it is not the time of appending.
            partition: where to, instead of by key.
            delay: how long no queue group gives it to anybody, counted by this machine's clock.
            at: the same, until a moment.
            priority: 0 to 255; queue groups give the highest out first.
            dedup: a key of up to 1 KiB: a second record with it within the topic's `dedup_window_s` is nobody's work
                (or what the topic's `dedup` says). Goes by it to a partition where it has no `key`.
            timeout: seconds to wait, the client's when None.

        Returns: the record's offset in its partition; of a record that repeats another by `dedup`, the offset of that
        one, which is the task to ask after. The future of `send_nowait` tells them apart (`result()`, `repeats`).

        Raises: RecordTooLarge, UnknownTopic, Poisoned, Fenced ...; TimedOut says on what it waited, and the
        record may still be appended then.
        """
        core = self._core
        task = core.as_task(delay, at, priority, dedup)
        deadline = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        return self._driver.run(core.send(value, key, headers, timestamp, partition, task, deadline))

    def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
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
        core = self._core
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            self._driver.run(core.unjam(core.connection.deadline()))
        lock = self._lock
        lock.acquire()  # `with` takes twice as long, and this is called a million times a second
        try:
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
        values: Iterable[bytes] | pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray,
        *,
        keys: Iterable[bytes | None] | pa.Array | pa.ChunkedArray | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """Send many records, in large batches, and wait until all are committed.

        Args:
            values: bytes, or Arrow binary or text; a table's columns `value` and, if it has one, `key` are sent.
            keys: one per record (None for none).
            partition: all to this one, instead of by key.
            delay, at, priority: of all of them, as in `send`.

        Returns: how many records were sent. The timeout counts from the last progress, not from the start.

        Raises: as `send`. An error stops it, and what was sent before stays sent.
        """
        core, run = self._core, self._driver.run
        sent = Sent()
        for piece in pieces(values, keys, core.shape_of(delay, at, priority), partition):
            sent.add(run(core.send_piece(piece, core.connection.deadline())))
        run(core.finish(sent.waiting))
        return sent.count

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything sent is committed. Raises the first error that no future was asked about."""
        core = self._core
        core.check_open()
        self._driver.run(core.flush(core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))))

    def next_sequence(self, partition: int = 0) -> int:
        """How many records this (named) producer has sent to a partition, over all its lives."""
        return self._driver.run(self._core.next_sequence(partition, self._core.connection.deadline()))

    def close(self) -> None:
        """Flush and close. Repeating it does nothing."""
        if not self._core.closed and not self._driver.ended:
            self._driver.run(self._core.close(self._core.connection.deadline()))

    def _wait(self, pending: Pending, timeout: float | None) -> None:
        core = self._core
        self._driver.run(core.settled(pending, core.connection.deadline(timeout)))

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
