"""How much room the members have on their disks, and what follows from it.

Idea: each member says in its answers to heartbeats how much is free. A leader takes no more records than a majority
have room for above a reserve, so that what is committed without records (leases, acks, cursors, elections) goes on.
What it took since a member spoke, and what is not committed yet, may not be in what that member said, so both are
taken off.
A follower whose reserve is half used up takes no entries until there is room again, and votes on.

Contract: room of another member that is not known counts as that of this one, and as enough where neither is. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ...storage.errors import StorageFull
from ...storage.memory_files import UNBOUNDED
from ...storage.room import RESERVE_BYTES

UNKNOWN = -1
WARN_S = 30.0
"""Between two lines of the log that say that the disk is full."""


def no_room() -> StorageFull:
    """Why no records are taken."""
    return StorageFull(
        f"fewer than a majority of the nodes have {RESERVE_BYTES >> 20} MiB left on their disks: records are taken "
        "again once there is room (penstock cluster status shows it)"
    )


class DiskRoom:
    """Free bytes by member. `own`: of this one, which the driver says."""

    def __init__(self, node: int) -> None:
        self.node = node
        self._free: dict[int, int] = {}
        self._taken = 0  # bytes of records, ever
        self._told: dict[int, int] = {}  # of these, how many were taken when a member spoke
        self._left = UNBOUNDED  # that may be taken until the next look
        self._has_refused = False
        self._warned_s = -inf

    @property
    def own(self) -> int:
        """Free bytes here; the driver says them."""
        return self.of(self.node)

    @own.setter
    def own(self, free: int) -> None:
        self.heard(self.node, free)

    def heard(self, node: int, free: int) -> None:
        """A member said how much it has."""
        self._free[node], self._told[node] = free, self._taken

    def takes(self, size: int) -> bool:
        """As leader, take records of so many bytes, or say that they may not be taken."""
        if size > self._left:
            self._has_refused = True
            return False
        self._taken += size
        self._left -= size
        return True

    def take(self, size: int, now_s: float) -> None:
        """See RecordRoom (broker/engine/ports.py)."""
        if not self.takes(size):
            raise no_room()

    def flushed(self) -> None:
        """See RecordRoom. What is taken counts until a majority says what it has."""

    def of(self, node: int) -> int:
        """What is known of a member."""
        return self._free.get(node, UNKNOWN)

    @property
    def is_full(self) -> bool:
        """Whether this member may take no entries."""
        return 0 <= self.own < RESERVE_BYTES // 2

    def has_reserve(self, node: int) -> bool:
        """Whether a member has room for records."""
        return not 0 <= self.of(node) < RESERVE_BYTES

    def look(self, voters: Iterable[int], uncommitted: int) -> None:
        """See what a majority has above the reserve, when so many bytes are proposed and not committed."""
        above = sorted(map(self._above, voters), reverse=True)
        self._left = above[len(above) // 2] - uncommitted

    def follow(self) -> None:
        """This member does not lead, so nothing is known of the others; once it leads, they begin as it is itself."""
        self._free, self._told = {self.node: self.own}, {self.node: self._taken}
        self._left = self._above(self.node)

    def _above(self, node: int) -> int:
        node = node if self.of(node) >= 0 else self.node
        free = self.of(node)
        return UNBOUNDED if free < 0 else free - RESERVE_BYTES - (self._taken - self._told[node])

    def better(self, voters: Iterable[int]) -> int:
        """The voter with the most room, for a leader that has none for records; 0 where none is known to have it."""
        known = [node for node in voters if self.of(node) >= RESERVE_BYTES]
        return 0 if self.has_reserve(self.node) else max(known, key=self.of, default=0)

    def warning(self, now_s: float) -> str:
        """What the log is to say, where this disk is full or records were refused since the last look; or ""."""
        refused, self._has_refused = self._has_refused, False
        if now_s < self._warned_s + WARN_S or (self.has_reserve(self.node) and not refused):
            return ""
        self._warned_s = now_s
        reserve, left = f"{RESERVE_BYTES >> 20} MiB are for acks, commits and deletions", self.own >> 20
        if self.has_reserve(self.node):
            return (
                f"the disks of a majority are full, and no records are taken ({left} MiB are left here, {reserve}): "
                "trim or delete topics, or make room on them"
            )
        if self.is_full:
            return (
                f"the disk is full: {left} MiB are left here, and below {RESERVE_BYTES // 2 >> 20} this node takes "
                "nothing more, trims and deletions of topics among it: make room on it by other means"
            )
        return (
            f"the disk is full: {left} MiB are left here, {reserve}, and no records are taken while a majority is "
            "full: trim or delete topics, or make room on it"
        )
