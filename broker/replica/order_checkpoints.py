"""When a replica writes its checkpoint, and what goes with it: files of deleted topics, and what retention took.

Idea: after so many entries have been applied, or while files wait for it, all logs are to be synced up to their places,
some at a time, and then a checkpoint at that entry is saved. Opening walks from there. The driver has them
synced with what entries wait for: here a slow disk would hold up the loop.

Contract: a checkpoint is never ahead of what is committed, durable and applied here. Files go only behind it
(departing.py), and segments of the order log only below the older of the two that are kept. Must not know Raft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from ...storage.layout import word
from . import checkpoint as checkpoints
from .checkpoint import Checkpoint, LogPlace
from .places import START

if TYPE_CHECKING:
    from ...storage.files import Files
    from ...storage.log import LogWriter
    from .directories import Members
    from .durable_prefix import DurablePrefix
    from .member_logs import MemberLogs
    from .order_log import OrderLog
    from .places import Places

ENTRIES = 10_000
"""Entries between two checkpoints."""

SEGMENTS = 4
"""Segments of the order log that stay, for members that lag, though checkpoints cover them."""


WAIT_TICKS = 600
"""Files that may go wait so long for a checkpoint, half a minute, where entries are few."""

WAITING_BYTES = 256 << 20
"""Segments of so many bytes do not wait."""

SYNCED_AT_ONCE = 8
"""Logs that a checkpoint waits for at a time: a shard may have thousands, and entries that come meanwhile wait for the
same round of syncs."""


class Checkpointed(Protocol):
    """A replica, as far as a checkpoint concerns it."""

    order: OrderLog
    places: Places
    prefix: DurablePrefix

    @property
    def keeps_files(self) -> bool:
        """Whether no file may go now."""
        ...

    def logs(self) -> list[LogWriter]:
        """Every open log but the order log."""
        ...


class OrderCheckpoints:
    """The checkpoints of one replica."""

    def __init__(
        self, files: Files, store: MemberLogs, last: Checkpoint, members: Members, *, every: int = ENTRIES,
        keep: int = SEGMENTS,
    ) -> None:  # fmt: skip
        """`last`: the newest; `members`: those of the last applied entry."""
        self.entry = last.entry
        self._members = members
        self._changed = last.members() != members  # as an opening may know more than the checkpoint
        self._begun: Checkpoint | None = None  # waits until these are synced up to these batches, the first few now:
        self._unsynced: list[tuple[LogWriter, int]] = []
        self._ticks = 0  # since the last one
        self._keep = keep
        self._files = files
        self._store = store
        self._cluster = last.cluster
        self._every = every

    def change(self, members: Members) -> None:
        """The members are others from the last applied entry on: a checkpoint is due."""
        self._members = members
        self._changed = True

    @property
    def owes_change(self) -> bool:
        """Whether a change of the members may be applied that no checkpoint here covers yet."""
        return self._changed or self._begun is not None

    def hurried(self) -> list[LogWriter]:
        """The logs whose sync a checkpoint waits for, or files that may go, once."""
        hurried = self._store.hurried
        found = [log for log in hurried if not log.closed and log.durable < log.written]
        hurried.clear()
        return found

    def tick(self) -> None:
        """Time passed."""
        self._ticks += 1

    def due(self, replica: Checkpointed) -> bool:
        """Whether enough was applied since the last one, or files have waited for one for long enough."""
        departing = self._store.departing
        if departing and (self._ticks >= WAIT_TICKS or departing.bytes >= WAITING_BYTES) and not replica.keeps_files:
            return True
        return self._changed or replica.places.entry - self.entry >= self._every

    def save(self, replica: Checkpointed) -> Checkpoint:
        """Write a checkpoint of what is applied, at once. Raises StorageFull, Poisoned."""
        for log in replica.logs():
            log.sync()
        replica.order.log.sync()
        replica.prefix.advance(replica.order.log.durable, lambda log_id: 1 << 62)
        return self._finish(replica, self._of(replica))

    def work(self, replica: Checkpointed, *, begin: bool) -> Checkpoint | None:
        """Have a few of the logs synced that the next checkpoint waits for; write and return it once all are.

        `begin`: one of what is applied now, unless one is under way. Raises StorageFull, OSError.
        """
        if self._begun is None:
            if not begin:
                return None
            self._begun = self._of(replica)
            places = self._begun.places()
            found = [(log, places.get(log.log_id, START)[0]) for log in replica.logs()]
            self._unsynced = [(log, seq) for log, seq in found if log.durable < seq]
            self._hurry()
        while some := self._unsynced[:SYNCED_AT_ONCE]:
            if any(log.closed for log, _ in some):  # its topic was deleted, so the next checkpoint is without it
                self._begun, self._changed = None, True
                return None
            if any(log.durable < seq for log, seq in some):
                return None
            del self._unsynced[:SYNCED_AT_ONCE]
            self._hurry()
        return self._finish(replica, self._begun)

    def _hurry(self) -> None:
        for log, _ in self._unsynced[:SYNCED_AT_ONCE]:
            self._store.hurry(log)

    def _of(self, replica: Checkpointed) -> Checkpoint:
        """What is applied now, all of which is durable in the order."""
        order, places = replica.order, replica.places
        entry = places.entry
        places.forget(self._store.deleted_logs(entry))
        term = order.term(entry)
        assert term is not None
        self._changed = False
        return Checkpoint(
            cluster=self._cluster,
            entry=entry,
            term=term,
            checksum=order.checksum(entry),
            commit=entry,
            acked=0,
            configuration=msgspec.msgpack.encode(self._members.configuration),
            logs=[LogPlace(log_id, *place) for log_id, place in sorted(places.applied.items())],
            directories=self._members.directories,
        )

    def _finish(self, replica: Checkpointed, made: Checkpoint) -> Checkpoint:
        order, store = replica.order, self._store
        acked = word(order.log.generation, replica.prefix.entry)
        made = msgspec.structs.replace(made, commit=min(order.commit, replica.prefix.entry), acked=acked)
        older = checkpoints.save(self._files, order.log.path, order.log.log_id, made)
        order.note_acked(replica.prefix.entry)  # what follows may only become durable with what the checkpoint says
        self.entry, self._begun, self._ticks = made.entry, None, 0
        if not replica.keeps_files:
            store.erase(made.entry)
            store.retire_order(order.log, order.spent(older, self._keep))
        return made
