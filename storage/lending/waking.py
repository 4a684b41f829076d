"""Waking by an appender: the readers of its row, without the broker.

Idea: the broker says in a word of the row which slots its readers sleep on. That is only for speed: the broker wakes
the readers of what it follows, so one that is missed here sleeps a little longer.

Contract: called after the appender's word is stored and fenced. Must not know: what was appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..board_row import OTHERS

if TYPE_CHECKING:
    from ..board import Board
    from ..board_row import Row
    from ..futex import Futex


class RowWakes:
    """The readers of one row of a board that is mapped to be written."""

    def __init__(self, board: Board, row: Row) -> None:
        self._board = board
        self._row = row
        self._slots: dict[int, Futex] = {}  # by number, once used
        self._seen = 0
        self._of_seen: list[Futex] = []  # that `_seen` names

    @property
    def asleep(self) -> int:
        """The number of the broker's present sleep, or 0."""
        return self._board.asleep

    def wake(self) -> None:
        """Wake the readers of the row that sleep."""
        readers = self._row.readers
        if not readers:
            return
        if readers & OTHERS:
            for number in self._board.raised():
                self._slot(number).wake()
            return
        if readers != self._seen:
            count = min(readers.bit_length(), self._board.slot_count)
            self._of_seen = [self._slot(number) for number in range(count) if readers >> number & 1]
            self._seen = readers
        for slot in self._of_seen:
            if slot.is_raised:
                slot.wake()

    def _slot(self, number: int) -> Futex:
        if number not in self._slots:
            self._slots[number] = self._board.slot(number)
        return self._slots[number]
