"""The incarnation of a data directory: a number in DATA/lock that is new at each opening, and ends all grants before.

Idea: a small file that every process of a node has at the same place, mapped to be read: a look costs no system call.
Locking the file truncates it to the holder's text, after which the number reads 0: an opener that knows nothing
of grants ends them as well.

Contract: written after the lock was taken, before logs are looked at. Must not know: locks, boards.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

from .grant import INCARNATION_AT, Identity

if TYPE_CHECKING:
    from ..board import Board

_NUMBER = struct.Struct("<Q")


def renew(path: str, number: int) -> Identity:
    """Write the number of this opening into DATA/lock, which the caller has locked. Returns the file's identity."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(descriptor, _NUMBER.pack(number), INCARNATION_AT)
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    finally:
        os.close(descriptor)


class Incarnation:
    """The number as it is now."""

    def __init__(self, path: str) -> None:
        """Raises OSError, or ValueError where none was written."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(descriptor)
            self.identity = found.st_dev, found.st_ino
            mapped = mmap.mmap(descriptor, INCARNATION_AT + _NUMBER.size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self._words = memoryview(mapped).cast("Q")

    def __call__(self) -> int:
        """One aligned load. A file that was truncated since reads 0: the page stays, as the file is not empty."""
        return self._words[INCARNATION_AT // _NUMBER.size]


class CurrentNode:
    """Says whether a board is still that of the node which has the data directory. Asked only where a log is lent."""

    def __init__(self, path: str, board: Board) -> None:
        """`path` of DATA/lock, opened when first asked."""
        self._path = path
        self._board = board
        self._incarnation: Incarnation | None = None

    def is_current(self) -> bool:
        """Raises nothing: without the file, no appender's word is believed."""
        if self._incarnation is None:
            try:
                self._incarnation = Incarnation(self._path)
            except (OSError, ValueError):
                return False
        return self._incarnation() == self._board.incarnation
