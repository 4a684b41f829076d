"""A compact list of ascending offsets.

Idea: full blocks store differences from their first number: two bytes per number, or four where numbers are far apart.
The newest numbers are in a plain tail. Lookups by number and by position are binary searches.

Invariant: numbers ascend strictly. `starts` has the position of each block's first number.
Contract: appended at the end, dropped at the front, never changed in between. Results are copies. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import attrgetter

import numpy as np
from msgspec import Struct

BLOCK = 1 << 14
_NEAR = 1 << 16
_SPAN = 1 << 32

OPEN_END = 1 << 63
"""An offset beyond all others."""


class Block(Struct, frozen=True, gc=False):
    """Numbers `base` + each of `deltas`."""

    base: int
    deltas: np.ndarray

    def __len__(self) -> int:
        return len(self.deltas)

    def below(self, number: int) -> int:
        """The count of numbers below `number`."""
        wanted = number - self.base
        if wanted <= 0:
            return 0
        if wanted > self.deltas[-1]:
            return len(self.deltas)
        return int(np.searchsorted(self.deltas, self.deltas.dtype.type(wanted)))

    def numbers(self, first: int, end: int) -> np.ndarray:
        """The numbers at places `first` to `end` (exclusive)."""
        return self.deltas[first:end].astype(np.int64) + self.base


class OffsetSet:
    """Ascending numbers."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._starts: list[int] = []  # places of the blocks' first numbers, counted from the first ever added
        self._dropped = 0  # place of the first number that is there
        self._full = 0  # place behind the last block
        self._tail = array("q")

    def __len__(self) -> int:
        return self._full + len(self._tail) - self._dropped

    def add(self, numbers: np.ndarray) -> None:
        """Add numbers, int64, ascending and above all that are there."""
        self._tail.frombytes(np.ascontiguousarray(numbers, np.int64).tobytes())
        while len(self._tail) >= BLOCK:
            self._seal(self._tail[:BLOCK])
            del self._tail[:BLOCK]

    def _seal(self, numbers: array[int]) -> None:
        """A block of these, or two where they lie further apart than a difference reaches."""
        if numbers[-1] - numbers[0] >= _SPAN:
            middle = bisect_left(numbers, numbers[0] + _SPAN)
            self._seal(numbers[:middle])
            self._seal(numbers[middle:])
            return
        kind = np.uint16 if numbers[-1] - numbers[0] < _NEAR else np.uint32
        found = np.frombuffer(numbers, np.int64)
        self._blocks.append(Block(numbers[0], (found - numbers[0]).astype(kind)))
        self._starts.append(self._full)
        self._full += len(numbers)

    def below(self, number: int) -> int:
        """How many are below `number`: the index of the first that is not."""
        at = bisect_right(self._blocks, number, key=attrgetter("base")) - 1
        tail = self._tail
        if tail and number > tail[0]:
            return self._full + bisect_left(tail, number) - self._dropped
        if at < 0:
            return 0
        return max(self._starts[at] + self._blocks[at].below(number) - self._dropped, 0)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.slice(at := self.below(number), at + 1).tolist() == [number]

    def slice(self, first: int, end: int) -> np.ndarray:
        """The numbers at indexes `first` to `end` (exclusive), int64."""
        first, end = first + self._dropped, min(end + self._dropped, self._full + len(self._tail))
        pieces: list[np.ndarray] = []
        while first < min(end, self._full):
            at = bisect_right(self._starts, first) - 1
            start, block = self._starts[at], self._blocks[at]
            pieces.append(block.numbers(first - start, end - start))
            first = start + len(block)
        if first < end:
            pieces.append(np.array(self._tail[first - self._full : end - self._full], np.int64))
        if not pieces:
            return np.zeros(0, np.int64)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def run_end(self, index: int) -> int:
        """Index behind the run of neighbours that begins at `index`: where numbers follow each other without a gap.

        A number less its index never falls, so the end is found by searching.
        """
        wanted = self._at(index) - index
        low, high = index, len(self)
        while low + 1 < high:
            middle = (low + high) // 2
            if self._at(middle) - middle == wanted:
                low = middle
            else:
                high = middle
        return low + 1

    def _at(self, index: int) -> int:
        place = index + self._dropped
        if place >= self._full:
            return self._tail[place - self._full]
        at = bisect_right(self._starts, place) - 1
        block = self._blocks[at]
        return block.base + int(block.deltas[place - self._starts[at]])

    def drop_below(self, number: int) -> None:
        """Forget the numbers below `number`; whole blocks give their memory back."""
        self._dropped += self.below(number)
        gone = bisect_right(self._starts, self._dropped) - 1
        if self._dropped >= self._full:
            gone = len(self._blocks)
            del self._tail[: self._dropped - self._full]
            self._full = self._dropped
        if gone > 0:
            del self._blocks[:gone], self._starts[:gone]
