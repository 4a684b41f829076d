"""Waking mapped readers: one named semaphore and one slot on the board per mapped session.

Idea: a mapped reader that finds nothing new raises its slot, looks once more, and sleeps on its semaphore. The
broker, after the end moved, posts the semaphores of raised slots only, and lowers the slot, so a sleeping
reader is posted once and a busy one costs one load.

Contract: names derive from the board's name and the slot, so what a dead broker left behind is found and
removed by the next one. Must not know: which partitions a session reads.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import posix_ipc

if TYPE_CHECKING:
    from ..storage.board import Board


class Wakes:
    """The slots of one board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._base = semaphore_base(board.name)
        self._free = list(range(board.slot_count - 1, -1, -1))
        self._open: dict[int, tuple[int, memoryview, posix_ipc.Semaphore]] = {}
        remove_leftovers(board.name, board.slot_count)

    def open(self, session: int) -> tuple[str, int]:
        """The (semaphore, slot) of a session; ("", -1) when all slots are taken or there are no semaphores."""
        if not self._free:
            return "", -1
        slot = self._free.pop()
        name = f"{self._base}-{slot}"
        try:
            semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0)
        except (OSError, posix_ipc.Error) as error:
            print(f"penstock: no semaphore for a mapped reader, it will poll: {error}", file=sys.stderr)
            self._free.append(slot)
            return "", -1
        self._board.set_slot(slot, 0)
        self._open[session] = slot, self._board.slot_words(slot), semaphore
        return name, slot

    def wake(self, session: int) -> None:
        """Post, if the session's reader sleeps."""
        _, words, semaphore = self._open[session]
        if words[0]:
            words[0] = 0
            semaphore.release()

    def close(self, session: int) -> None:
        """Wake the reader a last time, then remove the semaphore's name."""
        slot, _, semaphore = self._open.pop(session)
        semaphore.release()
        semaphore.unlink()
        semaphore.close()
        self._free.append(slot)

    def close_all(self) -> None:
        """The broker ends."""
        for session in list(self._open):
            self.close(session)


def semaphore_base(board: str) -> str:
    """A board may be a file: semaphores are named after its last part all the same."""
    return "/" + board.rsplit("/", 1)[-1]


def remove_leftovers(board: str, slots: int) -> None:
    """Remove the semaphores of a broker that died."""
    base = semaphore_base(board)
    for slot in range(slots):
        try:
            posix_ipc.unlink_semaphore(f"{base}-{slot}")
        except posix_ipc.ExistentialError:
            continue
