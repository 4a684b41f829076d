"""The durable prefix: the last entry up to which everything is synced that a crash could take.

Idea: an entry is durable here once the order log is synced up to it, and each batch up to it that is only named is
synced in its own log. Batches inside entries do not count: they are appended again from there, so a small flush
over many logs costs one sync.

Contract: the prefix moves back only by `cut`. Memory: one item for each entry that names batches and is not durable.
Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence


class DurablePrefix:
    """The prefix of one order log. `entry` is the last durable one."""

    def __init__(self, entry: int) -> None:
        """Everything up to `entry` is durable."""
        self.entry = entry
        self._named: deque[tuple[int, Sequence[tuple[bytes, int]]]] = deque()

    def appended(self, entry: int, named: Sequence[tuple[bytes, int]]) -> None:
        """An entry was appended; `named` has log id and seq of each batch that only its own log has."""
        if named:
            self._named.append((entry, named))

    def advance(self, order: int, durable: Callable[[bytes], int]) -> int:
        """The prefix by now: the order log is synced to `order`, and log `id` to `durable(id)`."""
        named = self._named
        while named:
            entry, batches = named[0]
            if entry > order or any(durable(log_id) < seq for log_id, seq in batches):
                break
            named.popleft()
        self.entry = max(self.entry, min(order, named[0][0] - 1) if named else order)
        return self.entry

    def cut(self, entry: int) -> None:
        """Entries above `entry` are taken back."""
        while self._named and self._named[-1][0] > entry:
            self._named.pop()
        self.entry = min(self.entry, entry)

    def waiting(self) -> set[bytes]:
        """The logs that the next entries wait for."""
        return {log_id for _, batches in self._named for log_id, _ in batches}
