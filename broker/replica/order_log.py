"""The order log: one entry for each flush of a shard, in an ordinary log whose seq is the index of the entry.

Idea: entries are RAFT batches. Their terms and indexes come from the Raft core, their times from the leader's flush, so
every replica stamps the same bytes. An entry that contradicts one that is there cuts the log before it is appended.

Contract: what a Raft core reads (raft/storage.py). What `append` was given is found again by `entries` and `term`, down
to the oldest segment. Never cuts below `commit`. Syncing is the caller's. Must not know what batches mean, or peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import appending
from ...storage.encoding import encode_raft
from ...storage.errors import BadChecksum, Corrupt, OutOfBounds
from ...storage.header import Stamp, stamp
from ...storage.layout import word
from ...storage.log import LogOptions, LogWriter
from ...storage.reader import LogReader
from ...storage.segment import reference
from ..raft.messages import Entry, EntryKind
from . import acked
from .entries import decode_entry, decode_flush, encode_entry

if TYPE_CHECKING:
    from collections.abc import Buffer, Sequence  # pyright: ignore[reportAttributeAccessIssue]

    from ...storage.batch import Batch
    from ...storage.files import Files
    from ...storage.plan import Appended
    from ...storage.segment import SegmentRef
    from ...storage.tail import LogTail

RECENT_BYTES = 4 << 20
"""Entries kept in memory for peers that are nearly up to date."""

READ_BYTES = 1 << 20


class _ByEntries:
    """The order of the order log itself: terms come with entries, and what Raft committed stays."""

    def __init__(self) -> None:
        self.commit = 0

    def term(self, log: LogTail) -> int:
        return log.term

    def append(self, log: LogTail, batches: Sequence[Buffer], now_us: int) -> list[Appended]:
        raise AssertionError("entries of the order log have their places already")

    def committed(self, log: LogTail) -> int:
        return min(self.commit, log.written)

    def safe(self, log: LogTail) -> int:
        return min(self.commit, log.durable)


class OrderLog:
    """The open order log of one replica."""

    def __init__(
        self, path: str, files: Files, *, log_id: bytes, options: LogOptions | None = None, suspect: bool = False
    ) -> None:
        """Open it, recovered, or create it. Raises what `LogWriter.open` does."""
        self._order = _ByEntries()
        self.log = LogWriter.create_or_open(
            path, files=files, log_id=log_id, order=self._order, options=options or LogOptions(), suspect=suspect
        )
        self._reader = LogReader(path, files, limit=self._limit, log_id=self.log.log_id)
        self._noted = (0, 0)
        self._recent: dict[int, Entry] = {}
        self._recent_bytes = 0

    def _limit(self) -> int:
        return word(self.log.generation, self.log.written)

    # -- what a Raft core asks --------------------------------------------------------------------

    def first_index(self) -> int:
        """The first entry that is here; one more than the last when there is none."""
        return self.log.names[0].base_seq

    def last_index(self) -> int:
        """The last entry, durable or not; 0 without one."""
        return self.log.written

    def term(self, index: int) -> int | None:
        """The term of an entry, or of the one before the first; None for others. Raises Corrupt."""
        recent = self._recent.get(index)
        if recent is not None:
            return recent.term
        if index == self.log.written:
            return self.log.term
        try:
            if index == self.first_index() - 1:
                return self.log.place_behind(index)[0].term
            if not self.first_index() <= index <= self.log.written:
                return None
            self._hear()
            row = self._reader.row(index)
            return self._read(index, index + 1, 1)[0].term if row is None else row.term
        except OutOfBounds:  # its segment has just been removed
            return None

    def entries(self, first: int, end: int, max_bytes: int = READ_BYTES) -> list[Entry] | None:
        """Entries from `first` on and below `end`, at least one and about `max_bytes`; None when `first` is gone.

        Raises OutOfBounds beyond the end, Corrupt.
        """
        if first < self.first_index():
            return None
        if first >= end:
            return []
        self._check(end - 1)
        if first not in self._recent:
            try:
                return self._read(first, end, max_bytes)
            except OutOfBounds:  # its segment has just been removed
                return None
        found, size = list[Entry](), 0
        for index in range(first, end):
            entry = self._recent[index]
            size += len(entry.data)
            if found and size > max_bytes:
                break
            found.append(entry)
        return found

    def _check(self, index: int) -> None:
        if not self.first_index() <= index <= self.log.written:
            raise OutOfBounds(f"the order log holds entries {self.first_index()} to {self.log.written}, not {index}")

    def _read(self, first: int, end: int, max_bytes: int) -> list[Entry]:
        self._hear()
        cursor, found, size = self._reader.cursor_at(first), list[Entry](), 0
        while size < max_bytes and (chunk := cursor.next(READ_BYTES, end - 1)) is not None:
            for batch in chunk.batches:
                self._verify(batch)
                size += batch.batch_bytes
                if found and size > max_bytes:
                    return found
                type_, data = decode_entry(batch.effects())
                found.append(Entry(batch.seq, batch.term, bytes(data), EntryKind(type_)))
        return found

    def _verify(self, batch: Batch) -> None:
        try:
            batch.check()
        except BadChecksum as error:
            path = self.log.path
            raise Corrupt(f"entry {batch.seq} of {path} cannot be read: {error.message}", path=path) from error

    def _hear(self) -> None:
        """Of cuts, and of segments that are gone."""
        if self._reader.names != self.log.names:
            self._reader.refresh()
        self._reader.hear_of_cuts()

    # -- what the loop does -------------------------------------------------------------------------

    @property
    def commit(self) -> int:
        """The highest entry known to be committed; nothing up to it is ever cut."""
        return self._order.commit

    @commit.setter
    def commit(self, entry: int) -> None:
        self._order.commit = max(self._order.commit, entry)

    def note_acked(self, entry: int) -> None:
        """All up to `entry` is acknowledged: the next sync makes that, and what is committed of it, known to later
        openings. Raises OSError."""
        words = entry, min(self.commit, entry)
        if words != self._noted and acked.note(self.log, *words):
            self._noted = words

    def checksum(self, index: int) -> int:
        """The header checksum of an entry, or of the one before the first. Raises OutOfBounds, Corrupt."""
        if index == self.log.written:
            return self.log.checksum
        if index == self.first_index() - 1:
            return self.log.place_behind(index)[0].checksum
        self._check(index)
        self._hear()
        row = self._reader.row(index)
        if row is None:
            raise Corrupt(f"entry {index} of {self.log.path} is damaged", path=self.log.path)
        return row.header_checksum

    def up_to_other(self, entries: list[Entry]) -> list[Entry]:
        """Entries of a leader up to the first in whose place another one stands here. The rest is for later, when the
        logs that go back for it are prepared. Raises Corrupt."""
        last = self.last_index()
        if entries and entries[0].index <= last:
            for place, entry in enumerate(entries):
                if self.commit < entry.index <= last and self.term(entry.index) != entry.term:
                    return entries[: place + 1]
        return entries

    def append(self, entries: Sequence[Entry]) -> bool:
        """Append entries in order, and cut before the first if it stands where another one does.

        Returns whether something was cut. Entries that are equal to what is here are the caller's to leave out.
        Raises UnsafeCut (a committed entry would go), OutOfBounds (a gap), StorageFull, Poisoned: nothing is appended.
        """
        if not entries:
            return False
        log, first = self.log, entries[0].index
        if first > log.written + 1:
            raise OutOfBounds(f"the order log ends at {log.written}, entry {first} does not follow")
        has_cut = first <= log.written
        if has_cut:
            self.cut(first - 1)
        appending.append_stamped(log, _stamped(log, entries))
        for entry in entries:
            self._remember(entry)
        return has_cut

    def spent(self, entry: int, keep: int) -> list[SegmentRef]:
        """The segments that may go: wholly at or below `entry`, and beyond the newest `keep` segments."""
        names = self.log.names
        count = sum(1 for following in names[1 : max(len(names) - keep + 1, 0)] if following.base_seq - 1 <= entry)
        return [reference(self.log.path, name) for name in names[:count]]

    def cut(self, index: int) -> None:
        """Take back every entry behind `index`, durably. Raises UnsafeCut, StorageFull, Poisoned."""
        self.log.cut(index)
        for gone in [each for each in self._recent if each > index]:
            self._recent_bytes -= len(self._recent.pop(gone).data)

    def _remember(self, entry: Entry) -> None:
        self._recent[entry.index] = entry
        self._recent_bytes += len(entry.data)
        while self._recent_bytes > RECENT_BYTES and len(self._recent) > 1:
            oldest = next(iter(self._recent))
            self._recent_bytes -= len(self._recent.pop(oldest).data)

    def close(self) -> None:
        """Sync, and close in good order."""
        self.log.close()
        self._reader.close()


def _stamped(log: LogWriter, entries: Sequence[Entry]) -> list[bytearray]:
    """Entries as batches that follow the end of the log. Their bytes depend on nothing but the entries."""
    previous, time_us = log.checksum, log.last_time_us
    found: list[bytearray] = []
    for entry in entries:
        batch = encode_raft(encode_entry(entry.kind, entry.data))
        if entry.kind == EntryKind.NORMAL and len(entry.data):
            time_us = max(time_us, decode_flush(entry.data).time_us)
        head = stamp(batch, Stamp(entry.index, 0, entry.term, log.log_id, time_us, previous))
        batch[: len(head)] = head
        previous = int.from_bytes(head[:8], "little")
        found.append(batch)
    return found
