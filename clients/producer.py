"""Producers for threads, and what they stage: `client.producer(topic)`, `client.transaction()`, `client.staging()`.

    with client.transaction() as transaction:                  # commits when the block is left, drops on an exception
        transaction.producer("orders").send(b"...")
        transaction.producer("payments").send_many([...])

Contract: any number of threads may share one. A record is acknowledged once it stands at the topic's commit
level; acknowledged records are never lost, and resends after a lost connection are deduplicated.
A transaction's records are published together or not at all (transactions/).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self, overload

from ..storage.header_list import GivenHeaders, checked_headers, copied
from ..transport.messages import Stage
from .arguments.checking import checks
from .arguments.quantities import Duration, Size, seconds, size_bytes
from .connection.driver import Driver
from .errors import InvalidArgument
from .producing.arrow_data import ArrowData
from .producing.bulk import pieces
from .producing.core import SentBatch
from .producing.direct import Direct, direct_of
from .producing.pending import Pending
from .producing.sending import Sending
from .serializing import Dumping, Encodings, Functions, Sent, Serializer
from .transactions.staging_core import StagingCore, TransactionCore, begin
from .transactions.staging_producer import StagedFuture
from .unpicklable import unpicklable


@checks
@unpicklable("the URL and the topic, and make a producer where it is needed")
class Producer(Sending[Sent]):
    """Sends records to one topic. Leaving its `with` block flushes."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def partitions(self) -> int:
        """The number of partitions it spreads records over."""
        return len(self._core.senders)

    @property
    def closed(self) -> bool:
        """Whether the producer was closed."""
        return self._core.closed

    @property
    def direct(self) -> Direct:
        """The partitions that it appends to by itself now (`direct=True`), and why it does not to others."""
        return direct_of(self._core)

    def send(
        self,
        value: Sent | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
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
            value: the record's bytes, or what the producer's serializer takes; None for a null, which stands for "no
                value" (of its key, mostly).
            key: records of one key go to one partition, in order.
            headers: names with values as bytes, or a list of (name, value) where a name repeats or a value is None.
            timestamp: event time, when it is not the time of appending: a datetime, or microseconds UTC.
            partition: where to, instead of by key.
            delay: queue groups lease it only after this time, counted by this machine's clock.
            at: the same, until a moment: a datetime with a zone.
            priority: 0 to 255; queue groups give the highest out first.
            dedup: a key of up to 1 KiB: a second record with it within the topic's `dedup_window_s` is deduplicated
                (as the topic's `dedup` says). Without a `key`, it also chooses the partition.
            timeout: seconds to wait, the client's when None.

        Returns: the record's offset in its partition; of a record that repeats another by `dedup`, the offset of that
        one, which is the task to ask after. The future of `send_nowait` tells them apart (`result()`, `repeats`).

        Raises: RecordTooLarge, UnknownTopic, Poisoned, Fenced ...; TimedOut says on what it waited, and the
        record may still be appended then.
        """
        given: Any = value if self._dump is None else self._dump(value)
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        patience = None if timeout is None else seconds(timeout, "timeout")
        return self._driver.run(self._send(given, key, headers, timestamp, partition, task, timeout=patience))

    def send_many(
        self,
        values: Iterable[Sent | ArrowData | None] | ArrowData,
        *,
        keys: Iterable[bytes | None] | ArrowData | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """Send many records, in large batches, and wait until all are committed.

        Args:
            values: as `send` takes them, or Arrow: binary or text; tables and record batches, or an iterable of these,
                with columns

                value: binary or text
                key: the same; null for none
                headers: list<struct<key: string, value: binary>>; null for none
                timestamp: event times, as timestamps or as microseconds UTC
                partition: where to, instead of by key; null goes by key

                of which all but `value` may be missing; others are refused. Only `offset` and `topic` are left out,
                so that what `batches("arrow")` gives is taken as it is: the broker gives each record a new place.
            keys: one per record (None for none).
            partition: all to this one, instead of by key.
            delay, at, priority: of all of them, as in `send`.

        Returns: how many records were sent. The timeout counts from the last progress, not from the start.

        Raises: as `send`. An error stops it, and what was sent before stays sent.
        """
        core = self._sending
        cut, sent = pieces(values, keys, core.shape_of(delay, at, priority), partition, self._dump), SentBatch()
        for piece in cut:
            sent.add(self._driver.run(core.send_piece(piece, core.connection.deadline())))
        self._driver.run(core.finish(sent.waiting))
        return sent.count

    def send_many_nowait(
        self,
        values: Iterable[Sent | ArrowData | None] | ArrowData,
        *,
        keys: Iterable[bytes | None] | ArrowData | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """As `send_many`, without waiting for commits: it blocks only while the window is full.

        Returns: how many records are on their way. `flush` waits for them and raises the first error.
        """
        core, count = self._sending, 0
        cut = pieces(values, keys, core.shape_of(delay, at, priority), partition, self._dump)
        for piece in cut:
            self._driver.run_on(core.send_piece(piece, core.connection.deadline()))
            count += piece.count
        return count

    def place_many(
        self,
        values: Iterable[Sent | None],
        *,
        headers: GivenHeaders | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> list[tuple[int, int, int]]:
        """As `send_many`, for records without keys whose places the caller wants to know.

        Args:
            values: as `send` takes them.
            headers: of each of them.
            delay, at, priority: of all of them, as in `send`.

        Returns: runs of records in the order of `values`: partition, offset of the first, how many.

        Raises: as `send_many`.
        """
        core, sent = self._sending, list[Pending]()
        own = None if headers is None else copied(checked_headers(headers))
        cut = pieces(values, None, core.shape_of(delay, at, priority, own), None, self._dump)
        for piece in cut:
            sent.append(self._driver.run(core.send_piece(piece, core.connection.deadline())))
        self._driver.run(core.finish(sent))
        return [(pending.partition, pending.offset, pending.count) for pending in sent]

    def room(self, timeout: Duration | None = None) -> None:
        """Wait until the window has room for what `post` sends, at most `timeout` (None: the client's).

        Raises TimedOut, and what keeps the producer from going on.
        """
        core = self._sending
        deadline = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        self._core.check_open()
        self._driver.run(core.unjam(deadline))

    @contextmanager
    def transaction(self, id: str | None = None, epoch: int | None = None) -> Iterator[Transaction]:
        """Stage everything this producer sends within a `with` block, in any thread, and commit at its end.

        No reader sees any of it before, and all can read it after; an exception drops it. Sends and futures say
        -1. Records that go to other topics with them are sent by `producer(topic)` of what this yields.

        Args:
            id, epoch: as in `Client.transaction`.
        """
        own = self._core
        own.check_open()
        core = begin(self._driver, id, epoch, now_us=self._driver.connection.channel.now_us, future=StagedFuture)
        staging = core.new_producer(own.topic, codec=own.codec.name.lower(), window_bytes=own.window_bytes)
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
        """Wait until everything sent is committed, and every `on_done` of it has returned; at most `timeout`.

        Inside of an `on_done` it does not wait for others.

        Args:
            timeout: how long, the client's when None.

        Raises the first error that no future was asked about.
        """
        deadline = self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        self._core.check_open()
        for core in {self._core: None, self._sending: None}:
            self._driver.run(core.flush(deadline))
        self._driver.run(self._driver.called(deadline))

    def next_sequence(self, partition: int = 0) -> int:
        """The number of records that this (named) producer has sent to `partition` in all its lives."""
        return self._driver.run(self._core.next_sequence(partition, self._core.connection.deadline()))

    def close(self) -> None:
        """Flush and close. Idempotent."""
        if not self._core.closed and not self._driver.closed:
            self._driver.run(self._core.close(self._core.connection.deadline()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to topic {self.topic}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@checks
@unpicklable("its `stages()`, which are values, and commit them with `Client.commit_stages`")
class Staging:
    """Records that no reader sees until their stages are committed, here or in another process.

    Leaving its `with` block flushes; an exception drops what was staged.
    """

    def __init__(self, driver: Driver, core: StagingCore) -> None:
        """Made by `Client.staging`."""
        self._driver = driver
        self._core = core

    @property
    def closed(self) -> bool:
        """Whether nothing more can be staged."""
        return bool(self._core.ended) or self._driver.closed

    @overload
    def producer(
        self, topic: str, *, value: None = None, codec: str | None = None, window_bytes: Size = "8MB"
    ) -> Producer: ...
    @overload
    def producer(
        self, topic: str, *, value: Encodings, codec: str | None = None, window_bytes: Size = "8MB"
    ) -> Producer[Any]: ...
    @overload
    def producer(
        self, topic: str, *, value: Functions[Sent], codec: str | None = None, window_bytes: Size = "8MB"
    ) -> Producer[Sent]: ...

    def producer(
        self, topic: str, *, value: Serializer | None = None, codec: str | None = None, window_bytes: Size = "8MB"
    ) -> Producer[Any]:
        """A producer of one topic whose records are staged: `send` and futures return -1, as there is no offset yet.

        Args:
            topic, value, codec, window_bytes: as in `Client.producer`.
        """
        self._core.check_open()
        window, connection = size_bytes(window_bytes, "window_bytes"), self._driver.connection
        dump = None if value is None else Dumping(topic, value)
        found = self._driver.run(connection.find_topic(topic, connection.deadline()))
        return Producer(self._driver, self._core.new_producer(found, codec=codec, window_bytes=window), dump)

    def stages(self, timeout: Duration | None = None) -> list[Stage]:
        """The stages so far, for `Client.commit_stages` in any process. Waits until all of them are durable.

        Args:
            timeout: how long, the client's when None.

        Raises the first error that no future was asked about.
        """
        return self._driver.run(self._core.stages(self._deadline(timeout)))

    def drop(self, timeout: Duration | None = None) -> None:
        """End, and have the broker drop the stages within `timeout`; what a commit has decided stays. Idempotent."""
        self._driver.run(self._core.drop(self._deadline(timeout)))

    def close(self) -> None:
        """Flush and end; the stages wait for their commit. Idempotent."""
        if not self.closed:
            self._driver.run(self._core.close(self._deadline(None)))

    def _deadline(self, timeout: Duration | None) -> float:
        return self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))

    def _give_up(self) -> None:
        if not self._driver.closed:
            self._driver.run(self._core.give_up())

    def __enter__(self) -> Self:
        self._core.check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()


@checks
class Transaction(Staging):
    """Records of any number of partitions and topics that are published together, or not at all.

    Leaving its `with` block commits; an exception drops what was staged.
    """

    def __init__(self, driver: Driver, core: TransactionCore) -> None:
        """Made by `Client.transaction`."""
        super().__init__(driver, core)
        self._transaction = core

    @property
    def id(self) -> str:
        """The transaction's name, made up if none was given."""
        return self._transaction.name

    @property
    def epoch(self) -> int:
        """The transaction's epoch under that name."""
        return self._transaction.epoch

    def commit(self, timeout: Duration | None = None) -> bool:
        """Publish all records sent, and wait until they can be read.

        Args:
            timeout: how long, the client's when None.

        Returns: True when it is published, also by an earlier call; False when the epoch or a later one was committed
        before with other records: then nothing of this transaction is published. Where nothing was sent, and where a
        later epoch was committed since, the transaction cannot tell which commit was first: then False.

        Raises: StageLost when the broker does not have everything any more, and nothing is published then. After
        TimedOut, StillFull, Poisoned and Unavailable it may have been decided, and is published later: the message
        says so, and to commit again is harmless.
        """
        return self._driver.run(self._transaction.commit(self._deadline(timeout)))

    def close(self) -> None:
        """End without a commit: drop the stages, unless a commit was begun. Idempotent."""
        if not self.closed:
            self._give_up()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._give_up()
        elif not self._core.ended:
            self.commit()
