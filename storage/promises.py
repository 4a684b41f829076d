"""The journal of promises: for every log of a node, the term it will not go below and the node it voted for.

Idea: a promise is an entry of 64 bytes at the end of one file, synced before it counts. The newest entry of a log
holds.

Contract: `promise` returns only when the entry is durable; terms never go down; a vote in a term never changes. A torn
last entry was never promised. What an opening finds may not be durable: who keeps to it without a new promise calls
`make_durable` first. When many entries are superseded, opening rewrites the journal. Must not know: what terms are
used for.
"""

from __future__ import annotations

from .errors import Corrupt, Poisoned, StorageFull
from .files import File, Files
from .layout import NO_NODE, PROMISE_BYTES, Promise, decode_promise, encode_promise

_REWRITE_ENTRIES = 4096


class Promises:
    """The open journal. `damage` counts entries in the middle that do not verify."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.damage = 0
        self._files = files
        self._latest: dict[bytes, Promise] = {}
        self._failed = ""
        self._file = self._open()
        self._end = self._load()
        if self._end > _REWRITE_ENTRIES * PROMISE_BYTES and self._end > 4 * PROMISE_BYTES * len(self._latest):
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
        for position in range(0, len(data) - PROMISE_BYTES + 1, PROMISE_BYTES):
            promise = decode_promise(data, position)
            if promise is None:
                bad += 1
                continue
            self.damage += bad
            bad, end = 0, position + PROMISE_BYTES
            self._latest[promise.log_id] = promise
        return end

    def _rewrite(self) -> None:
        entries = b"".join(map(encode_promise, self._latest.values()))
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
        self._write(encode_promise(promise), self._end)
        self._latest[log_id] = promise
        self._end += PROMISE_BYTES

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
