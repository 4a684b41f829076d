"""Evidence of how far a log was durable besides its marks, for when damage hit the marks too.

Idea: a crash may leave any pages of unsynced bytes, which were never acknowledged, so later batches, index rows and
later segments of the same generation prove nothing. Files that are written only after batches are durable do: a
snapshot, and the first segment of a generation. A segment that has lost its marks is always damaged: bytes behind a
bad place in it are not a torn tail.

Contract: never reports damage for a log that only crashed. Reads a few bytes, of snapshots beyond the marks only.
Raises StorageFull and OSError where that cannot be done now.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import snapshots
from .errors import StorageError, is_damage
from .files import Files
from .layout import SegmentName
from .segment import Page


def marks_lost(names: list[SegmentName], place: int, page: Page) -> bool:
    """Whether a segment must have had a mark that verifies, and has none.

    A segment created because the one before was full has zeros there until its first sync, and a torn mark leaves the
    other slot intact.
    """
    return page.mark is None and (page.marks_overwritten or _made_with_mark(names, place))


def _made_with_mark(names: list[SegmentName], place: int) -> bool:
    return names[place].base_seq == 1 or begins_generation(names, place)


def begins_generation(names: list[SegmentName], place: int) -> bool:
    """Whether everything before this segment was synced before the segment got its name."""
    return place > 0 and names[place].generation != names[place - 1].generation


def durable_seq(
    files: Files, directory: str, listed: Iterable[str], names: list[SegmentName], log_id: bytes, known: int
) -> int:
    """The last seq that was durable, `known` at least.

    What stood before a generation that still has segments was, and what the header of a snapshot of this log says.
    """
    begun = (names[place].base_seq - 1 for place in range(len(names)) if begins_generation(names, place))
    known = max(known, *begun, 0)
    for name in sorted((each for each in listed if (snapshots.seq_of(each) or 0) > known), reverse=True):
        try:
            seq, owner = snapshots.stated(files, f"{directory}/{name}")
        except (StorageError, OSError) as error:
            if not is_damage(error):
                raise
            continue
        if seq == snapshots.seq_of(name) and owner in (log_id, snapshots.ANY_LOG):
            return seq
    return known
