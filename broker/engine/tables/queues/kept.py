"""Records that were carried forward, and the KEPT batch that holds each one now.

Idea: a few records that stay open for long would pin whole segments. They are copied into a KEPT batch at the end of
the log and read from there. The table is two sorted arrays, 16 bytes per record.

Contract: changed only by committed entries, because a batch has no seq before. Records that are no longer open are
dropped when the log's first offset moves. Must not know which groups have a record open. Pure.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

RECENT_MIN = 4096


class KeptBody(Struct, array_like=True, frozen=True):
    """The table in a snapshot: offsets, ascending, and the seq of each, both as little-endian int64."""

    offsets: bytes = b""
    seqs: bytes = b""


NOTHING_KEPT = KeptBody()


class Kept:
    """Seq by offset. The newest entries stand apart, so that adding some does not copy all."""

    def __init__(self) -> None:
        self._offsets = np.empty(0, np.int64)
        self._seqs = np.empty(0, np.int64)
        self._recent: dict[int, int] = {}

    def __len__(self) -> int:
        self._merge()
        return len(self._offsets)

    def __bool__(self) -> bool:
        return bool(self._recent) or len(self._offsets) > 0

    def add(self, offsets: np.ndarray, seq: int) -> None:
        """Note that records are in batch `seq` now."""
        self._recent.update(dict.fromkeys(offsets.tolist(), seq))
        if len(self._recent) > max(RECENT_MIN, len(self._offsets) // 8):
            self._merge()

    def seq(self, offset: int) -> int:
        """The batch that holds a record; 0 if it was not carried."""
        found = self._recent.get(offset)
        if found is not None:
            return found
        place = int(np.searchsorted(self._offsets, offset))
        if place < len(self._offsets) and self._offsets[place] == offset:
            return int(self._seqs[place])
        return 0

    def retain(self, offsets: np.ndarray, high: int) -> None:
        """Forget all records below `high` except these."""
        self._merge()
        stay = np.isin(self._offsets, offsets) | (self._offsets >= high)
        self._offsets, self._seqs = self._offsets[stay], self._seqs[stay]

    def offsets(self) -> np.ndarray:
        """All of them, ascending."""
        self._merge()
        return self._offsets

    def missing(self, offsets: np.ndarray) -> np.ndarray:
        """The offsets that were not carried."""
        self._merge()
        return offsets[~np.isin(offsets, self._offsets)] if len(self._offsets) else offsets

    def standing(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The offsets that were carried, ascending, and the batch of each."""
        self._merge()
        here = np.isin(self._offsets, offsets)
        return self._offsets[here], self._seqs[here]

    def _merge(self) -> None:
        if not self._recent:
            return
        newest = np.fromiter(self._recent.keys(), np.int64, len(self._recent))
        seqs = np.fromiter(self._recent.values(), np.int64, len(self._recent))
        stay = ~np.isin(self._offsets, newest)
        offsets, seqs = np.concatenate([self._offsets[stay], newest]), np.concatenate([self._seqs[stay], seqs])
        order = np.argsort(offsets, kind="stable")
        self._offsets, self._seqs = offsets[order], seqs[order]
        self._recent = {}

    def dump(self) -> KeptBody:
        """Dump for a snapshot."""
        self._merge()
        return KeptBody(self._offsets.astype("<i8").tobytes(), self._seqs.astype("<i8").tobytes())

    @classmethod
    def load(cls, body: KeptBody) -> Kept:
        """Restore from a snapshot."""
        kept = cls()
        kept._offsets = np.frombuffer(body.offsets, "<i8").astype(np.int64)
        kept._seqs = np.frombuffer(body.seqs, "<i8").astype(np.int64)
        return kept
