"""The paths of Unix sockets, ours and those of ZeroMQ's ipc: created private, never stolen.

libzmq unlinks whatever is at the path and listens there, even when another process does so already. So a path is
probed first: a live socket is refused, one left by a killed process is removed.

Contract: directories this creates are 0700 and sockets bound while `claimed` are 0600; existing directories are left
as they are. Knows no zmq.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import AddressInUse, CannotListen

EVERYONE = 0o666
"""The mode of a socket that processes of any user may connect to."""

_PROBE_SECONDS = 1.0

CLAIM_PATIENCE_S = 5.0
"""For another claim in the same directory: some probes. A lock that is held longer is none of ours."""

_LOOK_S = 0.02


@contextmanager
def claimed(path: str) -> Iterator[None]:
    """Inside, `path` is ours to be bound: its directory is there, nothing stands at it, no other process claims it.

    Sockets created inside are for their owner only (libzmq does not chmod). Raises AddressInUse when a process
    listens there, CannotListen when anything else is in the way.
    """
    place = Path(path)
    with _locked(place.parent):
        _make_free(place)
        before = os.umask(0o177)
        try:
            yield
        finally:
            os.umask(before)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One claim per directory at a time: no other process may come between the probe and the bind."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotListen(f"cannot listen in {directory}: {error.strerror}") from error
    try:
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    """Any process that may read the directory can lock it: one that does so for long must not stop every start."""
    import fcntl  # which only Unix has

    deadline = time.monotonic() + CLAIM_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise CannotListen(
                    f"another process has locked {directory} for more than {CLAIM_PATIENCE_S:g} s "
                    f"(`lslocks` names it): end it, or listen in another directory"
                ) from None
            time.sleep(_LOOK_S)
        except OSError as error:
            raise CannotListen(f"cannot lock {directory}: {error.strerror}") from error
        else:
            return


def _make_free(place: Path) -> None:
    need_free(str(place))
    try:
        place.unlink(missing_ok=True)
    except OSError as error:
        raise CannotListen(f"cannot listen on {place}: {error.strerror}") from error


def need_free(path: str) -> None:
    """Raise AddressInUse when a process listens at `path`, CannotListen when anything else is in the way.

    Changes nothing: what a killed process left stays.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise CannotListen(f"{path} exists and is not a socket; remove it or choose another path")
        if is_live(path):
            raise AddressInUse(f"a process already listens on {path}; stop it or choose another path")
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from error


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


def open_to_all(path: str) -> None:
    """Let processes of any user connect to a socket: the mode of its directory decides which can reach it."""
    os.chmod(path, EVERYONE)


def beside(path: str) -> str:
    """A fresh path for a socket that belongs to the listener at `path`."""
    return f"{path}.{secrets.token_hex(6)}"


def sweep(path: str) -> None:
    """Remove the sockets that a killed owner of `path` left beside it. Call only while listening on `path`."""
    place = Path(path)
    fresh = re.compile(re.escape(place.name) + r"\.[0-9a-f]{12}")
    for entry in place.parent.iterdir():
        if fresh.fullmatch(entry.name) and entry.is_socket():
            entry.unlink(missing_ok=True)


class Bound:
    """A path we listen on, to be removed with the listener unless another process has taken it over."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._inode = self._path.stat().st_ino

    def remove(self) -> None:
        """Remove the path (libzmq leaves it behind)."""
        if self._path.exists() and self._path.stat().st_ino == self._inode:
            self._path.unlink(missing_ok=True)
