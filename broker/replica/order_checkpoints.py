"""When a replica writes its checkpoint, and what goes with it: files of topics that were deleted.

Idea: after so many entries have been applied, all logs are synced up to their places, and a checkpoint at that entry is
saved. Opening walks from there.

Contract: a checkpoint is never ahead of what is committed, durable and applied here. Files of a deleted topic go only
behind it, and segments of the order log only below the older of the two that are kept. Must not know Raft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from ...storage.layout import word
from . import checkpoint as checkpoints
from .checkpoint import Checkpoint, LogPlace

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


class Checkpointed(Protocol):
    """A replica, as far as a checkpoint concerns it."""

    order: OrderLog
    places: Places
    prefix: DurablePrefix

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
        self._changed = False
        self.held = False
        """While another member fetches what a checkpoint names: no file goes."""
        self._keep = keep
        self._files = files
        self._store = store
        self._cluster = last.cluster
        self._every = every

    def change(self, members: Members) -> None:
        """The members are others from the last applied entry on: a checkpoint is due."""
        self._members = members
        self._changed = True

    def due(self, replica: Checkpointed) -> bool:
        """Whether enough was applied since the last one."""
        return self._changed or replica.places.entry - self.entry >= self._every

    def save(self, replica: Checkpointed) -> Checkpoint:
        """Write a checkpoint of what is applied. Raises StorageFull, Poisoned."""
        order, places, store = replica.order, replica.places, self._store
        entry = places.entry
        for log in replica.logs():
            log.sync()
        order.log.sync()
        replica.prefix.advance(order.log.durable, lambda log_id: 1 << 62)
        gone = store.deleted_logs(entry)
        places.forget(gone)
        term = order.term(entry)
        assert term is not None
        made = Checkpoint(
            cluster=self._cluster,
            entry=entry,
            term=term,
            checksum=order.checksum(entry),
            commit=order.commit,
            acked=word(order.log.generation, replica.prefix.entry),
            configuration=msgspec.msgpack.encode(self._members.configuration),
            logs=[LogPlace(log_id, *place) for log_id, place in sorted(places.applied.items())],
            directories=self._members.directories,
        )
        older = checkpoints.save(self._files, order.log.path, order.log.log_id, made)
        self.entry, self._changed = entry, False
        if not self.held:
            store.erase(entry)
            store.retire(order.log, order.spent(older, self._keep))
        return made
