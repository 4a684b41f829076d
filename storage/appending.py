"""Appending: adds batches at the end of a log, all or none.

Idea: everything is planned before anything is written. A plan stamps the batches into the chain and finds room for
them (rolling to new segments where needed); then index rows and bytes are written, and only then do the batches exist.
An append that fails half-way is taken back, and the next one goes to a segment of a new generation.

Contract: written bytes are never overwritten, except the first 64 bytes of a failed append. The end of the log moves
last, in one step.
Must not know: where terms and times come from, when a batch is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from . import cutting
from . import segment as segments
from .errors import Poisoned, StorageFull
from .header import Stamp
from .plan import Appended, Placing, Plan, Stamping, Verbatim, inspect, settled
from .recovery import LogEnd
from .segment import Segment, reference
from .tail import LogTail

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

ENDS_KEPT = 4096


def prepare(tail: LogTail) -> None:
    """Ready the tail for the first append after opening or a failure. Raises Poisoned, StorageFull, Closed."""
    tail.check_open()
    if tail.must_cut:
        cutting.cut(tail)
    elif not tail.opened:
        _reopen_last(tail)
    tail.ready = True


def _reopen_last(tail: LogTail) -> None:
    """Go on in place: the clean mark must be gone from the disk before anything can follow it."""
    ref = reference(tail.path, tail.resting_name)
    try:
        last = segments.reopen(tail.files, ref, tail.resting.mark(tail.log_id, ref.generation))
    except OSError as error:
        raise tail.poisoned_by(error) from error
    tail.opened.append(last)
    tail.announce(last)


def append(tail: LogTail, batches: Sequence[Buffer], time_us: int) -> list[Appended]:
    """Stamp batches with the tail's term and a time that is not before the last one, and write them, all or none.

    Raises InvalidBatch, BatchTooLarge, StorageFull (nothing of it is in the log), Poisoned.
    """
    if len(batches) == 1:
        segment, end = tail.opened[-1], tail.opened[-1].position + len(batches[0])
        if end <= segment.allocated and end <= tail.options.segment_bytes and not tail.segment_ends:
            return [_append_one(tail, segment, batches[0], end, time_us)]
    elif not batches:
        return []
    source = Stamping(tail.log_id, tail.term, time_us, tail.options.max_batch_bytes)
    return append_planned(tail, batches, source)


def append_stamped(tail: LogTail, batches: Sequence[Buffer]) -> list[Appended]:
    """Write batches that have their places already, as they are, all or none.

    Raises InvalidBatch (one of them does not follow), BadChecksum, NewerFormat, StorageFull, Poisoned, Closed.
    """
    if not tail.ready:
        prepare(tail)
    tail.ready = tail.in_term = False  # the next batch to be stamped needs a term above these
    return append_planned(tail, batches, Verbatim(tail.log_id, tail.end())) if batches else []


def _append_one(tail: LogTail, segment: Segment, batch: Buffer, end: int, time_us: int) -> Appended:
    """The common case: one batch that fits into the active segment, where it will `end`, without a plan."""
    position, seq, offset, size = segment.position, tail.written + 1, tail.end_offset, len(batch)
    place = Stamp(seq, offset, tail.term, tail.log_id, time_us, tail.checksum)
    entry = settled(batch, inspect(batch, size, tail.options.max_batch_bytes), position, place)
    try:
        segment.write_rows(seq, (entry.row,))
    except BaseException as error:
        _give_up(tail, [], error, interrupted=not isinstance(error, Exception))
    try:
        segment.write_batch(seq, entry.buffers, end)
    except BaseException as error:
        _give_up(tail, [], error, interrupted=True, begun=(segment, position))
    if tail.hurries:
        tail.begin_sync()
    tail.written, tail.end_offset, tail.checksum = seq, entry.end_offset, entry.checksum
    tail.last_time_us, tail.ends[seq] = time_us, entry.end_offset
    if len(tail.ends) > 2 * ENDS_KEPT:
        trim_ends(tail)
    return Appended(seq, offset, position)


def append_planned(tail: LogTail, batches: Sequence[Buffer], source: Placing) -> list[Appended]:
    """Write batches that get their places from `source`, all or none: any number, over any number of segments.

    The tail is prepared. Raises what `append` does.
    """
    plan = Plan(tail.opened[-1], tail.end())
    options, made = tail.options, []

    def room(end: LogEnd, size: int) -> Segment:
        made.append(_next_segment(tail, end, size))
        return made[-1]

    try:
        plan.place(batches, source, segment_bytes=options.segment_bytes, room=room, begin=tail.segment_ends)
        for piece in plan.pieces:
            tail.room.reserve(piece.segment, piece.end)
            piece.segment.write_rows(piece.first_seq, piece.rows)
    except BaseException as error:
        _give_up(tail, made, error, interrupted=not isinstance(error, Exception))
    _write(tail, plan, made)
    tail.segment_ends = False
    tail.ends.update(plan.ends)
    if len(tail.ends) > 2 * ENDS_KEPT:
        trim_ends(tail)
    for segment in made:
        tail.announce(segment)
    return plan.appended


def _next_segment(tail: LogTail, end: LogEnd, size: int) -> Segment:
    """The segment of this generation that starts at `end`, with room for a batch of `size` bytes."""
    made = tail.room.make(end, tail.generation, size)
    tail.names = [*(name for name in tail.names if name.base_seq <= end.seq), made.ref.name]
    return made


def _write(tail: LogTail, plan: Plan, made: list[Segment]) -> None:
    """Write the planned bytes; from here on a failure leaves bytes behind, so it means a cut.

    The end of the log moves last and at once: an interrupt before that (Ctrl-C) finds nothing appended.
    """
    pieces = [piece for piece in plan.pieces if piece.rows]
    try:
        for piece in reversed(pieces):  # the one that the others follow comes last
            piece.segment.file.pwritev(piece.buffers, piece.position)
        for piece in pieces:
            piece.segment.position = piece.end
            piece.segment.last_seq = piece.first_seq + len(piece.rows) - 1
    except BaseException as error:
        _give_up(tail, made, error, interrupted=True, begun=(pieces[0].segment, pieces[0].position))
    tail.opened += made
    tail.written, tail.end_offset, tail.checksum = plan.seq, plan.offset, plan.checksum
    tail.last_time_us, tail.term = plan.time_us, plan.term


def _give_up(
    tail: LogTail,
    made: list[Segment],
    error: BaseException,
    *,
    interrupted: bool,
    begun: tuple[Segment, int] | None = None,
) -> NoReturn:
    """The log ends where it did, whatever files and bytes lie behind that: the next generation makes them void.

    Until there is one, a crash must not bring back what follows the end: where writing had `begun`, the first batch
    is made none. Segments of a plan that failed are removed, but a power cut may bring them back. A forked child leaves
    all of it to its parent.
    """
    if tail.is_parents:
        raise error
    if made or interrupted:
        tail.must_cut, tail.ready = True, False
    if begun is not None:
        error = _taken_back(tail, *begun, error)
    gone = {segment.ref.name for segment in made}
    tail.names = [name for name in tail.names if name not in gone]
    for segment in made:
        segments.remove(tail.files, segment)
    if isinstance(error, OSError):
        raise tail.poisoned_by(error) from error
    raise error


def _taken_back(tail: LogTail, segment: Segment, position: int, error: BaseException) -> BaseException:
    """Why the append failed; where its first batch cannot be made none, no caller may be told that it is absent."""
    try:
        segments.void(tail.files, segment.ref.path, position)
    except (OSError, StorageFull) as problem:
        reason = f"{error}, and what was written of it could not be taken back: {problem}"
        tail.poison(reason)
        if isinstance(error, Exception):
            return Poisoned(f"{tail.path} failed to append ({reason}); open it again to see what is there")
    return error


def trim_ends(tail: LogTail) -> None:
    """Keep the end offsets of the newest batches at hand; older ones are in the index."""
    known = tail.ends
    tail.ends = dict(islice(known.items(), len(known) - ENDS_KEPT, None))
