"""A log in memory behind a Raft node: what the core asks of a storage, and what its surroundings do with it."""

from __future__ import annotations

from penstock.broker.raft.log_view import bounded
from penstock.broker.raft.messages import ConfState, Entry, Promise, Snapshot


class MemoryLog:
    """Entries behind a snapshot. `snapshots` is what may be sent to others, newest last."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.promise = Promise()
        self.base = snapshot or Snapshot(0, 0, ConfState())
        self.stored: list[Entry] = []
        self.snapshots = [snapshot] if snapshot else []

    # --- what the core asks

    def initial_state(self) -> tuple[Promise, ConfState]:
        return self.promise, self.base.configuration

    def first_index(self) -> int:
        return self.base.index + 1

    def last_index(self) -> int:
        return self.base.index + len(self.stored)

    def term(self, index: int) -> int | None:
        if index == self.base.index:
            return self.base.term
        place = index - self.base.index - 1
        return self.stored[place].term if 0 <= place < len(self.stored) else None

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry] | None:
        first = self.first_index()
        return None if low < first else bounded(self.stored[low - first : high - first], max_bytes)

    def snapshot(self, at_least: int) -> Snapshot | None:
        newest = self.snapshots[-1] if self.snapshots else None
        return newest if newest and newest.index >= at_least else None

    # --- what the surroundings do

    def append(self, entries: list[Entry]) -> None:
        """Entries replace those from the first of them on; those of a compacted place are left out."""
        entries = [entry for entry in entries if entry.index > self.base.index]
        if entries:
            place = entries[0].index - self.first_index()
            assert place <= len(self.stored), f"a gap before entry {entries[0].index}"
            self.stored[place:] = entries

    def install(self, snapshot: Snapshot) -> None:
        """Begin behind a snapshot; one that is older than the log's own changes nothing."""
        if snapshot.index > self.base.index:
            self.base = snapshot
            self.stored = []
            self.snapshots.append(snapshot)

    def compact(self, index: int) -> None:
        """Drop entries up to `index`."""
        term = self.term(index)
        assert term is not None
        self.stored = self.stored[index - self.base.index :]
        self.base = Snapshot(index, term, self.base.configuration)
