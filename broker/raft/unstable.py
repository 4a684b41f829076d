"""The end of the log that the storage does not have yet. Pure.

Idea: entries and at most one snapshot wait here from the moment the core accepts them until their write is confirmed.
A part of them may be in progress: handed out for writing. A confirmation names index and term of the last entry
written, and counts only while the entry here is that one: an older write of the same place may still be followed by a
newer one, and reading the storage in between would show the older.

Invariant: `entries[i].index == offset + i`; `offset <= begun <= offset + len(entries)`.
"""

from __future__ import annotations

from .messages import Entry, Snapshot


class Unstable:
    """Entries from `offset` on, and a snapshot just before them when one is to be installed."""

    __slots__ = ("begun", "entries", "offset", "snapshot", "snapshot_begun")

    def __init__(self, offset: int) -> None:
        self.entries: list[Entry] = []
        self.offset = offset
        self.begun = offset  # entries below are being written
        self.snapshot: Snapshot | None = None
        self.snapshot_begun = False

    def last(self) -> int | None:
        """The last index here; None when nothing is."""
        if self.entries:
            return self.offset + len(self.entries) - 1
        return self.snapshot.index if self.snapshot else None

    def term(self, index: int) -> int | None:
        """The term of an entry that is here, or of the snapshot."""
        place = index - self.offset
        if place >= 0:
            return self.entries[place].term if place < len(self.entries) else None
        return self.snapshot.term if self.snapshot and self.snapshot.index == index else None

    def waiting(self) -> list[Entry]:
        """Entries whose write has not begun."""
        return self.entries[self.begun - self.offset :]

    def waiting_snapshot(self) -> Snapshot | None:
        """The snapshot, unless its write has begun."""
        return None if self.snapshot_begun else self.snapshot

    def has_waiting(self) -> bool:
        """Something here has to be written yet."""
        return self.begun - self.offset < len(self.entries) or self.waiting_snapshot() is not None

    def begin(self) -> None:
        """All that is here has been handed out for writing."""
        self.begun = self.offset + len(self.entries)
        self.snapshot_begun = self.snapshot is not None

    def stored(self, index: int, term: int) -> None:
        """The storage has everything up to this entry."""
        place = index - self.offset
        if place < 0 or self.term(index) != term:
            return
        del self.entries[: place + 1]
        self.offset = index + 1
        self.begun = max(self.begun, self.offset)

    def stored_snapshot(self, index: int) -> None:
        """The snapshot at `index` is installed."""
        if self.snapshot and self.snapshot.index == index:
            self.snapshot = None
            self.snapshot_begun = False

    def restore(self, snapshot: Snapshot) -> None:
        """Begin behind a snapshot; what was here is void."""
        self.entries = []
        self.offset = self.begun = snapshot.index + 1
        self.snapshot = snapshot
        self.snapshot_begun = False

    def append(self, entries: list[Entry]) -> None:
        """Take entries in; those here from the first of them on are replaced."""
        first = entries[0].index
        if first <= self.offset:
            self.entries = entries[:]
            self.offset = self.begun = first
        else:
            del self.entries[first - self.offset :]
            self.entries += entries
            self.begun = min(self.begun, first)
