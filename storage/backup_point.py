"""What a backup directory holds: points, each the whole of a data directory at one moment, over shared files.

    DIR/backup.json                       format, and whose data directory it is: written first
    DIR/lock                              held while a backup is made
    DIR/point-<UTC time>.json             one point: a checksum, a line break, JSON
    DIR/<log id>/<segment>-<unique>       bytes of a segment, its marks zeroed, in pieces with a checksum each
    DIR/<log id>/<name>-<checksum>        snapshots, runs, accepted losses, whole
    DIR/private/<name>-<checksum>         files of users that stand beside the data, whole

Idea: bytes of a segment never change, so its copy only grows, and each point says how far it goes in it. A point is
there when its file is: that is renamed into place after everything it names was synced. Files that no point names are
left from a backup that was ended, and are removed by the next one.

Contract: a point or a directory of a newer format is refused. Must not know how logs are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_hexdigest

from . import layout
from .arguments import microseconds
from .data_directory import Identity, check_format
from .errors import BadChecksum, Corrupt, ForeignDirectory, InvalidArgument
from .files import Files
from .record import moment

FORMAT = 1
IDENTITY = "backup.json"
PRIVATE = "private"
_TIME = "%Y%m%dT%H%M%S.%fZ"
_POINT = re.compile(r"point-([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)\.json")


class CopiedPiece(Struct, array_like=True, frozen=True):
    """Bytes of a file from the end of the piece before it up to `end`."""

    end: int
    checksum: int


class SegmentCopy(Struct, frozen=True):
    """The copy of a segment, up to the last piece's end.

    `at`: the position of the last batch, or 0 for none; -1 where that is damaged, or something could not be read: no
    later point goes on from such a copy. `tie`: the first 8 bytes there, the
    checksum that chains everything before it. `mark`: the mark to restore, in hex.
    """

    name: str
    file: str
    pieces: list[CopiedPiece]
    at: int
    tie: int
    mark: str

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else 0


class FileCopy(Struct, frozen=True):
    """The copy of a file that is small and never changes."""

    name: str
    file: str
    size: int
    checksum: int


class LogCopy(Struct, frozen=True):
    """One log. `directory` is below the data directory, `title` for people."""

    directory: str
    title: str
    log_id: str
    seq: int
    term: int
    segments: list[SegmentCopy]
    files: list[FileCopy]


class Point(Struct, frozen=True):
    """Everything at one moment. `left_out`: logs and files that could not be read, by title, and why.

    `private`: files of users; each by the name of the setting that says where it is.
    """

    format: int
    made_us: int
    identity: Identity
    logs: list[LogCopy]
    left_out: dict[str, str]
    private: list[FileCopy] = []

    @property
    def size(self) -> int:
        """Bytes of what it names."""
        files = [file for log in self.logs for file in log.files] + self.private
        return sum(segment.end for log in self.logs for segment in log.segments) + sum(file.size for file in files)

    def names(self) -> set[str]:
        """The files it names, below the backup directory."""
        named = {f"{log.log_id}/{each.file}" for log in self.logs for each in (*log.segments, *log.files)}
        return named | {f"{PRIVATE}/{each.file}" for each in self.private}


def point_names(files: Files, directory: str) -> list[str]:
    """The points of a backup directory, as their times in UTC, oldest first."""
    found = (_POINT.fullmatch(name) for name in files.listdir(directory))
    return sorted(match[1] for match in found if match is not None)


def next_point(files: Files, directory: str, now_us: int) -> tuple[str, int]:
    """Name and time of a point that is made now: never before those that are there, as older ones go first."""
    for newest in point_names(files, directory)[-1:]:
        made = datetime.strptime(f"{newest}+0000", f"{_TIME}%z")
        now_us = max(now_us, microseconds(made) + 1)
    return f"{moment(now_us):{_TIME}}", now_us


def point_path(directory: str, name: str) -> str:
    """The file of a point."""
    return f"{directory}/point-{name}.json"


def write_point(files: Files, directory: str, name: str, point: Point) -> None:
    """Make a point, durably: everything it names is synced. Raises StorageFull, OSError."""
    body = msgspec.json.encode(point)
    files.rewrite(point_path(directory, name), xxh3_64_hexdigest(body).encode() + b"\n" + body)


def read_point(files: Files, directory: str, name: str) -> Point:
    """One point by name. Raises InvalidArgument for one that is not there, BadChecksum, NewerFormat, Corrupt."""
    path = point_path(directory, name)
    if not files.exists(path):
        known = ", ".join(point_names(files, directory)) or "none"
        raise InvalidArgument(f"{directory} has no point {name!r}: it has {known}")
    checksum, _, body = files.read(path).partition(b"\n")
    if checksum != xxh3_64_hexdigest(body).encode():
        raise damaged(path)
    try:
        check_format(path, msgspec.json.decode(body, type=_Versioned).format, FORMAT)
        point = msgspec.json.decode(body, type=Point)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{path} cannot be read as a point: {error}", path=path) from error
    for place in _places(point):
        if any(part in ("", ".", "..") or "\0" in part for part in place.split("/")):
            raise Corrupt(f"{path} names {place[:60]!r}, which lies elsewhere: penstock did not write it", path=path)
    return point


def _places(point: Point) -> Iterator[str]:
    """All paths of a point: a backup may come from another machine, and a restore writes where they say."""
    yield from point.names()
    for log in point.logs:
        yield from (f"{log.directory}/{each.name}" for each in (*log.segments, *log.files))
        yield log.directory


class _Versioned(Struct):
    format: int


def damaged(path: str) -> BadChecksum:
    """What is raised of a file of a backup whose bytes are not those that were written."""
    return BadChecksum(f"{path} does not match its checksum: restore another point", path=path, position=0)


def check_directory(files: Files, directory: str) -> Identity | None:
    """Whose backups a directory has; None for a new one. Raises ForeignDirectory for one that is neither."""
    path = f"{directory}/{IDENTITY}"
    if not files.exists(path):
        strange = sorted(name for name in files.listdir(directory) if name not in (layout.LOCK, f"{IDENTITY}.new"))
        if strange:
            raise ForeignDirectory(f"{directory} has no backups and is not empty (it holds {strange[0]}): name another")
        return None
    try:
        found = msgspec.json.decode(files.read(path), type=Identity)
    except msgspec.MsgspecError as error:
        raise ForeignDirectory(f"{path} cannot be read: {error}; restore it from a copy") from error
    check_format(path, found.format, FORMAT)
    return found


def check_owner(files: Files, directory: str, identity: Identity) -> bool:
    """Whether a directory is that of the node's backups, and not a new one. Raises ForeignDirectory for another's."""
    found = check_directory(files, directory)
    if found is not None and found.node != identity.node:
        raise ForeignDirectory(
            f"{directory} has backups of node {found.node}, not {identity.node}: give each node its own directory"
        )
    return found is not None


def claim_directory(files: Files, directory: str, identity: Identity) -> None:
    """Make a directory that of one node's backups. Raises as `check_owner`."""
    if not check_owner(files, directory, identity):
        owner = Identity(FORMAT, identity.node, identity.cluster)
        files.rewrite(f"{directory}/{IDENTITY}", msgspec.json.encode(owner))
