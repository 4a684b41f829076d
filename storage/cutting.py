"""Cuts a log: begins a new generation at its end, which makes everything behind that end void.

Idea: nothing is ever cut in place. A segment of a higher generation that starts at the end voids the batches of older
generations from its first seq on (FORMAT.md, section 5). Opening, repair and the writer all cut like this.

Contract: everything before the new segment is durable before it has its name, and void segments are removed only once
its name is on the disk. Until then the older generation is the log, so a crash at any point leaves one or the other.
Must not know: why a log is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import layout, segment
from .errors import StorageError
from .files import Files
from .layout import DATA_START, SegmentName, live_segments
from .recovery import LogEnd
from .segment import Segment
from .tail import LogTail

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

_FIRST_BYTES = 4096
"""Room for batches that a generation begins with, where the options of the log give it no more."""


class UnsafeCut(StorageError):
    """A cut below a batch that is committed or safe; the message names the seq. Stays inside the process."""

    code = "unsafe_cut"


def cut(tail: LogTail) -> None:
    """Make everything up to the end durable, and whatever lies behind it void. Raises Poisoned, StorageFull."""
    tail.sync_segments(mark=False)
    end, size, spare = tail.end(), tail.room.size(_FIRST_BYTES), tail.room.take_spare()
    try:
        live, void = live_segments(tail.files.listdir(tail.path))  # also what an interrupted cut has left
        generation = 1 + max(name.generation for name in [*live, *void])
        made = begin_generation(tail.files, tail.path, tail.log_id, end, generation, size=size, spare=spare)
        tail.names = [*(name for name in tail.names if name.base_seq <= end.seq), made.ref.name]
        tail.generation = generation
        remove_void(tail.files, tail.path)
    except OSError as error:
        raise tail.poisoned_by(error) from error
    tail.close_segments()
    tail.opened.append(made)
    tail.must_cut = False
    tail.announce(made)


def go_back(tail: LogTail, end: LogEnd, name: SegmentName) -> None:
    """Let the log end at `end`, in segment `name`. Nothing is appended before the rest is cut.

    The disk does not know yet: a crash before `cut` has done its work leaves the log as it was.
    """
    tail.must_cut, tail.ready, tail.in_term = True, False, False
    tail.resting, tail.resting_name = end, name
    tail.written, tail.durable = end.seq, min(tail.durable, end.seq)
    tail.end_offset, tail.checksum, tail.last_time_us, tail.term = end.offset, end.checksum, end.time_us, end.term
    tail.ends = {seq: offset for seq, offset in tail.ends.items() if seq < end.seq} | {end.seq: end.offset}
    while tail.opened and tail.opened[-1].ref.base_seq > name.base_seq:
        tail.opened.pop().close()
    if tail.opened:
        tail.opened[-1].position, tail.opened[-1].last_seq = end.position, end.seq


def begin_generation(
    files: Files,
    path: str,
    log_id: bytes,
    end: LogEnd,
    generation: int,
    *,
    size: int = DATA_START,
    clean: bool = False,
    spare: str | None = None,
    body: Sequence[Buffer] = (),
) -> Segment:
    """Make the first segment of a generation: it starts at `end`, and its mark says that all up to there is durable.

    Args:
        clean: nothing is written behind it yet, so the next opening goes on in it.
        spare, body: as for `segment.create`.
    """
    mark = end.at_start().mark(log_id, generation, clean=clean)
    return segment.create(files, path, end.header(log_id, generation), size=size, mark=mark, spare=spare, body=body)


def remove_void(files: Files, path: str) -> None:
    """Unlink what the new generation made void, and the word that poisoned the old one.

    Only once the new generation's name is on the disk: until then the old one is the log.
    """
    listed = files.listdir(path)
    _, void = live_segments(listed)
    gone = [file for name in void for file in (name.segment_file, name.index_file)]
    found = [name for name in [*gone, layout.POISON] if name in listed]
    for name in found:
        files.unlink(f"{path}/{name}")
    if found:
        files.sync_dir(path)
