"""How much room the members have on their disks, and what follows from it.

Idea: each member says in its answers to heartbeats how much is free. A leader takes no more records while fewer than a
majority have room above a reserve, so that what is committed without records (leases, acks, cursors, elections) goes
on. A follower whose reserve is half used up takes no entries until there is room again, and votes on.

Contract: room that is not known counts as enough. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...storage.errors import StorageFull

RESERVE_BYTES = 64 << 20
"""What is kept for everything but records."""

UNKNOWN = -1


def no_room() -> StorageFull:
    """Why no records are taken."""
    return StorageFull(
        f"fewer than a majority of the nodes have {RESERVE_BYTES >> 20} MiB left on their disks: records are taken "
        "again once there is room (penstock cluster status shows it)"
    )


class DiskRoom:
    """Free bytes by member. `own`: of this one, which the driver says."""

    def __init__(self, node: int) -> None:
        self.own = UNKNOWN
        self._node = node
        self._others: dict[int, int] = {}

    def heard(self, node: int, room: int) -> None:
        """A member said how much it has."""
        self._others[node] = room

    def of(self, node: int) -> int:
        """What is known of a member."""
        return self.own if node == self._node else self._others.get(node, UNKNOWN)

    @property
    def is_full(self) -> bool:
        """Whether this member may take no entries."""
        return 0 <= self.own < RESERVE_BYTES // 2

    def has_reserve(self, node: int) -> bool:
        """Whether a member has room for records."""
        return not 0 <= self.of(node) < RESERVE_BYTES

    def is_enough(self, voters: Iterable[int]) -> bool:
        """Whether a majority has room for records."""
        having = [self.has_reserve(node) for node in voters]
        return 2 * sum(having) > len(having)

    def better(self, voters: Iterable[int]) -> int:
        """The voter with the most room, for a leader that has none for records; 0 where none is known to have it."""
        known = [node for node in voters if self.of(node) >= RESERVE_BYTES]
        return 0 if self.has_reserve(self._node) else max(known, key=self.of, default=0)
