"""Unix socket paths under ZeroMQ's ipc: created private, never stolen.

libzmq unlinks whatever stands at the path and listens there, even when another process does so already. So
a path is probed first: a live one is refused, what a killed process left behind is removed.

Contract: directories this creates are 0700, and sockets bound inside `private()` 0600; existing directories
are left as they are. Knows no zmq.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import AddressInUse, CannotListen

_PROBE_SECONDS = 1.0


def claim(path: str) -> None:
    """Make `path` free to be bound: its directory exists and nothing stands there.

    Raises AddressInUse when somebody listens, CannotListen when something else is in the way.
    """
    place = Path(path)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.is_symlink() and not place.exists():
            return
        if not stat.S_ISSOCK(place.lstat().st_mode):
            raise CannotListen(f"{path} exists and is not a socket; remove it or choose another path")
        if is_live(path):
            raise AddressInUse(f"somebody already listens on ipc://{path}; stop it or choose another path")
        place.unlink(missing_ok=True)
    except OSError as error:
        raise CannotListen(f"cannot listen on ipc://{path}: {error.strerror or error}") from error


def is_live(path: str) -> bool:
    """Whether a process accepts connections at `path`; one that is merely stopped counts as live."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (BlockingIOError, TimeoutError):
            return True
        return True


def beside(path: str) -> str:
    """A fresh path for a socket that belongs to the listener at `path`."""
    return f"{path}.{secrets.token_hex(6)}"


def sweep(path: str) -> None:
    """Remove the sockets that a killed owner of `path` left beside it. Call only after claiming `path`."""
    place = Path(path)
    fresh = re.compile(re.escape(place.name) + r"\.[0-9a-f]{12}")
    for entry in place.parent.iterdir():
        if fresh.fullmatch(entry.name) and entry.is_socket():
            entry.unlink(missing_ok=True)


class Bound:
    """A path we listen on, to be removed with the listener unless it has become somebody else's."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._inode = self._path.stat().st_ino

    def remove(self) -> None:
        """Remove the path (libzmq leaves it behind)."""
        if self._path.exists() and self._path.stat().st_ino == self._inode:
            self._path.unlink(missing_ok=True)


@contextmanager
def private() -> Iterator[None]:
    """Sockets bound inside are readable and writable by their owner only (libzmq does not chmod)."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
