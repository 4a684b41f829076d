"""The poison file: records beside the segments that a sync of the log failed, so that restarts know.

    reason
    checksum of the other lines, 16 hex digits
    durable up to seq N

Contract: the file has its name once its text is synced, or could not be synced either: until the power goes, the text
is there in any case. A poison that lost its text, or was damaged, says only that a sync may have failed, since cutting
at the mark would take what earlier syncs covered. The first word stays; the next generation of the log removes it
(cutting.py). Must not know: what recovery makes of it.
"""

from __future__ import annotations

from xxhash import xxh3_64_hexdigest

from . import layout
from .files import Files
from .unreadable import read_patiently

_CHECKSUM = "checksum "
_ACKNOWLEDGED = "durable up to seq "
_BLANK = "\0 \n"


def write(files: Files, path: str, reason: str, *, durable: int) -> str:
    """Leave word on the disk that a sync failed. Returns the reason, and why that could not be written if so.

    `durable` is the last seq that an earlier sync covered. The mark in the segment says as much, but it is
    carried by the next sync, and that is the one that failed.
    """
    name = f"{path}/{layout.POISON}"
    try:
        if not files.exists(name):
            _write(files, path, encode(reason, durable))
        files.sync_dir(path)
    except Exception as error:
        # The word on the board, or the absence of a sync's result there, says the same after a restart.
        return f"{reason} (and {name} could not be written: {error})"
    return reason


def encode(reason: str, durable: int) -> bytes:
    """The text of a poison."""
    reason, last = reason.encode(errors="replace").decode().strip(_BLANK), f"{_ACKNOWLEDGED}{durable}"
    return f"{reason}\n{_CHECKSUM}{_digest(reason, last)}\n{last}\n".encode()


def _digest(reason: str, last: str) -> str:
    return xxh3_64_hexdigest(f"{reason}\n{last}".encode())


def _write(files: Files, path: str, said: bytes) -> None:
    temporary = f"{path}/{layout.spare_name(files.new_id().hex())}"
    with files.create(temporary, len(said)) as file:
        file.pwritev([said], 0)
        try:
            file.sync()
        finally:
            files.rename(temporary, f"{path}/{layout.POISON}")


def text(files: Files, path: str) -> str | None:
    """What the poison of the log at `path` says; None for a log without one.

    "" where the text went with the power, or is not the one that was written.
    """
    name = f"{path}/{layout.POISON}"
    if not files.exists(name):
        return None
    said = read_patiently(files, name).decode(errors="replace").strip(_BLANK)
    return said if acknowledged(said) is not None else ""


def acknowledged(said: str | None) -> int | None:
    """The last durable seq of a poisoned log, as its poison says; None without one that is as it was written.

    Older versions wrote no checksum.
    """
    rest, _, last = (said or "").rpartition("\n")
    reason, _, sealed = rest.rpartition("\n")
    digits = last.removeprefix(_ACKNOWLEDGED)
    if not last.startswith(_ACKNOWLEDGED) or not digits.isdecimal():
        return None
    if sealed.startswith(_CHECKSUM) and sealed != f"{_CHECKSUM}{_digest(reason, last)}":
        return None
    return int(digits)
