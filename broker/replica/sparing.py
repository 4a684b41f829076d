"""Which member may close for damage that it has found while it was up: one at a time, while the others are a majority.

Idea: a follower says with its answers to heartbeats that it has damage, and the leader says with a heartbeat that it
may close. Two members that close at once may leave no majority, which could then bring neither up to date.

Contract: the leader lets no second one close before the first has answered again without damage, or is silent for
`SILENT_TICKS`, after which it counts as gone. Pure.
"""

from __future__ import annotations

from ...storage.errors import Corrupt

SILENT_TICKS = 100


class Sparing:
    """Both sides of it. `found`: the damage that this member waits to close for."""

    def __init__(self) -> None:
        self.found: Corrupt | None = None
        self.away = 0
        """The member that may close, or has closed; 0 for none."""
        self._silent = 0  # ticks since it was heard
        self._damaged: set[int] = set()

    def tick(self, *, leads: bool) -> None:
        """Time passed. Only a leader lets others close."""
        self._silent += 1
        if not leads:
            self._damaged.clear()
        if not leads or self._silent > SILENT_TICKS:
            self.away = 0

    def heard(self, node: int, *, is_damaged: bool) -> None:
        """A follower answered."""
        if is_damaged:
            self._damaged.add(node)
        else:
            self._damaged.discard(node)
        if node == self.away:
            self._silent = 0
            self.away = node if is_damaged else 0

    def is_damaged(self, node: int) -> bool:
        """Whether a member has said that it has damage, or may be closed for it."""
        return node in self._damaged or node == self.away

    def lets_close(self, node: int, *, others_suffice: bool) -> bool:
        """Whether a follower may close now."""
        if node not in self._damaged or not others_suffice or self.away not in (0, node):
            return False
        self.away, self._silent = node, 0
        return True
