"""The consumer's side of one session: assigned partitions, received deliveries, and the application's position.

    Joined/Assigned -> partitions under an epoch
    Deliver ---------> in order, once, under the current epoch -> Delivery -> handed out -> committed
    revoked ---------> nothing more is handed out -> commit -> Release

Idea: deliveries and assignments may travel by different sockets and overtake each other, so the epoch, not the order
of arrival, decides: an older one is dropped, a newer one waits for its assignment.

Contract: a Delivery is handed out at most once and only while `is_current`; positions of a partition never fall under
one epoch: committed <= position <= fetched. `receive` takes deliveries of a push or the control port, `take` the
records a mapped member read itself. A lost or evicted session is over; joining again makes a new one. Pure: no
sockets, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from .credit import CreditWindow
from .errors import DeliveryGap
from .messages import Assigned, Assignment, Credit, Deliver, Joined, Position, Release

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


NOT_COMMITTED = -1

REMOVED = "removed by retention"
"""Why records are missing that nothing is wrong with."""


class Delivery(Struct, frozen=True, eq=False):
    """Whole batches of one partition with records [offset, next_offset) for the application."""

    partition: int
    epoch: int
    offset: int
    next_offset: int
    payload: Buffer
    records: int  # charged to the credit, 0 when no credit is involved
    missing: str = ""  # why there are none: what is wrong with these records, or that retention removed them
    accepted: bool = False  # what is wrong with them was accepted


class PartitionView(Struct):
    """One assigned partition. Invariant: committed <= position <= fetched, all next offsets.

    `committed` is NOT_COMMITTED after a seek, until the new position is committed; `cursor` is the group's.
    """

    partition: int
    epoch: int
    term: int
    committed: int
    position: int  # handed out to the application
    fetched: int  # received or read
    end: int  # committed end of the partition as last heard
    revoked: bool = False
    paused: bool = False  # nothing of it is handed out under this epoch
    cursor: int = NOT_COMMITTED  # as last heard

    @property
    def lag(self) -> int:
        """Records the application has yet to see, as last heard."""
        return self.end - self.position

    @property
    def closed(self) -> bool:
        """Whether nothing of it is handed out now."""
        return self.revoked or self.paused


class ConsumerSession:
    """See the module. One object per Joined."""

    def __init__(self, joined: Joined, *, window_bytes: int, window_records: int) -> None:
        self.session = joined.session
        self.partitions: dict[int, PartitionView] = {}
        self.dropped = 0  # deliveries that were stale or repeated
        self.changes = 0  # how often the partitions that may be read, or their epochs, became others
        self.revoked: list[int] = []
        """Partitions to release once the application is between records and its position is committed."""
        self.taken: list[PartitionView] = []
        """Partitions that were taken and given anew, as they were. The caller takes them off."""
        self._credit = CreditWindow(joined.session, window_bytes, window_records)
        self._number = 0
        self._epochs: dict[int, int] = {}  # newest seen of every partition ever assigned
        self._early: list[Deliver] = []
        self._early_payloads: list[Buffer] = []
        self._assign(joined.assignments)

    # -- what may be read ---------------------------------------------------------------------------

    def assigned(self, message: Assigned) -> list[Delivery]:
        """Take on new partitions and epochs; returns deliveries that had come too early."""
        if message.session != self.session:
            return []
        self._assign(message.assignments, message.revoked)
        for partition in message.revoked:
            if partition in self.partitions:
                self.partitions[partition].revoked = True
        self._changed()
        return self._retry_early()

    def release(self, partitions: Iterable[int]) -> Release:
        """Release partitions: the message to send. What is still queued of them is stale from now on."""
        released = list(partitions)
        for partition in released:
            self.partitions.pop(partition, None)
        self._changed()
        return Release(self.session, released)

    def pause(self, partition: int) -> None:
        """Hand out nothing more of a partition under its present epoch; what is queued of it is stale from now on."""
        self.partitions[partition].paused = True
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self.revoked = [view.partition for view in self.partitions.values() if view.revoked]

    def _assign(self, assignments: Iterable[Assignment], revoked: Collection[int] = ()) -> None:
        for given in assignments:
            if given.epoch < self._epochs.get(given.partition, 0):
                continue
            current = self.partitions.get(given.partition)
            if current is not None and current.epoch == given.epoch:
                continue  # said again: positions have moved on since
            if current is not None and current.revoked and given.partition not in revoked:
                self.taken.append(current)  # it was not released in time, and comes back
                current = None
            self._epochs[given.partition] = given.epoch
            at = given.offset
            # A new epoch for what we have is a seek: its position is not the group's cursor until committed.
            committed, cursor = (at, at) if current is None else (NOT_COMMITTED, current.cursor)
            view = PartitionView(given.partition, given.epoch, given.term, committed, at, at, at, cursor=cursor)
            self.partitions[given.partition] = view

    # -- what comes ---------------------------------------------------------------------------------

    def receive(self, message: Deliver, payload: Buffer) -> list[Delivery]:
        """Take a Deliver; returns deliveries for the application, none if it is stale, repeated or early.

        Raises DeliveryGap when one before it was lost: the session has to be joined again.
        """
        if message.session != self.session or message.number <= self._number:
            self.dropped += 1
            return []
        if message.number != self._number + 1:
            raise DeliveryGap(
                f"session {self.session}: delivery {message.number} came after {self._number}; "
                f"{message.number - self._number - 1} were lost"
            )
        self._number = message.number
        self._credit.received(len(payload), message.records)
        return self._sort(message, payload)

    def take(
        self, view: PartitionView, offset: int, next_offset: int, payload: Buffer, missing: str = "",
        accepted: bool = False,
    ) -> Delivery:  # fmt: skip
        """Record what a mapped member read by itself from `offset`, `fetched` or beyond. Costs no credit."""
        taken = Delivery(view.partition, view.epoch, offset, next_offset, payload, 0, missing, accepted)
        view.fetched = next_offset
        if next_offset > view.end:
            view.end = next_offset
        return taken

    def _sort(self, message: Deliver, payload: Buffer) -> list[Delivery]:
        newest = self._epochs.get(message.partition, -1)
        view = self.partitions.get(message.partition)
        if message.epoch > newest:
            self._early.append(message)
            self._early_payloads.append(payload)
            return []
        if view is None or message.epoch < newest or view.closed or message.next_offset <= view.fetched:
            self.dropped += 1
            self._credit.finished(len(payload), message.records)
            return []
        before = view.fetched
        offset = max(message.offset, before)
        view.fetched = message.next_offset
        view.end = max(view.end, message.end, message.next_offset)
        found = [Delivery(view.partition, view.epoch, offset, message.next_offset, payload, message.records)]
        if offset > before:
            reason = message.damage or REMOVED
            found.insert(0, Delivery(view.partition, view.epoch, before, offset, b"", 0, reason, message.accepted))
        return found

    def _retry_early(self) -> list[Delivery]:
        waiting = list(zip(self._early, self._early_payloads, strict=True))
        self._early, self._early_payloads = [], []
        return [ready for message, payload in waiting for ready in self._sort(message, payload)]

    # -- what the application does ------------------------------------------------------------------

    def is_current(self, delivery: Delivery) -> bool:
        """Whether `delivery` may still be handed out: its partition is ours, same epoch, not revoked, not paused."""
        view = self.partitions.get(delivery.partition)
        return view is not None and view.epoch == delivery.epoch and not (view.revoked or view.paused)

    def handed_out(self, delivery: Delivery, next_offset: int | None = None) -> None:
        """The application was given the records of `delivery` below `next_offset` (all, when None)."""
        view = self.partitions.get(delivery.partition)
        if view is not None and view.epoch == delivery.epoch:
            position = delivery.next_offset if next_offset is None else next_offset
            if position > view.position:
                view.position = position
            assert view.position <= view.fetched, f"partition {view.partition} was handed out before it was read"

    def finished(self, delivery: Delivery) -> bool:
        """Its memory is free again, handed out or not. Exactly once per Delivery. Returns whether credit is due."""
        return delivery.records > 0 and self._credit.finished(len(delivery.payload), delivery.records)

    def credit_due(self) -> Credit | None:
        """A Credit worth sending now, else None."""
        return self._credit.due()

    def sign_of_life(self) -> Credit:
        """A message that only says that this session is alive."""
        return self._credit.current()

    @property
    def outstanding(self) -> tuple[int, int]:
        """Bytes and records received and not finished."""
        return self._credit.outstanding

    # -- positions ----------------------------------------------------------------------------------

    def to_commit(self) -> list[Position]:
        """Cursors that would move, revoked partitions included."""
        moved = (view for view in self.partitions.values() if view.position > view.committed)
        return [Position(view.partition, view.position, view.epoch) for view in moved]

    def committed(self, positions: Iterable[Position]) -> None:
        """The broker made these durable. Those of an older epoch say nothing about the current one."""
        for position in positions:
            view = self.partitions.get(position.partition)
            if view is not None and view.epoch == position.epoch:
                view.committed = max(view.committed, position.offset)
                view.cursor = position.offset

    def positions(self) -> list[tuple[int, int]]:
        """Partition and next offset for the application: where to join again without a group."""
        return [(view.partition, view.position) for view in self.partitions.values()]
