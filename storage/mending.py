"""Batches of a log that have rotted, and their bytes from another copy of it, which take their place.

Idea: the chain says what belongs into a damaged range. The batch before it gives the header checksum that the first
batch names, and what stands behind it names that of the last: a batch, or the next segment. A header covers the
columns. So what fits between the two is what was there, whichever copy it comes from.

Contract: `look_for_rot` reads only, and may run beside a writer. `mend` writes over a range of one segment, and syncs;
cut short, it leaves a range that is rotten still. First pages, snapshots, indexes and tails are not mended.
Must not know where bytes come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .batch import parse
from .errors import InvalidBatch
from .recovery import NOTHING, LogEnd, end_before, follows
from .scan import Bad, Good, Segments, Tail, look, scan

if TYPE_CHECKING:
    from .files import Files


class RottenRange(Struct, frozen=True):
    """The batches behind `before`, up to `last`, of one segment. `checksum`: of the header of `last`."""

    path: str
    log_id: bytes
    before: LogEnd
    last: int
    checksum: int

    def follow(self, end: LogEnd, body: bytes) -> LogEnd:
        """The place behind a batch that stands at `end`. Raises InvalidBatch where it does not belong there."""
        batch = parse(body)
        batch.check()
        reason = follows(end, batch, self.log_id)
        if reason or batch.batch_bytes != len(body):
            raise InvalidBatch(reason or f"batch {batch.seq} came with {len(body) - batch.batch_bytes} bytes behind it")
        return end.after(batch, end.position)


def look_for_rot(
    files: Files, directory: str, durable: Callable[[bytes], int] = lambda log_id: 0
) -> Iterator[RottenRange | Bad | int]:
    """Read all of a log. Gives the bytes that verify, what has rotted, and damage that cannot be mended.

    `durable`: a batch that was durable as other files say, by the id of the log; the marks may say less. Damage that
    nothing stands behind is not mended, though the mark names the last batch: more may be gone, and what it said.

    Raises NewerFormat, OSError.
    """
    segments = look(files, directory)
    segments = replace(segments, durable=max(segments.durable, durable(segments.log_id)))
    end, bad, before = NOTHING, None, None
    for found in scan(files, directory, segments):
        if bad is not None and (isinstance(found, Good) or found.file != bad.file):
            yield _closed(segments, bad, before, found)
            bad = None
        if isinstance(found, Good):
            end = NOTHING.after(found.batch, found.position)
            yield found.batch.batch_bytes
        elif isinstance(found, Bad) and bad is None:
            bad, before = found, _place_before(segments, found, end)
    if bad is not None:
        yield _closed(segments, bad, before, None)


def _place_before(segments: Segments, bad: Bad, end: LogEnd) -> LogEnd | None:
    """The place before the first batch of a range, by the batch before it or the header of its segment."""
    at = _index(segments, bad)
    header = None if at is None else segments.pages[segments.names[at]].header
    if header is None:  # without it, a log is not opened
        return None
    if header.base_seq == bad.first_seq:
        return end_before(header)
    return end


def _closed(segments: Segments, bad: Bad, before: LogEnd | None, found: Good | Bad | Tail | None) -> RottenRange | Bad:
    """A range whose last batch is known, by what stands behind it; or damage that nothing ends."""
    at = _index(segments, bad)
    if before is None or at is None:
        return bad
    name = segments.names[at]
    last = checksum = 0
    if isinstance(found, Good) and found.segment == name:
        last, checksum = found.batch.seq - 1, found.batch.previous
    elif at + 1 < len(segments.names):
        header = segments.pages[segments.names[at + 1]].header
        if header is not None:
            last, checksum = header.base_seq - 1, header.previous
    return RottenRange(bad.file, segments.log_id, before, last, checksum) if last > before.seq else bad


def _index(segments: Segments, bad: Bad) -> int | None:
    """The place of the segment that damage is in."""
    name = bad.file.rpartition("/")[2]
    return next((at for at, each in enumerate(segments.names) if each.segment_file == name), None)


def mend(files: Files, rot: RottenRange, bodies: Sequence[bytes]) -> None:
    """Write batches over what has rotted, durably.

    Raises InvalidBatch where they are not what was there, FileNotFoundError where the segment is gone, StorageFull,
    OSError.
    """
    end = rot.before
    for body in bodies:
        end = rot.follow(end, body)
    if end.checksum != rot.checksum:
        raise InvalidBatch(f"batch {end.seq} is not the one that {rot.path} had in the place of {rot.last}")
    with files.open(rot.path, write=True) as file:
        file.pwritev(bodies, rot.before.position)
        file.sync()
