"""Reads what is not read otherwise: every byte of the closed segments of a data directory, a little at a time.

Idea: `scan` walks one closed segment, and waits where a piece is read. Logs come in the order of their paths, segments
oldest first. The last one that was read to its end is noted in `DATA/scrubbed`, so a restart goes on behind it.

Contract: reads only, but for that note; takes no lock, and runs beside a broker. What is found is looked at once more
before it is told, as retention or a cut may have taken the segment. Damage that was accepted as lost is not told. What
the page cache has is read from there. Must not know: clocks, what becomes of damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct

from .accepted import accepted_losses, is_accepted
from .data_directory import METADATA, ORDER, SCRUBBED, TOPICS
from .errors import Error
from .files import Files
from .layout import SegmentName
from .scan import Bad, Good, Segments, Tail, look, scan

PIECE_BYTES = 64 << 10
"""Read at once, but for one batch that is larger: it takes a millisecond or two."""


class ScrubbedPiece(NamedTuple):
    """So many bytes were read."""

    size: int


class Rot(NamedTuple):
    """A closed segment of the log at `path` does not verify."""

    path: str
    bad: Bad


class _Place(Struct, frozen=True):
    """The last segment that was read to its end."""

    log: str
    base_seq: int


def log_paths(files: Files, data: str) -> list[str]:
    """The directories of all logs, sorted. What is no directory, or cannot be listed now, has none."""
    topics = f"{data}/{TOPICS}"
    found = [
        f"{topics}/{each}/{number}" for each in _listed(files, topics) for number in _listed(files, f"{topics}/{each}")
    ]
    return sorted([f"{data}/{METADATA}", f"{data}/{ORDER}", *found])


def _listed(files: Files, path: str) -> list[str]:
    try:
        return files.listdir(path)
    except (Error, OSError):
        return []  # a reader says so


def closed_bytes(files: Files, path: str) -> int:
    """The size of a log's closed segments."""
    size = 0
    for name in closed(look(files, path)):
        with files.open(f"{path}/{name.segment_file}") as file:
            size += file.size()
    return size


def closed(segments: Segments) -> list[SegmentName]:
    """All but the newest, which is written to."""
    return segments.names[:-1]


def scrub(files: Files, data: str) -> Iterator[ScrubbedPiece | Rot]:
    """One pass over all logs, from where the last one stopped. Ends behind the last log.

    From the first segment that does not verify on, nothing is noted, so that a restart finds it again.
    """
    place, is_whole = _noted(files, data), True
    for path in log_paths(files, data):
        if place is None or path >= place.log:
            try:
                for found in _log(files, path, 0 if place is None or path != place.log else place.base_seq):
                    if not isinstance(found, _Place):
                        is_whole = is_whole and isinstance(found, ScrubbedPiece)
                        yield found
                    elif is_whole:
                        _note(files, data, found)
            except (Error, OSError):
                continue  # it was deleted, or cannot be read now: a reader says so
    with suppress(OSError):  # the next pass begins behind the place that was noted last
        files.unlink(f"{data}/{SCRUBBED}")


def _note(files: Files, data: str, place: _Place) -> None:
    with suppress(Error, OSError):  # a full disk: what is not noted is read once more after a restart
        files.rewrite(f"{data}/{SCRUBBED}", msgspec.json.encode(place))


def _log(files: Files, path: str, behind: int) -> Iterator[ScrubbedPiece | Rot | _Place]:
    segments = look(files, path)
    for name in closed(segments):
        if name.base_seq > behind:
            yield from _segment(files, path, segments, name)
            yield _Place(path, name.base_seq)


def _segment(files: Files, path: str, segments: Segments, name: SegmentName) -> Iterator[ScrubbedPiece | Rot]:
    read = 0
    for found in _scan(files, path, segments, name):
        if isinstance(found, Bad):
            yield from _once_more(files, path, name)
            return
        read += found.batch.batch_bytes
        if read >= PIECE_BYTES:
            yield ScrubbedPiece(read)
            read = 0
    yield ScrubbedPiece(read)


def _once_more(files: Files, path: str, name: SegmentName) -> Iterator[Rot]:
    """The damage of a segment, if it is still one, and its loss was not accepted."""
    segments = look(files, path)
    if name not in closed(segments):
        return
    accepted = accepted_losses(files, path)
    for found in _scan(files, path, segments, name):
        if isinstance(found, Bad) and not is_accepted(found, accepted):
            yield Rot(path, found)
            return


def _scan(files: Files, path: str, segments: Segments, name: SegmentName) -> Iterator[Good | Bad]:
    """What one closed segment holds."""
    at, file = segments.names.index(name), f"{path}/{name.segment_file}"
    for found in scan(files, path, msgspec.structs.replace(segments, names=segments.names[at : at + 2])):
        if isinstance(found, Tail) or (found.segment != name if isinstance(found, Good) else found.file != file):
            return
        yield found


def _noted(files: Files, data: str) -> _Place | None:
    path = f"{data}/{SCRUBBED}"
    try:
        return msgspec.json.decode(files.read(path), type=_Place) if files.exists(path) else None
    except (Error, msgspec.MsgspecError, OSError):
        return None
