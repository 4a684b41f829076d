"""Accepted losses: damaged ranges that an operator accepted as lost, so that they stop blocking readers.

Idea: `repair --accept-loss` writes one line per damaged range to the file `accepted` of a log. An accepted range stays
unreadable and in every report, but no longer counts as unresolved damage: readers pass it with a warning.

Contract: a range is accepted as a whole: damage that grew since counts again. An unreadable line accepts nothing.

Must not know: how damage is found.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from .errors import AcceptedLoss
from .files import Files
from .unreadable import read_patiently

log = logging.getLogger("penstock.storage")

FILE_NAME = "accepted"


class Accepted(msgspec.Struct, frozen=True):
    """One accepted range: records [offset, next_offset) in batches [first_seq, next_seq); None = to the end then."""

    file: str
    position: int
    first_seq: int
    next_seq: int | None
    offset: int
    next_offset: int | None
    reason: str
    time_us: int


class Range(Protocol):
    """The fields of a damage report that `is_accepted` compares."""

    @property
    def offset(self) -> int: ...
    @property
    def next_offset(self) -> int | None: ...
    @property
    def file(self) -> str: ...
    @property
    def position(self) -> int: ...


def is_accepted(bad: Range, accepted: Iterable[Accepted]) -> bool:
    """Whether this damage lies within an accepted range."""
    return any(_within(bad, each) for each in accepted)


def _within(bad: Range, given_up: Accepted) -> bool:
    if bad.next_offset is None or given_up.next_offset is None:
        return (bad.offset, bad.next_offset) == (given_up.offset, given_up.next_offset)
    if bad.offset == bad.next_offset:
        return (_name(bad.file), bad.position) == (_name(given_up.file), given_up.position)
    return given_up.offset <= bad.offset and bad.next_offset <= given_up.next_offset


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def covers(accepted: Iterable[Accepted], offset: int, next_offset: int) -> bool:
    """Whether all records [offset, next_offset) are accepted as lost, in one range or several."""
    known = sorted((each.offset, each.next_offset) for each in accepted if each.next_offset is not None)
    for first, behind in known:
        if first <= offset < behind:
            offset = behind
    return offset >= next_offset


def passed(error: AcceptedLoss) -> int:
    """Warn of records that a reader skips. Returns the offset where it goes on."""
    assert error.next_offset is not None, "a loss is accepted with its end"
    log.warning("%s", error.message)
    return error.next_offset


def read_accepted(files: Files, directory: str) -> list[Accepted]:
    """The ranges accepted in this log so far, to write them again with others. Raises StorageFull, OSError."""
    path = f"{directory}/{FILE_NAME}"
    return _decode_all(files.read(path)) if files.is_file(path) else []


def accepted_losses(files: Files, directory: str) -> list[Accepted]:
    """As `read_accepted`, without those that the disk cannot read: for who only asks."""
    path = f"{directory}/{FILE_NAME}"
    return _decode_all(read_patiently(files, path)) if files.is_file(path) else []


def write_accepted(files: Files, directory: str, accepted: Sequence[Accepted]) -> None:
    """Replace the list, synced and under its name before this returns. Raises StorageFull, OSError."""
    files.rewrite(f"{directory}/{FILE_NAME}", b"".join(map(_encode, accepted)))


def _encode(accepted: Accepted) -> bytes:
    """Checksum in hex, a space, JSON: a flipped bit must not accept a different range."""
    text = msgspec.json.encode(accepted)
    return b"%016x %s\n" % (xxh3_64_intdigest(text), text)


def _decode_all(data: bytes) -> list[Accepted]:
    return [accepted for line in data.splitlines() if (accepted := _decode(line)) is not None]


def _decode(line: bytes) -> Accepted | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%016x" % xxh3_64_intdigest(text):
        return None
    try:
        return msgspec.json.decode(text, type=Accepted)
    except msgspec.MsgspecError:
        return None
