"""What the core asks of the log behind it. Pure.

Idea: reading only. Writing is the surroundings' part, by each Ready. The core never asks twice for what it still
holds itself, and a write counts as in the log once the surroundings say so (`advance`, or STORED).

Contract: entry 0 does not exist and has term 0. The entry just before `first_index` (of the snapshot that the log
begins behind) still has a term. Nothing here waits; an error it raises passes through the core, which must not be used
after that.
"""

from __future__ import annotations

from typing import Protocol

from .messages import ConfState, Entry, Promise, Snapshot


class Storage(Protocol):
    """The synced and written part of this node's log."""

    def initial_state(self) -> tuple[Promise, ConfState]:
        """The promise at opening, and the configuration as of the last applied entry."""
        ...

    def first_index(self) -> int:
        """The index of the oldest entry; one more than `last_index` when there is none."""
        ...

    def last_index(self) -> int:
        """The index of the newest entry."""
        ...

    def term(self, index: int) -> int | None:
        """The term of an entry from `first_index() - 1` on; None when the log no longer or not yet has it."""
        ...

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry] | None:
        """Entries low to high - 1, fewer when they exceed `max_bytes`, one at least; None when low is compacted."""
        ...

    def snapshot(self, at_least: int) -> Snapshot | None:
        """The newest snapshot, at entry `at_least` or above; None when there is none yet: the core asks again."""
        ...
