"""Void records: queue groups skip them because another record replaces them (see dedup.py), or they were deleted.

Idea: two sorted columns of numbers, 16 bytes per void record that the partition still has. Streams see these records;
all queue groups skip them, including groups created later. A deleted record stands for itself.

Contract: applies logged effects; adding twice changes nothing. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
from msgspec import Struct


class VoidsBody(Struct, array_like=True, frozen=True):
    """The void records of a snapshot, by offset: int64 of each, little-endian."""

    offsets: bytes = b""
    tasks: bytes = b""


class Voids:
    """The void records of one partition, each with the record that stands for it."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._tasks = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.task_of(offset) >= 0

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Records (offset) that are void from now on, and what stands for each."""
        offsets = self._offsets
        for offset, task in pairs:
            if not offsets or offset > offsets[-1]:
                offsets.append(offset)
                self._tasks.append(task)
                continue
            at = bisect_left(offsets, offset)
            if offsets[at] == offset:
                self._tasks[at] = offset if self._tasks[at] == offset else task
            else:
                offsets.insert(at, offset)
                self._tasks.insert(at, task)

    def delete(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Records (first offset, how many) that are deleted from now on."""
        self.add((offset, offset) for first, count in ranges for offset in range(first, first + count))

    def deleted(self, first: int, end: int) -> np.ndarray:
        """The deleted records from `first` on and before `end`, sorted."""
        low, high = self._at(first), self._at(end)
        offsets, tasks = (np.array(each[low:high], np.int64) for each in (self._offsets, self._tasks))
        return offsets[offsets == tasks]

    def task_of(self, offset: int) -> int:
        """The record that stands for a void one; -1 for one that is not void."""
        at = bisect_left(self._offsets, offset)
        return self._tasks[at] if at < len(self._offsets) and self._offsets[at] == offset else -1

    def between(self, first: int, end: int) -> list[int]:
        """The void records from `first` on and before `end`, sorted."""
        return self._offsets[self._at(first) : self._at(end)].tolist() if self._offsets else []

    def among(self, offsets: np.ndarray) -> np.ndarray:
        """The void ones of some records, sorted."""
        if not (len(offsets) and self._offsets):
            return offsets[:0]
        return np.intersect1d(offsets, self.range(int(offsets.min()), int(offsets.max()) + 1))

    def range(self, first: int, end: int) -> np.ndarray:
        """The void records from `first` on and before `end`, sorted."""
        return np.array(self._offsets[self._at(first) : self._at(end)], np.int64)

    def count(self, first: int, end: int) -> int:
        """How many there are from `first` on and before `end`."""
        return max(0, self._at(end) - self._at(first))

    def beyond(self, offset: int) -> int:
        """The first record from `offset` on that is not void."""
        offsets = self._offsets
        if not offsets:
            return offset
        low = self._at(offset)
        if low == len(offsets) or offsets[low] != offset:
            return offset
        # As long as they follow each other without a gap, each is as far from its place as the first is.
        return offset + bisect_right(range(len(offsets)), offset - low, low, key=lambda at: offsets[at] - at) - low

    def repeats(self, first: int, count: int) -> list[tuple[int, int]]:
        """Repeats among `count` records, as Produced has them: (number among them, the earlier record)."""
        found = self.between(first, first + count)
        pairs = [(offset - first, self.task_of(offset)) for offset in found]
        return [(number, task) for number, task in pairs if task < first + number]

    def forget_below(self, first: int) -> None:
        """Retention: records below are gone."""
        at = self._at(first)
        del self._offsets[:at], self._tasks[:at]

    def _at(self, offset: int) -> int:
        return bisect_left(self._offsets, offset)

    def copy(self) -> Voids:
        """A copy."""
        voids = Voids()
        voids._offsets, voids._tasks = self._offsets[:], self._tasks[:]
        return voids

    def dump(self) -> VoidsBody:
        """Dump for a snapshot."""
        return VoidsBody(*(np.frombuffer(each[:], "<i8").tobytes() for each in (self._offsets, self._tasks)))

    @classmethod
    def load(cls, body: VoidsBody) -> Voids:
        """Restore from a snapshot."""
        voids = cls()
        voids._offsets.extend(np.frombuffer(body.offsets, "<i8").tolist())
        voids._tasks.extend(np.frombuffer(body.tasks, "<i8").tolist())
        return voids
