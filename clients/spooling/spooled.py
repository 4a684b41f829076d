"""What stands in the directory of a spool, for the process that accepts records and the one that forwards them.

    DIR/records/N        logs of accepted records; topic, partition, time and headers are packed beside value and key
    DIR/forwarded.json   the place of the last record that the broker stored, and of the last that it may have stored
    DIR/lock             held by the process that accepts
    DIR/forwarding       held by the process that forwards

Contract: values and encodings; decides nothing.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec

from ...storage.errors import Corrupt
from ...storage.files import Files
from ...storage.header_list import HeaderPair
from ...storage.record import Record

if TYPE_CHECKING:
    from ...storage.rolling_logs import RollingLogs

PROGRESS = "forwarded.json"

_NAME = re.compile("spool-[0-9a-f]{24}")

ENVELOPE = "spooled"
"""The header of a record in a spool."""


class Envelope(msgspec.Struct, array_like=True):
    """Where a record goes."""

    topic: str
    partition: int | None
    timestamp: int | None
    headers: dict[str, bytes] | None
    null: bool = False  # in place of the value, which is empty then
    header_list: list[HeaderPair] | None = None  # of headers that do not fit a map


class SpoolProgress(msgspec.Struct):
    """How far a spool is forwarded. `name` is that of its transactions.

    Invariant: `stored` <= `ahead`; records up to `stored` are stored, those behind it and up to `ahead` perhaps.
    """

    name: str
    stored: int = 0
    ahead: int = 0


_ENVELOPE = msgspec.msgpack.Decoder(Envelope)


def packed(envelope: Envelope) -> bytes:
    """The header of a record in a spool."""
    return msgspec.msgpack.encode(envelope)


def unpacked(record: Record) -> Envelope:
    """Where a record of a spool goes."""
    return _ENVELOPE.decode((record.headers or {})[ENVELOPE])


def records_path(path: str) -> str:
    """The directory of the logs."""
    return f"{path}/records"


def load(path: str, files: Files) -> SpoolProgress:
    """How far a spool is forwarded; a new one gets its name. Raises Corrupt."""
    try:
        found = msgspec.json.decode(files.read(f"{path}/{PROGRESS}"), type=SpoolProgress)
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from None
    except FileNotFoundError:
        made = SpoolProgress(f"spool-{os.urandom(12).hex()}")
        save(path, files, made)
        return made
    if not (_NAME.fullmatch(found.name) and 0 <= found.stored <= found.ahead):
        raise _damaged(path, f"name {found.name[:60]!r}, stored {found.stored}, ahead {found.ahead}")
    return found


def check(path: str, progress: SpoolProgress, logs: RollingLogs) -> None:
    """Raise Corrupt if more is forwarded than there ever was: records would be taken for stored."""
    if progress.ahead > logs.last_given():
        raise _damaged(path, f"ahead {progress.ahead} is behind the last record, {logs.last_given()}")


def _damaged(path: str, why: str) -> Corrupt:
    file = f"{path}/{PROGRESS}"
    return Corrupt(
        f"{file} does not say how far the spool is forwarded: {why}; restore it from a copy, or remove it: what is in "
        "the spool is then forwarded once more",
        path=file,
    )


def save(path: str, files: Files, progress: SpoolProgress) -> None:
    """Write it down, durably."""
    files.rewrite(f"{path}/{PROGRESS}", msgspec.json.encode(progress))
