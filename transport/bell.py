"""A bell: a descriptor that any thread makes readable. An eventfd on Linux, elsewhere a pair of sockets.

Contract: level-triggered. A bell that is dropped is closed with it: Ctrl-C may take it from the caller that was making
it. Must not know: what it is rung for.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from io import FileIO


class EventBell:
    """A bell that is an eventfd."""

    def __init__(self) -> None:
        # Python looks for signals between two calls, and a number that Ctrl-C took away could never be closed: from
        # the system call to the object that owns the descriptor there is but this one.
        self._file = next(map(FileIO, map(os.eventfd, [0], [os.EFD_NONBLOCK | os.EFD_CLOEXEC]), ["r+"]))
        self._descriptor = self._file.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        """Make it readable; from any thread."""
        os.eventfd_write(self._descriptor, 1)

    def hush(self) -> None:
        """Take back all rings so far."""
        self._file.read(8)  # None where it has not rung

    def close(self) -> None:
        """Close the bell; nothing may wait for it. Idempotent."""
        self._file.close()


class SocketBell:
    """A bell that is a pair of sockets."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)

    def fileno(self) -> int:
        return self._here.fileno()

    def ring(self) -> None:
        """Make it readable; from any thread."""
        with suppress(BlockingIOError):  # full: it is readable
            self._there.send(b"\0")

    def hush(self) -> None:
        """Take back all rings so far."""
        with suppress(BlockingIOError):
            while self._here.recv(4096):
                pass

    def close(self) -> None:
        """Close the bell; nothing may wait for it. Idempotent."""
        self._here.close()
        self._there.close()


Bell = EventBell if hasattr(os, "eventfd") else SocketBell
