"""The core of sync and async producers: routing, batching and waiting for commits.

Contract: `append` and `settle` never wait; verbs that do are steps. A full window makes the caller wait before its
record is taken, and the error of a time-out says what it waited for.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, cycle, repeat
from typing import TYPE_CHECKING, Any

import msgspec

from ...broker.errors import UnknownPartition
from ...storage import forks
from ...storage.batch import Codec, Kind
from ...storage.errors import Closed, Error, InvalidBatch
from ...storage.header_list import GivenHeaders, checked_headers
from ...transport.messages import Failure, ProducerOpened, Topic
from ...transport.producer_session import TARGET_BYTES, ProducerSession
from ..arguments.checking import one_of
from ..arguments.quantities import Duration, event_time
from ..connection.request_ids import current_ids
from ..connection.steps import Pause, Steps
from ..connection.unseen import raise_first
from ..errors import InvalidArgument, StillFull, TimedOut, WindowFull
from .partition_sender import PartitionSender
from .pending import Done, Future, Pending
from .pieces import OVERHEAD_BYTES, Piece, Shape, check_record, extras_bytes, partitioner_of
from .queued import PLAIN, Queued, as_queued

if TYPE_CHECKING:
    from ..connection.shell import Shell

CLOSE_FULL_S = 2.5
"""Patience of a close that has little hope: a batch that was refused is sent again within 2 s."""

CODECS = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class ProducerCore:
    """See the module. `future`: the kind that its shell waits for; `now_us`: the time."""

    kind: int = Kind.RECORDS

    def __init__(
        self,
        shell: Shell,
        topic: Topic,
        *,
        name: str,
        window_bytes: int,
        codec: str | None,
        now_us: Callable[[], int],
        future: type[Future] = Future,
    ) -> None:
        self.connection = shell.connection
        self.run = shell.run
        self.lock = shell.lock
        self.topic = topic
        self.name = name
        self.codec = _codec(str(topic.settings.get("codec", "none")) if codec is None else codec)
        self.closed = False
        self.jammed: PartitionSender | None = None
        self._told_full = False  # a call has raised StillFull
        count = len(topic.partitions)
        largest = int(topic.settings.get("max_record_bytes") or 16 << 20)
        self.shape = Shape(count, self.codec, largest, topic.name, partitioner_of(topic), kind=self.kind)
        self._hash = self.shape.partitioner.hash
        self.window_bytes = window_bytes
        self._look = shell.glance
        self._largest = largest
        self._now_us = now_us
        self._future = future
        self.failed: list[Pending] = []  # errors for `flush` to raise, if no future raised them
        self.senders = [self.new_lane(number) for number in range(count)]
        first = int.from_bytes(os.urandom(2), "little") % count
        self._in_turn = cycle(self.senders[first:] + self.senders[:first])  # a batch to each
        self._current = next(self._in_turn)
        forks.tell(self)

    def _forked(self) -> None:
        """Close in a forked child, which must not send under its parent's sequences."""
        self.closed = True

    # -- sessions of senders ----------------------------------------------------------------------------

    def new_lane(self, partition: int) -> PartitionSender:
        """Make the sender of a partition."""
        return PartitionSender(self, partition)

    def new_id(self) -> int:
        """A unique producer id."""
        return int.from_bytes(os.urandom(8), "little") or 1

    def new_session(self, opened: ProducerOpened | None = None) -> ProducerSession:
        """A session for a sender: under a fresh id, or as the broker opened it for the producer's name."""
        if opened is None:
            return ProducerSession(self.new_id(), window_bytes=self.window_bytes)
        return ProducerSession(
            opened.producer_id,
            epoch=opened.epoch,
            next_sequence=opened.next_sequence,
            window_bytes=self.window_bytes,
        )

    # -- one record -----------------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: GivenHeaders | None,
        timestamp: int | datetime | None,
        partition: int | None,
        queued: Queued | None = None,
        done: Done | None = None,
        ids: tuple[str, ...] = (),
    ) -> Any:
        """Take one record and return its future, or have `done` called with its outcome. It is sent at once if nothing
        is in flight, else with others. `ids`: of the request that it is part of."""
        plain = key is None and headers is None and timestamp is None and queued is None
        event_us = own = None
        beside = OVERHEAD_BYTES
        if plain and partition is None:
            sender = self._current
        else:
            own = None if headers is None else checked_headers(headers)
            beside += extras_bytes(key, own, self.shape) + (0 if queued is None else len(queued.dedup))
            if key is not None and type(key) is not bytes:
                key = bytes(key)  # as of values: the caller may use its buffer again
            event_us = None if timestamp is None else event_time(timestamp)
            dedup = None if queued is None else queued.dedup or None
            sender = self._sender_of(dedup if key is None else key, partition)
        gather = sender.gather
        index = len(gather.values)
        if type(value) is bytes:
            size = len(value)
        else:
            value, size = _as_value(value)
        if size > self._largest:
            check_record(size, self.shape)
        if not plain or gather.has_columns:
            gather.append_columns(key, own, event_us, queued, self._now_us)
        if done is not None or gather.dones:
            gather.call_when_done(index, done)
        if ids:
            gather.name(ids)
        try:
            gather.values.append(value)
            gather.size = size = gather.size + size + beside
            if size >= sender.trigger:
                self._ship(sender)
            return self._future(gather, index) if done is None else None
        except BaseException:  # Ctrl-C: a record that is in goes out with the others
            sender.try_soon()
            raise

    def append_run(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[dict[str, bytes] | None] | None,
        partition: int,
        ids: tuple[str, ...] = (),
    ) -> list[tuple[Pending, int, int]]:
        """Take records for one partition, in batches as large as `append` makes them where there is no room for more.

        Returns the batches, with the number of the first record in each, and how many it took. All are taken, or none
        where one is refused. Not for callers that Ctrl-C may interrupt. Raises RecordTooLarge, InvalidBatch,
        UnknownPartition.
        """
        sender = self.sender(partition)
        try:
            sizes = list(map(len, values))  # pyright: ignore[reportArgumentType]
        except TypeError:  # of nulls
            sizes = [len(value or b"") for value in values]
        if max(sizes) > self._largest:
            check_record(max(sizes), self.shape)
        if keys is not None or headers is not None:
            beside = map(extras_bytes, keys or repeat(None), headers or repeat(None), repeat(self.shape, len(sizes)))
            sizes = [size + more for size, more in zip(sizes, beside, strict=True)]
        ends = list(accumulate(map(OVERHEAD_BYTES.__add__, sizes)))
        found: list[tuple[Pending, int, int]] = []
        at = before = 0
        while at < len(ends):
            gather = sender.gather
            room = TARGET_BYTES - gather.size
            end = min(bisect_left(ends, before + room, at) + 1, len(ends)) if room > 0 else len(ends)
            some = slice(at, end)
            found.append((gather, len(gather.values), end - at))
            gather.name(ids)
            if keys is not None or headers is not None or gather.has_columns:
                gather.extend_columns(
                    end - at, None if keys is None else keys[some], None if headers is None else headers[some],
                    self._now_us,
                )  # fmt: skip
            gather.values += values[some]
            gather.size += ends[end - 1] - before
            at, before = end, ends[end - 1]
            if gather.size >= sender.trigger:
                self._ship(sender)
        return found

    def _sender_of(self, key: bytes | None, partition: int | None) -> PartitionSender:
        if partition is not None:
            return self.sender(partition)
        if key is None:
            return self._current
        return self.senders[self._hash(key) % len(self.senders)]

    def as_task(
        self, delay: Duration | None, at: datetime | None, priority: int | None, dedup: bytes | None
    ) -> Queued | None:
        """The queue options of a record. Raises InvalidArgument."""
        if delay is at is priority is dedup is None:
            return None
        return as_queued(delay, at, priority, dedup, self._now_us())

    def shape_of(
        self,
        delay: Duration | None,
        at: datetime | None,
        priority: int | None,
        headers: Mapping[str, bytes] | None = None,
    ) -> Shape:
        """The target of pieces whose records share their queue options and headers."""
        task = self.as_task(delay, at, priority, None)
        queued = PLAIN if task is None else task
        return msgspec.structs.replace(self.shape, now_us=self._now_us(), queued=queued, headers=headers)

    def _ship(self, sender: PartitionSender) -> None:
        """Send a sender's records: its trigger is reached. Short of a whole batch, take arrived answers first."""
        if sender.gather.size < TARGET_BYTES and sender.session is not None and sender.session.in_flight:
            sender.trigger = min(2 * sender.gather.size, TARGET_BYTES)
            self._look()
        else:
            sender.ship()
        gathered = sender.gather.size
        if not gathered and sender is self._current:
            self._current = next(self._in_turn)
        elif gathered >= TARGET_BYTES:
            self.jammed = sender

    def sender(self, partition: int) -> PartitionSender:
        """A sender by number. Raises InvalidArgument, UnknownPartition."""
        if type(partition) is not int:
            raise InvalidArgument(f"partition={partition!r} is not an int")
        if not 0 <= partition < len(self.senders):
            raise UnknownPartition(
                f"topic {self.topic.name} has no partition {partition}: it has {len(self.senders)}, numbered from 0"
            )
        return self.senders[partition]

    def unjam(self, deadline: float) -> Steps[None]:
        """Wait until the sender that was full has room."""
        while (sender := self.jammed) is not None:
            self.check_open()
            if self.is_full():
                self._check(sender, deadline)
                yield Pause(deadline)

    def is_full(self) -> bool:
        """Whether the window has no room now; sends what is gathered if it has."""
        sender = self.jammed
        if sender is not None:
            sender.ship()
            if not sender.full:
                self.jammed = None
        return self.jammed is not None

    def check_room(self) -> None:
        """Raise WindowFull, and Closed after `close`."""
        if self.closed:
            self.check_open()
        if self.jammed is not None and self.is_full():
            raise WindowFull(
                f"the window of {self.window_bytes} bytes to partition {self.jammed.partition} of topic "
                f"{self.topic.name} is full, and the record was not taken: wait with room(), or raise window_bytes"
            )

    # -- many records ---------------------------------------------------------------------------------

    def send_piece(self, piece: Piece, deadline: float) -> Steps[Pending]:
        """Send one piece behind the records gathered before it."""
        sender = self._current if piece.partition is None else self.sender(piece.partition)
        while True:
            self.check_open()
            sender.ship()
            if not sender.gather.values and sender.has_room(piece.size):
                break
            self._check(sender, deadline)
            yield Pause(deadline)
        pending = Pending(self, sender.partition, ids=current_ids())
        session = sender.session
        assert session is not None, "a sender with room has a session"
        sender.add(piece.encode(session.producer_id, session.epoch, session.next_sequence), piece.count, pending)
        pending.count = piece.count
        if sender is self._current:
            self._current = next(self._in_turn)
        self.connection.turn()
        return pending

    def finish(self, sent: Iterable[Pending]) -> Steps[None]:
        """Wait until all of `sent` are settled; patience counts from the last one that was. Raises the first error."""
        for pending in sent:
            yield from self.settled(pending, self.connection.deadline())
            pending.raise_error()

    # -- outcomes -------------------------------------------------------------------------------------

    def call_when_settled(self, pending: Pending, callback: Callable[[], None]) -> bool:
        """Have `callback` called, without the lock, when `pending` is settled. False when it is already."""
        with self.lock:
            if pending.settled:
                return False
            self.connection.check_ours()
            pending.callbacks = [*(pending.callbacks or ()), callback]
            return True

    def settled(self, pending: Pending, deadline: float) -> Steps[None]:
        """Wait until a batch is settled."""
        while (pause := self.awaited(pending, deadline)) is not None:
            yield pause

    def awaited(self, pending: Pending, deadline: float) -> Pause | None:
        """What a batch waits for until it is settled; None once it is. Raises what ends the waiting."""
        sender = self.senders[pending.partition]
        if sender.gather is pending:
            sender.ship()
        if pending.settled:
            return None
        if sender.ended is not None or self.connection.refused is not None or self.connection.clock() >= deadline:
            raise self.overdue(sender)
        return Pause(deadline, outcome=None if sender.gather is pending else pending)

    def flush(self, deadline: float) -> Steps[None]:
        """Wait until all that was sent before is settled. Raises the first error not raised yet."""
        for sender in self.senders:
            sender.ship()
        sent = [(sender, sender.unsettled) for sender in self.senders]  # others may go on sending all the time
        for sender, records in sent:
            while not all(each.settled for each in records):
                sender.ship()
                self._check(sender, deadline)
                yield Pause(deadline)
        self.is_full()
        raise_first(self.failed)

    # -- the end --------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise Closed after `close`, and in a forked child."""
        self.connection.check_ours()
        if self.closed:
            raise Closed(f"the producer of topic {self.topic.name} was closed; open another one")

    def next_sequence(self, partition: int, deadline: float) -> Steps[int]:
        """The sequence of the next record of a named producer: how many it has sent there, ever."""
        sender = self.sender(partition)
        while not sender.has_room(0) and sender.session is None:
            self._check(sender, deadline)
            yield Pause(deadline)
        assert sender.session is not None, "the sender was opened"
        return sender.session.next_sequence + len(sender.gather.values)

    def close(self, deadline: float) -> Steps[None]:
        """Flush, then stop for good. Batches unsettled at the deadline are abandoned.

        Where a call has raised StillFull, and the broker is still full, it waits for one more try.
        """
        if self.closed:
            return
        if self._told_full and any(sender.met_full for sender in self.senders):
            deadline = min(deadline, self.connection.clock() + CLOSE_FULL_S)
        try:
            yield from self.flush(deadline)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop for good at once: unsettled records may or may not have been appended."""
        failure = Failure(0, Closed.code, f"the producer of topic {self.topic.name} was closed before it was known")
        for sender in self.senders:
            sender.abandon(failure)
        self.closed = True  # last: a close that is interrupted can be repeated

    def _check(self, sender: PartitionSender, deadline: float) -> None:
        """Raise if waiting for a sender is over."""
        if sender.ended is not None or self.connection.refused is not None or self.connection.clock() >= deadline:
            raise self.overdue(sender)

    def overdue(self, sender: PartitionSender) -> Error:
        """Why waiting for a sender is over: what ended it, or TimedOut, which says what it is waiting for."""
        connection, session, trouble = self.connection, sender.session, sender.trouble
        if sender.ended is not None:
            return sender.ended
        if connection.refused is not None:
            return connection.refused
        place = f"partition {sender.partition} of topic {self.topic.name}"
        if trouble is not None and sender.met_full:
            self._told_full = True
            unsent = sender.gather.size + (session.bytes_in_flight if session is not None else 0)
            why = trouble.message.rpartition(": ")[2]  # its beginning names a file of the broker
            return StillFull(f"the broker has no room for {place}: {why}; {unsent} bytes are not confirmed")
        waiting = "its name is not claimed yet"
        if session is not None:
            waiting = (
                f"{session.bytes_in_flight} bytes (batches: {len(session)}) are on their way and not confirmed, "
                f"{sender.gather.size} bytes wait behind them, the window is {self.window_bytes} bytes"
            )
        why = connection.state if trouble is None else f"the broker said: {trouble.message}"
        return TimedOut(f"timed out: sending to {place}: {waiting}; {why}")


class SentBatch:
    """The batches of a send_many in flight: settled ones are dropped as they come; an error stops it."""

    def __init__(self) -> None:
        self.count = 0
        self.waiting: deque[Pending] = deque()

    def add(self, pending: Pending) -> None:
        """Add a piece in flight."""
        self.count += pending.count
        self.waiting.append(pending)
        while self.waiting and self.waiting[0].settled:
            self.waiting.popleft().raise_error()


def _codec(name: str) -> Codec:
    one_of("codec", name, CODECS)
    return CODECS[name]


def _as_value(value: Any) -> tuple[bytes | None, int]:
    """A value as records have it, and its size. Raises InvalidBatch."""
    if value is None:
        return None, 0
    if isinstance(value, (bytearray, memoryview, bytes)):
        return bytes(value), memoryview(value).nbytes
    raise InvalidBatch(f"the value of a record must be bytes, not {type(value).__name__}; text needs .encode()")
