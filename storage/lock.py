"""One writer per log: takes its lock, and names the holder to processes that come later.

Idea: the writer of a node's data directory locks DATA/lock; an embedded log locks `lock` beside its segments.
A log inside a data directory is guarded by the directory's lock, so no process can write beside a broker.

Contract: the lock is the kernel's (OFD) and ends with the process that took it, killed or not; a forked child
lets go of it. Its file names the holder for the message of AlreadyOpen, and a broker's address for commands beside it.
Writing the holder truncates the file and so ends the grants of producers that append by themselves
(lending/incarnation.py); one that is in the middle of an append holds a byte behind the lock.
Must not know: what is written under it.
"""

from __future__ import annotations

import os
import time

import msgspec

from . import layout
from .errors import AlreadyOpen
from .files import FileLock, Files


class Holder(msgspec.Struct):
    """The holder, as the lock file names it."""

    pid: int = 0
    endpoint: str = ""  # where clients connect; empty where the holder is no broker
    boot: str = ""
    local: str = ""  # where processes of this machine do


def directory_above(path: str, files: Files) -> str | None:
    """The data directory that the log in `path` is in; None where it is in none."""
    above = os.path.dirname(os.path.normpath(path))
    around = (above, os.path.dirname(os.path.dirname(above)))
    return next((each for each in around if files.exists(f"{each}/{layout.NODE}")), None)


def lock_path(path: str, files: Files) -> str:
    """The lock that guards the log in `path`: the data directory's when the log is in one, else its own."""
    return f"{directory_above(path, files) or path}/{layout.LOCK}"


BYTES_PATIENCE_S = 2.0
"""A producer that appends by itself holds its byte for some microseconds, unless it is stopped in the middle."""

_LOOK_S = 0.005


def take(path: str, files: Files) -> FileLock:
    """Take all of the lock file `path` and write the holder into it. Raises AlreadyOpen, which names the holder."""
    taken = take_head(path, files)
    if not take_bytes(taken):
        taken.release()
        raise AlreadyOpen(
            f"a producer that appends by itself is stopped in the middle of a batch in {os.path.dirname(path)}: "
            f"let it go on or end it (it has a lock on {path})"
        )
    return taken


def take_bytes(taken: FileLock) -> bool:
    """Take the bytes of producers as well. False while one is in the middle of an append, for BYTES_PATIENCE_S."""
    deadline = time.monotonic() + BYTES_PATIENCE_S
    while not taken.take_bytes():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def take_head(path: str, files: Files, *, endpoint: str = "", boot: str = "") -> FileLock:
    """As `take`, and leave single bytes to producers, who may be in the middle of an append. Raises AlreadyOpen."""
    taken = files.try_lock(path)
    if isinstance(taken, bytes):
        raise AlreadyOpen(_refusal(path, taken))
    taken.note(msgspec.json.encode(Holder(os.getpid(), endpoint, boot)))
    return taken


def holder_of(content: bytes) -> Holder:
    """The holder that a lock file names, which other numbers may follow behind zeros. Raises MsgspecError."""
    return msgspec.json.decode(content.partition(b"\0")[0], type=Holder)


def _refusal(path: str, text: bytes) -> str:
    directory = os.path.dirname(path)
    try:
        holder = holder_of(text)
    except msgspec.MsgspecError:
        # The holder has it but did not get to write who it is, or writes it right now.
        return f"{directory} is open for writing in another process; close it there"
    if holder.endpoint:
        who, way_out = (
            f"served by the broker at {holder.endpoint} (pid {holder.pid})",
            "connect to it, or stop it first",
        )
    else:
        who, way_out = f"open for writing in process {holder.pid}", "close it there"
    return f"{directory} is {who}; {way_out}"
