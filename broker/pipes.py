"""Lines for standard output and standard error, whose readers may not read.

Idea: a pipe has room for 64 KiB, and a process that writes more waits for its reader. So a line is written as far as
there is room. O_NONBLOCK would be a flag of all processes that have the pipe, so writes go through a descriptor of our
own.

Contract: a slow reader is waited for `PATIENCE_S`, one that did not read then not at all. Raises OSError, which is
BrokenPipeError where the reader has left. Must not know what is said.
"""

from __future__ import annotations

import os
import select
import stat
from contextlib import suppress

PATIENCE_S = 0.1
"""For a reader that is slow."""

PIECE_BYTES = 4096
"""As much as the system writes into a pipe as a whole, wherever it says that there is room (PIPE_BUF)."""


class PipeLines:
    """The lines of one stream."""

    def __init__(self) -> None:
        self.left_out = 0
        """Lines since the last one that there was room for."""
        self._is_cut = False  # the last line has no end

    def write(self, place: int, line: bytes) -> bool:
        """Write a line, which ends with a newline, to a descriptor. Returns whether there was room for all of it."""
        left, own = b"\n" + line if self._is_cut else line, _own(place)
        try:
            while left and has_room(own, 0.0 if self.left_out else PATIENCE_S):
                left = left[os.write(own, left[:PIECE_BYTES]) :]
                self._is_cut = bool(left)
        except BlockingIOError:
            pass  # another process took the room meanwhile
        finally:
            if own != place:
                os.close(own)
        self.left_out = self.left_out + 1 if left else 0
        return not left


def _own(place: int) -> int:
    """Of a pipe, a descriptor whose writes never wait. Else the same."""
    with suppress(OSError):  # the pipe is another user's, or there is no descriptor left
        if stat.S_ISFIFO(os.fstat(place).st_mode):
            return os.open(f"/proc/self/fd/{place}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return place


def has_room(place: int, wait_s: float) -> bool:
    """Whether a piece can be written, now or within so long, without waiting for a reader."""
    poll = select.poll()  # select() takes no descriptor above 1,023
    poll.register(place, select.POLLOUT)
    return bool(poll.poll(1000 * wait_s))
