"""Following: the broker takes over what a producer appended to a lent log.

Idea: batches are read where the log ends and each must continue the chain, as recovery does it; then the end of the
open log moves behind it, as if it had been appended here. The producer is not believed: `Terms` says what it may write.

Contract: following writes nothing. Up to a published word it needs no lock; `every` whole batch may be taken only by
the holder of the row's byte, because another process may be writing. A batch that may not stand stops it for good: the
caller cuts there. One that cannot be read ends the appends of this opening: it may have been acknowledged, and is left
to the next. Must not know: words, grants, what records mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from .. import appending
from ..batch import Batch, Kind
from ..errors import BadChecksum, InvalidBatch, StorageError
from ..recovery import follows, read_batch
from .appending import ALLOWED

if TYPE_CHECKING:
    from ..recovery import LogEnd
    from ..tail import LogTail

_FIRST_BYTES = 64


class Terms(Struct):
    """What the producer may append. `sequence` is that of its next record; `judge` raises for what is no good batch."""

    producer_id: int
    epoch: int
    sequence: int
    judge: Callable[[Batch], object]


class TakenOver(Struct, frozen=True):
    """Batches taken over, and why it stopped before what was to be taken: "" if it did not."""

    batches: list[Batch]
    stopped: str = ""


def follow(tail: LogTail, terms: Terms, until: int, latest_us: int) -> TakenOver:
    """Take over the batches up to seq `until`, which are all there.

    None may have been appended later than `latest_us`, unless it has the time of the one before.
    """
    found: list[Batch] = []
    stopped = ""
    while tail.written < until and not stopped:
        stopped = _take(tail, terms, until, latest_us, found)
        if not stopped and tail.written < until:
            stopped = f"batch {tail.written + 1} is not there"
    return TakenOver(found, stopped)


def follow_every(tail: LogTail, terms: Terms, latest_us: int) -> TakenOver:
    """Take over all whole batches; only for the holder of the row's byte. Bytes that are no batch stop it, too."""
    found: list[Batch] = []
    stopped = _take(tail, terms, -1, latest_us, found)
    return TakenOver(found, stopped)


def _take(tail: LogTail, terms: Terms, until: int, latest_us: int, found: list[Batch]) -> str:
    """Take over batches as long as they may stand; why the next one may not, "" where there is none."""
    try:
        return _take_readable(tail, terms, until, latest_us, found)
    except OSError as error:
        tail.give_up(f"what its producer appended cannot be read: {error}")
        return str(error)


def _take_readable(tail: LogTail, terms: Terms, until: int, latest_us: int, found: list[Batch]) -> str:
    segment = tail.opened[-1]
    size = segment.file.size()
    try:
        while tail.written != until:
            batch = read_batch(segment.file.pread, segment.position, size)
            reason = _refused(tail.end(), terms, batch, tail.log_id, latest_us)
            if reason:
                return reason
            batch.check()
            terms.judge(batch)
            tail.follow(batch, segment.position)
            if len(tail.ends) > 2 * appending.ENDS_KEPT:
                appending.trim_ends(tail)
            terms.sequence += batch.record_count
            found.append(batch)
    except BadChecksum as error:
        return str(error)
    except InvalidBatch as error:
        return str(error) if any(segment.file.pread(_FIRST_BYTES, segment.position)) else ""
    except StorageError as error:
        return str(error)
    return ""


def _refused(end: LogEnd, terms: Terms, batch: Batch, log_id: bytes, latest_us: int) -> str:
    """Why a batch may not stand behind `end`; "" when it may."""
    reason = follows(end, batch, log_id)
    if reason:
        return reason
    named = batch.producer_id, batch.producer_epoch, batch.first_sequence
    if batch.kind != Kind.RECORDS or named != (terms.producer_id, terms.epoch, terms.sequence):
        return f"batch {batch.seq} is not the next one of the producer that the log is lent to"
    if batch.term != end.term or not end.time_us <= batch.append_time_us <= max(latest_us, end.time_us):
        return f"batch {batch.seq} has term {batch.term} and time {batch.append_time_us}"
    if any(column.id not in ALLOWED for column in batch.directory()):
        return f"batch {batch.seq} has columns that are not of plain records"
    return ""
