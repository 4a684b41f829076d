"""The journal of promises: for every log of a node, the term it will not go below and the node it voted for.

Idea: a promise is two equal entries of 64 bytes at the end of one file, written together and synced before it counts.
The newest entry of a log holds. Where one of the two rots, the other says the same.

Contract: `promise` returns only when the entry is durable; terms never go down; a vote in a term never changes. A torn
last entry was never promised: as much as one promise may be torn, and more that does not verify is damage. What an
opening finds may not be durable: a caller that keeps to it without a new promise calls `make_durable` first. When many
entries are superseded, or one stands alone, opening rewrites the journal. Must not know: what terms are used for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .errors import Corrupt, Poisoned, StorageFull
from .files import File, Files
from .layout import NO_NODE, PROMISE_BYTES, TWIN_BEFORE, TWIN_BEHIND, Promise, decode_promise, encode_promise

PAIR_BYTES = 2 * PROMISE_BYTES
"""Of a promise."""

_REWRITE_PAIRS = 4096


def journal(promises: Iterable[Promise]) -> bytes:
    """The bytes of these promises, two entries each."""
    return b"".join(
        encode_promise(msgspec.structs.replace(promise, twin=twin))
        for promise in promises
        for twin in (TWIN_BEHIND, TWIN_BEFORE)
    )


class Promises:
    """The open journal. `damage` counts entries that were durable and do not verify, where no twin says the same."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.damage = 0
        self._files = files
        self._latest: dict[bytes, Promise] = {}
        self._failed = ""
        self._is_thin = False  # an entry stands alone, as those of older versions do
        self._file = self._open()
        self._end = self._load()
        is_long = self._end > _REWRITE_PAIRS * PAIR_BYTES and self._end > 4 * PAIR_BYTES * len(self._latest)
        if is_long or (self._is_thin and not self.damage):
            self._rewrite()

    def _open(self) -> File:
        if not self._files.exists(self.path):
            file = self._files.create(self.path)
            self._files.sync_dir(self.path.rpartition("/")[0] or "/")
            return file
        return self._files.open(self.path, write=True)

    def _load(self) -> int:
        """Read all entries; returns where the next one goes."""
        data = self._file.pread(self._file.size(), 0)
        end = bad = 0
        last = Promise(b"", 0, twin=TWIN_BEFORE)  # as if nothing were missing before the first one
        for position in range(0, len(data) - PROMISE_BYTES + 1, PROMISE_BYTES):
            promise = decode_promise(data, position)
            if promise is None:
                bad += 1
                continue
            held = min(bad, (last.twin == TWIN_BEHIND) + (promise.twin == TWIN_BEFORE))
            self.damage += bad - held
            self._is_thin |= bool(held)
            bad, end, last = 0, position + PROMISE_BYTES, promise
            self._latest[promise.log_id] = promise
        if bad * PROMISE_BYTES > PAIR_BYTES:
            self.damage += bad
        self._is_thin |= last.twin != TWIN_BEFORE
        return end

    def _rewrite(self) -> None:
        entries = journal(self._latest.values())
        try:
            self._files.rewrite(self.path, entries)
        except StorageFull:
            with self._files.open(self.path) as found:
                if found.identity() == self._file.identity():
                    return  # as long as it was, until the disk has room
            raise
        self._file.close()
        self._file, self._end = self._files.open(self.path, write=True), len(entries)

    def term(self, log_id: bytes) -> int:
        """The highest term promised for a log; 0 for none."""
        promise = self._latest.get(log_id)
        return 0 if promise is None else promise.term

    def vote(self, log_id: bytes) -> bytes:
        """The node that this one voted for in `term(log_id)`; zeros for none."""
        promise = self._latest.get(log_id)
        return NO_NODE if promise is None else promise.vote

    def promise(self, log_id: bytes, term: int, vote: bytes = NO_NODE) -> None:
        """Promise, durably. Raises StorageFull, Poisoned (the journal could not be synced: open it anew)."""
        known = self._latest.get(log_id)
        if known is not None and (term < known.term or (term == known.term and known.vote not in (NO_NODE, vote))):
            raise Corrupt(f"{self.path} holds term {known.term} for log {log_id.hex()}, {term} would go back on it")
        if self._failed:
            raise Poisoned(f"{self.path} could not be synced ({self._failed}); open the node again")
        promise = Promise(log_id, term, vote)
        self._write(journal([promise]), self._end)
        self._latest[log_id] = promise
        self._end += PAIR_BYTES

    def make_durable(self) -> None:
        """Promise what was found once more, durably: a process before may have ended before it was synced, or because
        it could not be. Raises Poisoned, and StorageFull where the file system needs room to write over bytes.

        The bytes are written again, as the system takes those of a sync that failed for written.
        """
        self._write(self._file.pread(self._end, 0), 0)

    def _write(self, entries: bytes, position: int) -> None:
        try:
            self._file.pwritev([entries], position)
            self._file.sync()
        except OSError as error:
            self._failed = str(error)
            raise Poisoned(f"{self.path} could not be synced ({error}); open the node again") from error

    def close(self) -> None:
        self._file.close()
