"""The places of all logs along the order: the last batch of each log at any entry above what is applied.

Idea: applied is one place for each log; above it stand the rows of the entries that are in the order and not yet
applied, each of which moves some logs on. Cutting the order takes rows back, applying entries folds them in.

Contract: the rows of one log rise by one seq each. Memory: one item for each batch above what is applied. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...storage.errors import InvalidBatch

START = (0, 0)
"""The place of a log without batches."""


class LogRow(NamedTuple):
    """One batch of an entry, by its place."""

    log_id: bytes
    seq: int
    checksum: int


class Places:
    """See the module. A place is seq and header checksum of a batch.

    Invariant: `end` is `applied` moved on by every row above `entry`.
    """

    def __init__(self, entry: int, applied: Mapping[bytes, tuple[int, int]]) -> None:
        """Logs stand at `applied` at this entry, and nothing follows."""
        self.entry = self.last = entry
        self.applied = dict(applied)
        self.end = dict(applied)
        self._above: deque[tuple[int, Sequence[LogRow]]] = deque()

    def appended(self, entry: int, rows: Sequence[LogRow]) -> None:
        """The next entry names these batches. Raises InvalidBatch, with nothing changed, where one does not follow."""
        self.check(entry, rows)
        self.last = entry
        if rows:
            self._above.append((entry, rows))
            self.end.update((row.log_id, (row.seq, row.checksum)) for row in rows)

    def check(self, entry: int, rows: Sequence[LogRow]) -> None:
        """Raise InvalidBatch unless these batches may be those of the next entry."""
        if entry != self.last + 1:
            raise InvalidBatch(f"entry {entry} does not follow entry {self.last}")
        seqs: dict[bytes, int] = {}
        for log_id, seq, _ in rows:
            before = seqs.get(log_id, self.end.get(log_id, START)[0])
            if seq != before + 1:
                raise InvalidBatch(f"entry {entry} names batch {seq} of log {log_id.hex()}, which ends at {before}")
            seqs[log_id] = seq

    def cut(self, entry: int) -> dict[bytes, tuple[int, int]]:
        """Entries above `entry` are taken back. Returns the place of each log that goes back."""
        assert entry >= self.entry, f"entry {self.entry} is applied, so the order cannot end at {entry}"
        gone: set[bytes] = set()
        while self._above and self._above[-1][0] > entry:
            gone.update(row.log_id for row in self._above.pop()[1])
        self.last = min(self.last, entry)
        if gone:
            self.end = self.at(entry)
        return {log_id: self.end.get(log_id, START) for log_id in gone}

    def at(self, entry: int) -> dict[bytes, tuple[int, int]]:
        """The places at an entry that is not below what is applied."""
        found = dict(self.applied)
        for index, rows in self._above:
            if index > entry:
                break
            found.update((row.log_id, (row.seq, row.checksum)) for row in rows)
        return found

    def apply(self, entry: int) -> None:
        """Everything up to `entry` counts as applied."""
        assert entry <= self.last, f"the order ends at {self.last}, entry {entry} is not there"
        while self._above and self._above[0][0] <= entry:
            self.applied.update((row.log_id, (row.seq, row.checksum)) for row in self._above.popleft()[1])
        self.entry = max(self.entry, entry)

    def forget(self, logs: Collection[bytes]) -> None:
        """The topics of these logs are deleted, and nothing follows in them."""
        for log_id in logs:
            self.applied.pop(log_id, None)
            self.end.pop(log_id, None)

    def entry_of(self, log_id: bytes, seq: int) -> int | None:
        """The entry that a batch stands in; `entry` for what is applied, None for what is beyond the end."""
        if seq <= self.applied.get(log_id, START)[0]:
            return self.entry
        for index, rows in self._above:
            if any(row.log_id == log_id and row.seq == seq for row in rows):
                return index
        return None

    def rows(self, first: int, last: int) -> Iterator[LogRow]:
        """The rows of entries `first` to `last`, above what is applied."""
        for index, rows in self._above:
            if first <= index <= last:
                yield from rows
