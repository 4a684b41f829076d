"""Waking mapped readers: one slot on the board per mapped session.

Idea: a mapped reader that finds nothing new raises its slot, looks once more, and sleeps on it. After the end moved,
the broker wakes the readers of raised slots and lowers them: a sleeping reader is woken once, a busy one costs a load,
and of a crowd of busy ones all slots together cost one look.

A producer that appends by itself wakes the readers of its log, too: the row says on which slots they sleep.

Contract: a slot is given to one session at a time. A reader whose session is over may still sleep on the slot that
another session has now: each wake is for all that do. Must not know: what moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..storage import futex
from ..storage.board_row import OTHERS
from .errors import LimitReached

if TYPE_CHECKING:
    from ..storage.board import Board
    from ..storage.log import LogWriter


class Wakes:
    """The slots of one board."""

    def __init__(self, board: Board, row_of: Callable[[LogWriter], int] = lambda _: -1) -> None:
        """`row_of` a log: its number, -1 without one."""
        self._board = board
        self._row_of = row_of
        self._free = deque(range(board.slot_count))
        self._open: dict[int, tuple[int, futex.Futex]] = {}
        self._sessions: dict[int, int] = {}  # by slot
        self._readers: dict[LogWriter, set[int]] = {}  # slots, by what their sessions read

    def open(self, session: int) -> int:
        """The slot of a session, from now on its own. Raises LimitReached."""
        if futex.MISSING:
            raise LimitReached(futex.MISSING)
        if not self._free:
            raise LimitReached(
                f"all {self._board.slot_count} places for mapped readers are taken: "
                "use delivery='auto', or raise mapped_readers"
            )
        slot = self._free.popleft()  # the one that was free for longest: its last reader has gone by now
        self._open[session] = slot, self._board.slot(slot)
        self._sessions[slot] = session
        return slot

    def begin_reading(self, session: int, log: LogWriter) -> None:
        """The session's reader is about to be told that it may read `log`."""
        self._readers.setdefault(log, set()).add(self._open[session][0])
        self._tell(log)

    def end_reading(self, session: int, log: LogWriter) -> None:
        """The session's reader does not read `log` any more."""
        slots = self._readers.get(log, set())
        slots.discard(self._open[session][0])
        self._tell(log)
        if not slots:
            self._readers.pop(log, None)

    def _tell(self, log: LogWriter) -> None:
        row = self._row_of(log)
        if row >= 0:
            self._board.row(row).readers = slots_word(self._readers.get(log, ()))

    def wake(self, session: int) -> None:
        """Wake the session's reader, if it sleeps."""
        self._open[session][1].wake()

    def asleep(self) -> set[int]:
        """The sessions whose readers `wake` would find asleep: one look at the whole board."""
        sessions = self._sessions
        return {sessions[slot] for slot in self._board.raised() if slot in sessions} if sessions else set()

    def close(self, session: int) -> None:
        """Wake the reader a last time and take the slot back."""
        slot, word = self._open.pop(session)
        del self._sessions[slot]
        word.wake_all()
        self._free.append(slot)

    def close_all(self) -> None:
        """The broker ends."""
        for session in list(self._open):
            self.close(session)


def slots_word(slots: Iterable[int]) -> int:
    """The word that says on which slots readers sleep."""
    return sum({OTHERS if 1 << slot >= OTHERS else 1 << slot for slot in slots})
