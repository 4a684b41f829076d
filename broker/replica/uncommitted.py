"""What a leader has proposed and not applied yet: how much that is, and whether it is too much.

Idea: proposals stand in memory until a majority has them, so a leader whose followers are slow would grow as fast as
clients send. Beyond the limit it proposes nothing and its clients are not heard, until entries are applied.

Contract: entries are proposed, applied and cut in their order. Pure.
"""

from __future__ import annotations

from collections import deque

UNCOMMITTED_BYTES = 256 << 20
"""Of entries that are proposed and not applied: beyond it, the leader lets clients wait."""


class Uncommitted:
    """See the module. Invariant: `bytes` is the sum of the proposals that are there."""

    def __init__(self) -> None:
        self.bytes = 0
        self._proposals: deque[tuple[int, int]] = deque()  # index and bytes

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be proposed."""
        return self.bytes > UNCOMMITTED_BYTES

    def proposed(self, index: int, size: int) -> None:
        """An entry of so many bytes was proposed."""
        self._proposals.append((index, size))
        self.bytes += size

    def applied(self, index: int) -> None:
        """Everything up to this entry is applied."""
        while self._proposals and self._proposals[0][0] <= index:
            self.bytes -= self._proposals.popleft()[1]

    def cut(self, index: int) -> None:
        """Another leader has other entries behind this one."""
        while self._proposals and self._proposals[-1][0] > index:
            self.bytes -= self._proposals.pop()[1]
