"""Watches the board for partitions with new commits.

Idea: nearly every look finds nothing new, or one partition of many, so a look only compares words: a few of them one
by one, more of them as one numpy comparison. A reader goes to the logs only where a word moved.

Contract: `moved` reports a partition when a word of it (the committed one; also its producer's where logs may be lent)
differs from that at the last `moved`, and each partition the first time. So what is committed of a partition is read
after it was reported, or it is reported again. `still` reports and forgets nothing; a thread about to sleep may ask it.
Must not know: what is read, which process wakes which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...storage.board_row import Level

if TYPE_CHECKING:
    from ...storage.board import Board
    from ...storage.board_row import Row

FEW = 24
"""The most words that are read one by one, which is quicker than calling numpy (4 us)."""

UNSEEN: tuple[int, int] = -1, -1
"""No words: those are unsigned."""


class Watch(Protocol):
    """See the module."""

    def moved(self) -> Iterable[int]:
        """The partitions whose words moved since the last call."""
        ...

    def still(self) -> bool:
        """Whether no word has moved since then."""
        ...


class Blind:
    """Without a board, any partition may have more at any time."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._partitions = list(partitions)

    def moved(self) -> Iterable[int]:
        return self._partitions

    def still(self) -> bool:
        return True


class Few:
    """A handful of rows, word by word."""

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self._words = [
            (partition, row.words, row.committed_place, row.appended_place) for partition, row in rows.items()
        ]
        self._seen = [UNSEEN] * len(rows)

    def moved(self) -> Iterable[int]:
        found: list[int] = []
        seen = self._seen
        for number, (partition, words, place, appended) in enumerate(self._words):
            value = words[place], words[appended]
            if seen[number] != value:
                seen[number] = value
                found.append(partition)
        return found

    def still(self) -> bool:
        return all(
            (words[place], words[appended]) == seen
            for (_, words, place, appended), seen in zip(self._words, self._seen, strict=True)
        )


class Many:
    """Rows of one board, all at once."""

    def __init__(self, board: Board, numbers: Mapping[int, int]) -> None:
        """`numbers`: of the row on the board, by partition; all of one commit level, as the partitions of a topic."""
        self._partitions = np.fromiter(numbers, np.int64, len(numbers))
        self._rows = np.fromiter(numbers.values(), np.int64, len(numbers))
        level = Level(board.row(int(self._rows[0])).level)
        self._column = board.words(level.name.lower())
        self._appended = board.words("appended" if level is Level.WRITTEN else level.name.lower())
        self._seen: np.ndarray | None = None

    def moved(self) -> Iterable[int]:
        found, seen = self._look(), self._seen
        self._seen = found
        return (self._partitions if seen is None else self._partitions[(found != seen).any(0)]).tolist()

    def still(self) -> bool:
        return self._seen is not None and bool((self._look() == self._seen).all())

    def _look(self) -> np.ndarray:
        return np.stack((self._column[self._rows], self._appended[self._rows]))


def watch(board: Board, numbers: Mapping[int, int]) -> Watch:
    """A watch over some rows of a board: their numbers by partition."""
    if len(numbers) > FEW:
        return Many(board, numbers)
    return Few({partition: board.row(number) for partition, number in numbers.items()})
