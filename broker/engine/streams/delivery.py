"""Delivery: sends records to sessions, within their credit.

Idea: the log is the only queue. A session has streams, one per partition it reads, and credit in absolute totals;
`pump` reads one chunk, sends it, and goes on while there is credit, data and room at the peer. Streams that may have
something to read are marked, so a session with a thousand partitions costs only those that moved.

Contract: nothing is read without credit, nor for a connection that is known to be full. What could not be sent is
dropped and read again, so a session holds no records. Chunks are whole batches: credit in bytes is overdrawn by one
batch at most, credit in records by one chunk. Deliveries are numbered 1, 2, 3 ... per session, and each number is sent
once. Must not know groups, or how bytes travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....storage.errors import AcceptedLoss, Corrupt, StorageError
from ....transport.messages import Deliver
from ..ports import COLD, Payload, Port

if TYPE_CHECKING:
    from ....storage.reader import Chunk, Cursor
    from ..logs.partition import Partition

TURN = 16
"""Chunks per session and turn: one fast reader with much credit does not keep the others waiting."""


class Way(Protocol):
    """How the deliveries of a session travel."""

    def is_full(self, port: Port) -> bool:
        """Whether it is known to take nothing now."""
        ...

    def send(self, port: Port, message: Deliver, payload: Payload) -> bool:
        """Send a delivery. False: it was not taken."""
        ...


class Stream:
    """One partition being read by one session, from `position` on."""

    __slots__ = (
        "accepted", "cold", "cursor", "damage", "epoch", "failed", "outlet", "partition", "paused", "position",
        "revoked", "told",
    )  # fmt: skip

    def __init__(self, outlet: Outlet, partition: Partition, epoch: int, position: int) -> None:
        self.outlet = outlet
        self.partition = partition
        self.epoch = epoch
        self.position = position
        self.told = position  # the reader knows of everything before
        self.cursor: Cursor | None = None
        self.cold = False  # waits for pages
        self.failed = False  # could not read
        self.revoked = False  # to be released: nothing more is sent
        self.paused = False  # by its reader: nothing is sent until it resumes
        self.damage = ""  # what is wrong with the records before `position`, until the reader is told
        self.accepted = False  # the loss of all of that was accepted

    def move(self, epoch: int, position: int, paused: bool) -> None:
        """Go on elsewhere, under a new epoch."""
        self.epoch, self.position, self.told, self.paused = epoch, position, position, paused
        self.cursor, self.cold, self.failed = None, False, False
        self.damage, self.accepted = "", False
        self.partition.unreadable.discard(self)

    def back(self, message: Deliver) -> None:
        """What was read last was not sent: read it again."""
        self.position, self.told, self.cursor = message.offset, message.offset - 1, None
        self.damage, self.accepted = message.damage, message.accepted

    def again(self) -> None:
        """The pages it waited for are in memory, or what failed is tried again."""
        self.cold = self.failed = False
        if self.outlet.streams.get(self.partition.number) is self:
            self.outlet.moved(self.partition.number)

    def read(self, port: Port, max_bytes: int) -> tuple[Payload, int] | None:
        """The next batches that have records for the reader, and the first offset; None when there is nothing now.

        There are none, and the reader is told, when damage or retention took all that is left. What cannot be read
        is tried again with the outlet's `failing`, and until then the partition says so.
        """
        partition = self.partition
        if self.paused:
            return None
        while not (self.revoked or self.failed or self.cold) and self.position < partition.end:
            try:
                chunk = self._next(port, max_bytes)
            except Corrupt as damage:
                self._around(damage)
                continue
            except (StorageError, OSError):
                self.cursor = None
                self._fail()
                continue
            if chunk is None:
                break
            if partition.unreadable:
                partition.unreadable.discard(self)
            offset, self.position = self.position, max(self.position, chunk.next_offset)
            if self.position > offset:
                return chunk.buffer, max(offset, chunk.offset)
        if self.told < self.position == partition.end and not (self.revoked or self.cold):
            return b"", self.position
        return None

    def _next(self, port: Port, max_bytes: int) -> Chunk | None:
        if self.position < self.partition.first:
            self.cursor, self.position = None, self.partition.first
        if self.cursor is None:
            self.cursor = self.partition.cursor(self.position)
        chunk = port.read(self.cursor, max_bytes, self.partition.seq, self)
        if chunk is COLD:
            self.cold = True
            return None
        return chunk

    def _around(self, damage: Corrupt) -> None:
        beyond = self.partition.around(damage, self.position)
        self.cursor = None
        if beyond is None:
            self._fail()
        else:
            self.accepted = isinstance(damage, AcceptedLoss) and (self.accepted or not self.damage)
            self.position, self.damage = beyond, damage.message

    def _fail(self) -> None:
        self.failed = True
        self.partition.unreadable.add(self)
        self.outlet.failing[self] = None


class Outlet:
    """The delivering side of one session: credit, numbering, and whose turn it is."""

    def __init__(
        self, session: int, chunk_bytes: int, credit_bytes: int, credit_records: int, failing: dict[Stream, None]
    ) -> None:
        """`failing` are the streams of all outlets that could not read, to be tried again."""
        self.session = session
        self.failing = failing
        self.credit_bytes = credit_bytes
        self.credit_records = credit_records
        self.sent_bytes = 0
        self.sent_records = 0
        self.number = 0
        self.blocked = False  # the peer takes nothing
        self.streams: dict[int, Stream] = {}
        self._chunk_bytes = chunk_bytes
        self._ready: dict[int, None] = {}  # partitions that may have something to read, each in its turn

    def open(self, partition: Partition, epoch: int, position: int) -> Stream:
        """Begin to read a partition; one read before is replaced."""
        self.close(partition.number)
        stream = self.streams[partition.number] = Stream(self, partition, epoch, position)
        self._ready[partition.number] = None
        return stream

    def close(self, partition: int) -> Stream | None:
        """Stop reading a partition."""
        self._ready.pop(partition, None)
        stream = self.streams.pop(partition, None)
        if stream is not None:
            stream.partition.unreadable.discard(stream)
        return stream

    def stop(self, partition: int) -> None:
        """Send nothing more of a partition that is to be released."""
        if partition in self.streams:
            self.streams[partition].revoked = True

    def move(self, partition: int, epoch: int, position: int, *, paused: bool = False) -> None:
        """Go on elsewhere in a partition, under a new epoch, or wait there."""
        self.streams[partition].move(epoch, position, paused)
        self._ready[partition] = None

    def moved(self, partition: int) -> None:
        """Note that a partition may have more to read."""
        self._ready[partition] = None

    def grant(self, total_bytes: int, total_records: int) -> None:
        """New totals; older ones that arrive late change nothing."""
        self.credit_bytes = max(self.credit_bytes, total_bytes)
        self.credit_records = max(self.credit_records, total_records)

    @property
    def out_of_credit(self) -> bool:
        """Whether everything that the reader asked for was sent."""
        return self.sent_bytes >= self.credit_bytes or self.sent_records >= self.credit_records

    def pump(self, port: Port, way: Way) -> bool:
        """Send what may be sent. Returns True when there may be more to send in the next turn."""
        self.blocked = False
        for _ in range(TURN):
            if self.out_of_credit or not self._ready:
                return False
            if way.is_full(port):
                self.blocked = True
                return False
            found = self._next(port)
            if found is None:
                return False
            message, payload = found
            if not way.send(port, message, payload):
                self.blocked = True
                self.streams[message.partition].back(message)
                self._ready[message.partition] = None
                return False
            self.sent_bytes += len(payload)
            self.sent_records += message.records
            self.number = message.number
        return True

    def _next(self, port: Port) -> tuple[Deliver, Payload] | None:
        ready = self._ready
        size = min(self._chunk_bytes, self.credit_bytes - self.sent_bytes)
        while ready:
            number = next(iter(ready))
            del ready[number]
            stream = self.streams[number]
            found = stream.read(port, size)
            if found is not None:
                payload, offset = found
                position, end = stream.position, stream.partition.end
                if position < end:
                    ready[number] = None  # the others come first
                message = Deliver(
                    self.session, self.number + 1, number, stream.epoch, offset, position, end, position - offset,
                    stream.damage, stream.accepted,
                )  # fmt: skip
                stream.damage, stream.accepted, stream.told = "", False, position
                return message, payload
        return None
