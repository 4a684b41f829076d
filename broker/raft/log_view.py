"""The log as the core sees it: what the storage has, and behind it what is not stored yet. Pure.

Idea: three marks move along it: `applied` <= `applying` <= `committed`. Only entries up to `committed` are handed out
for applying, in order and once; a bound in bytes says how many may be out at a time.

Invariant: `committed` never goes back and never exceeds the last entry; nothing at or below it is replaced.
"""

from __future__ import annotations

from .errors import Broken, EntriesLost
from .messages import ENTRY_OVERHEAD, Entry, EntryKind, Snapshot, total_bytes
from .storage import Storage
from .unstable import Unstable

UNBOUNDED = 2**63 - 1


class LogView:
    """Storage and unstable part as one."""

    __slots__ = (
        "_max_applying",
        "_storage",
        "_waits",
        "applied",
        "applying",
        "applying_bytes",
        "committed",
        "unstable",
    )

    def __init__(self, storage: Storage, commit: int, applied: int, max_applying: int) -> None:
        base, last = storage.first_index() - 1, storage.last_index()
        self._storage = storage
        self._max_applying = max_applying
        self._waits = False  # no more is handed out until something of it is applied
        self.unstable = Unstable(last + 1)
        self.committed = max(commit, base)
        self.applied = self.applying = max(applied, base)
        self.applying_bytes = 0
        if not self.applied <= self.committed <= last:
            raise Broken(f"applied {self.applied}, committed {self.committed} and last entry {last} are out of order")

    def first(self) -> int:
        """The oldest entry there is."""
        snapshot = self.unstable.snapshot
        return snapshot.index + 1 if snapshot else self._storage.first_index()

    def last(self) -> int:
        """The newest entry, stored or not."""
        last = self.unstable.last()
        return self._storage.last_index() if last is None else last

    def last_term(self) -> int:
        """The term of the newest entry."""
        term = self.term(self.last())
        if term is None:
            raise Broken(f"the last entry, {self.last()}, has no term")
        return term

    def term(self, index: int) -> int | None:
        """The term of an entry; None when the log no longer or not yet has it."""
        term = self.unstable.term(index)
        if term is not None:
            return term
        if index + 1 < self.first() or index > self.last():
            return None
        return self._storage.term(index)

    def has(self, index: int, term: int) -> bool:
        """The entry at `index` is of this term."""
        return self.term(index) == term

    def up_to_date(self, index: int, term: int) -> bool:
        """A log that ends with this entry has all that this one may have committed."""
        return (term, index) >= (self.last_term(), self.last())

    def entries(self, low: int, high: int, max_bytes: int) -> list[Entry] | None:
        """Entries low to high - 1, fewer when they exceed `max_bytes`, one at least; None when low is compacted."""
        if low < self.first():
            return None
        if low >= high:
            return []
        offset = self.unstable.offset
        if low >= offset:
            return bounded(self.unstable.entries[low - offset : high - offset], max_bytes)
        cut = min(high, offset)
        found = self._storage.entries(low, cut, max_bytes)
        if found is None or len(found) < cut - low or cut == high:
            return found
        rest = bounded(self.unstable.entries[: high - offset], max_bytes - total_bytes(found), at_least=0)
        return found + rest

    def snapshot(self, at_least: int) -> Snapshot | None:
        """The newest snapshot; None when there is none at `at_least` or above."""
        found = self.unstable.snapshot or self._storage.snapshot(at_least)
        return found if found and found.index >= at_least else None

    def append(self, entries: list[Entry]) -> None:
        """Take entries in, at the end or over what was not committed."""
        if entries:
            if entries[0].index <= self.committed:
                raise Broken(f"entry {entries[0].index} would replace a committed one, up to {self.committed}")
            self.unstable.append(entries)

    def agree(self, index: int, term: int, entries: list[Entry]) -> int | None:
        """Take in entries of a leader that stand behind entry `index` of `term`. Entries that are here already stay,
        with what follows them. The last index on which both logs now agree; None when they differ at `index`."""
        if not self.has(index, term):
            return None
        for place, entry in enumerate(entries):
            if not self.has(entry.index, entry.term):
                self.append(entries[place:])
                break
        return index + len(entries)

    def agreement(self, index: int, term: int) -> tuple[int, int]:
        """The newest entry up to `index` whose term is not above `term`, and its term; term 0 when it is compacted.
        Entries above it cannot be those of a log that has `term` at `index`."""
        while index > 0:
            found = self.term(index)
            if found is None:
                return index, 0
            if found <= term:
                return index, found
            index -= 1
        return 0, 0

    def commit(self, index: int) -> bool:
        """Entries up to `index` are committed; False when that is no news."""
        if index <= self.committed:
            return False
        if index > self.last():
            raise EntriesLost(f"entry {index} is committed, but this log ends at {self.last()}: entries were lost")
        self.committed = index
        return True

    def restore(self, snapshot: Snapshot) -> None:
        """Begin behind a snapshot."""
        self.committed = snapshot.index
        self.unstable.restore(snapshot)

    def appliable(self, *, unstored: bool) -> int:
        """The last entry that may be applied: committed, and stored unless `unstored` ones may be too."""
        return self.committed if unstored else min(self.committed, self.unstable.offset - 1)

    def has_next(self, *, unstored: bool) -> bool:
        """Entries wait to be applied."""
        return not self._waits and self.unstable.snapshot is None and self.applying < self.appliable(unstored=unstored)

    def next_to_apply(self, *, unstored: bool) -> list[Entry]:
        """The next entries to apply, as many as may be out."""
        if not self.has_next(unstored=unstored):
            return []
        low, high = self.applying + 1, self.appliable(unstored=unstored) + 1
        found = self.entries(low, high, self._max_applying - self.applying_bytes)
        if not found:
            raise Broken(f"committed entries from {low} are gone before they were applied")
        return found

    def apply(self, entries: list[Entry], *, unstored: bool) -> None:
        """These entries have been handed out for applying."""
        self.applying = entries[-1].index
        self.applying_bytes += total_bytes(entries)
        self._waits = self.applying_bytes >= self._max_applying or self.applying < self.appliable(unstored=unstored)

    def applied_to(self, index: int, size: int) -> None:
        """Everything up to `index` is applied, `size` bytes of it since the last time."""
        if index > self.committed:
            raise Broken(f"entry {index} was applied, but only {self.committed} is committed")
        self.applied = max(self.applied, index)
        self.applying = max(self.applying, index)
        self.applying_bytes = max(self.applying_bytes - size, 0)
        self._waits = self.applying_bytes >= self._max_applying

    def has_unapplied_change(self, last: int) -> bool:
        """A change of the configuration stands up to entry `last` that is not applied."""
        low = self.applied + 1
        while low <= last:
            page = self.entries(low, last + 1, self._max_applying)
            if not page:
                return False  # the log ends, or begins behind a snapshot that is being installed
            if any(entry.kind is EntryKind.CHANGE for entry in page):
                return True
            low = page[-1].index + 1
        return False


def bounded(entries: list[Entry], max_bytes: int, at_least: int = 1) -> list[Entry]:
    """The first entries, as many as fit into `max_bytes`, and `at_least` so many."""
    size = 0
    for place, entry in enumerate(entries):
        size += len(entry.data) + ENTRY_OVERHEAD
        if size > max_bytes and place >= at_least:
            return entries[:place]
    return entries
