"""Locks on numbers that processes share: one byte range lock each, on one file.

Idea: the kernel keeps them, so those of a process that dies are free at once, and none has to be written down.

Contract: a number is held by one opening of the file at most; taking one that this opening holds succeeds again. A
forked child lets go of its copy, and its parent keeps what it holds. Must not know what the numbers mean.
"""

from __future__ import annotations

import os
import struct

from . import forks

_FLOCK = struct.Struct("hhqqi4x")
NUMBER_MAX = (1 << 63) - 2


class RangeLocks:
    """The locks of one opening of `path`, which is made when it is missing."""

    _descriptor = -1

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        forks.tell(self)

    def __del__(self) -> None:
        self._drop()

    def _forked(self) -> None:
        """A lock lasts as long as any copy of the descriptor."""
        self._drop()

    def take(self, number: int) -> bool:
        """Take a number. False while another opening has it."""
        import fcntl  # which only Unix has

        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def give_back(self, number: int) -> None:
        """Let others take it."""
        import fcntl

        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, number, 1, 0))

    def others(self) -> int:
        """How many numbers other openings have."""
        import fcntl

        found = start = 0
        while start <= NUMBER_MAX:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 0, 0)
            kind, _, first, size, _ = _FLOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked))
            if kind == fcntl.F_UNLCK:
                break
            begin, end = max(first, start), first + size
            found += end - begin
            start = end
        return found

    def close(self) -> None:
        """Let go of all of them, also if a child that was just forked still has its copy. Idempotent."""
        if self._descriptor >= 0:
            import fcntl

            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        self._drop()

    def _drop(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
