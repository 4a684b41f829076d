"""The poison file: records beside the segments that a sync of the log failed, so that restarts know.

Contract: the file has its name once its text is synced, or could not be synced either: until the power goes, the text
is there in any case. A poison that lost its text says only that a sync may have failed, since cutting at the mark would
take what earlier syncs covered. The first word stays; the next generation of the log removes it (cutting.py).
Must not know: what recovery makes of it.
"""

from __future__ import annotations

from . import layout
from .files import Files

_ACKNOWLEDGED = "durable up to seq "


def write(files: Files, path: str, reason: str, *, durable: int) -> str:
    """Leave word on the disk that a sync failed. Returns the reason, and why that could not be written if so.

    `durable` is the last seq that an earlier sync covered. The mark in the segment says as much, but it is
    carried by the next sync, and that is the one that failed.
    """
    name = f"{path}/{layout.POISON}"
    try:
        if not files.exists(name):
            _write(files, path, f"{reason}\n{_ACKNOWLEDGED}{durable}\n".encode())
        files.sync_dir(path)
    except Exception as error:
        # The word on the board, or the absence of a sync's result there, says the same after a restart.
        return f"{reason} (and {name} could not be written: {error})"
    return reason


def _write(files: Files, path: str, said: bytes) -> None:
    temporary = f"{path}/{layout.spare_name(files.new_id().hex())}"
    with files.create(temporary, len(said)) as file:
        file.pwritev([said], 0)
        try:
            file.sync()
        finally:
            files.rename(temporary, f"{path}/{layout.POISON}")


def text(files: Files, path: str) -> str | None:
    """What the poison of the log at `path` says, "" where the text went with the power; None for a log without one."""
    name = f"{path}/{layout.POISON}"
    return files.read(name).decode(errors="replace").strip("\0 \n") if files.exists(name) else None


def acknowledged(said: str | None) -> int | None:
    """The last durable seq of a poisoned log, 0 when its poison does not say; None without one that has a text."""
    if not said:
        return None
    last = said.rpartition("\n")[2]
    digits = last.removeprefix(_ACKNOWLEDGED)
    return int(digits) if last.startswith(_ACKNOWLEDGED) and digits.isdecimal() else 0
