"""The writer of a log: stamps batches, places them, makes them durable, and says how far each is.

Idea: everything is planned before anything is written. A plan stamps the batches into the chain and finds
room for them (rolling to new segments where needed); only then are index rows and bytes written, and only
then do the batches exist. What fails half-way is cut: the next append goes to a segment of a new generation.

Contract: one writer per log (the caller holds the lock). `append` is all or nothing; `sync` is the only thing
that makes durable, or `settle` with a keeper's result; a failed sync poisons, for good. Bytes once written are
never written again. The term is raised, durably, before the first append after opening.
Must not know: boards, processes, what a batch means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from . import layout, opening
from . import segment as segments
from .errors import Closed, OutOfBounds, Poisoned, StorageFull
from .extents import Extents
from .files import Files
from .group_commit import Pending
from .header import Stamp
from .layout import DATA_START
from .plan import Appended, Plan, inspect, settled
from .promises import Promises
from .reader import LogReader
from .recovery import NOTHING, Damage, LogEnd
from .retention import Extent, removable
from .room import LogOptions, Room
from .segment import Segment, SegmentRef, reference
from .segment_reader import SegmentCache

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

_ENDS_KEPT = 4096


class LogWriter:
    """An open log. Make one with `create`, `open` or `create_or_open`.

    `written` is the seq of the last appended batch, `durable` of the last one known to be synced, `end_offset` the next
    offset to be given out: only this class sets them. `ready`: an append has nothing to prepare, so it closes no file.

    Invariant: durable <= written, and `_open` holds every segment with batches above `durable`, oldest first, the
    one that is written last. Nothing is open before the first append; then a failed append leaves the log to be cut:
    the next one goes on in a new generation, from `_end_now`.
    """

    on_segment: Callable[[SegmentRef], None] | None = None
    """Told of every segment that batches go to, before the append returns."""

    def __init__(
        self, path: str, files: Files, options: LogOptions, promises: Promises, found: opening.Found,
        cache: SegmentCache | None,
    ) -> None:  # fmt: skip
        """Take over a recovered log; use the class methods."""
        self.path = path
        self.options = options
        self.log_id = found.log_id
        self.generation = found.generation
        self.damage: list[Damage] = found.damage
        self.poisoned: str | None = None
        self.term = found.end.term
        self.last_time_us = found.end.time_us
        self._files = files
        self._promises = promises
        self._cache = cache
        self._names = found.names
        self._next_generation = found.next_generation
        self._clean = found.begun.clean and found.in_place
        self._must_cut = not found.in_place
        self.ready = self._closed = self._term_raised = self.segment_ends = False
        self._failure: OSError | None = None
        self._open: list[Segment] = []
        self._end = found.end
        self._end_name = found.end_name
        self.written = self.durable = found.end.seq
        self.end_offset, self._checksum = found.end.offset, found.end.checksum
        self._ends: dict[int, int] = {found.end.seq: found.end.offset}
        self._room = Room(path, files, options, found.log_id)
        self._reader: LogReader | None = None
        self._first: int | None = None

    @classmethod
    def create(
        cls,
        path: str,
        *,
        files: Files,
        log_id: bytes,
        options: LogOptions | None = None,
        promises: Promises,
        cache: SegmentCache | None = None,
    ) -> LogWriter:
        """A new log, durably there when this returns. Raises FileExistsError when there is one, StorageFull."""
        options = options or LogOptions()
        files.mkdir(path)
        if layout.live_segments(files.listdir(path))[0]:
            raise FileExistsError(f"there is a log in {path} already")
        size = max(min(options.allocate_bytes, options.segment_bytes), DATA_START)
        mark = NOTHING.mark(log_id, 1, clean=True)
        segments.create(files, path, NOTHING.header(log_id, 1), size=size, mark=mark).close()
        return cls.open(path, files=files, options=options, promises=promises, cache=cache)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files,
        options: LogOptions | None = None,
        promises: Promises,
        suspect: bool = False,
        cache: SegmentCache | None = None,
    ) -> LogWriter:
        """An existing log, recovered. Raises InvalidTopic, Corrupt, Poisoned, StorageFull, NewerFormat.

        Args:
            suspect: a sync of this log began and never answered (its keeper died): what lies above the mark is
                copied to fresh blocks, because the kernel may have forgotten that writing it failed.
        """
        found = opening.recover(files, path, suspect=suspect)
        return cls(path, files, options or LogOptions(), promises, found, cache)

    @classmethod
    def create_or_open(cls, path: str, *, files: Files, log_id: bytes, promises: Promises, **how: Any) -> LogWriter:
        """The log in `path`, made when there is none; `log_id` only names a new one."""
        if layout.live_segments(files.listdir(path))[0]:
            return cls.open(path, files=files, promises=promises, **how)
        how.pop("suspect", None)
        return cls.create(path, files=files, log_id=log_id, promises=promises, **how)

    # -- how far ----------------------------------------------------------------------------------

    @property
    def files(self) -> Files:
        """Where the log is, for those who read it without trusting it."""
        return self._files

    @property
    def committed(self) -> int:
        """Seq of the last batch that readers may see."""
        return self.written if self.options.commit == "written" else self.durable

    @property
    def first_offset(self) -> int:
        """The first offset that is kept."""
        if self._first is None:
            self._first = self._own_reader().base_offset(0)
        return self._first

    @property
    def next_term(self) -> int:
        """The term of the next batch: no batch of an earlier opening has it."""
        return self.term if self._term_raised else max(self.term, self._promises.term(self.log_id)) + 1

    def end_offset_at(self, seq: int) -> int:
        """The end offset once `seq` is the last committed batch."""
        known = self._ends.get(seq)
        return self._own_reader().end_offset_at(seq) if known is None else known

    # -- appending --------------------------------------------------------------------------------

    def append(self, batches: Sequence[Buffer], now_us: int) -> list[Appended]:
        """Stamp and write batches, all or none.

        Raises:
            InvalidBatch, BatchTooLarge: one of them cannot stand in a log.
            StorageFull: no room; nothing of it is in the log.
            Poisoned: a sync failed earlier; open the log again.
        """
        if not self.ready:
            self._prepare()
        if not batches:
            return []
        time_us = max(now_us, self.last_time_us)
        if len(batches) == 1:
            stood = self._append_one(batches[0], time_us)
            if stood is not None:
                return [stood]
        return self._append_planned(batches, time_us)

    def _append_one(self, batch: Buffer, time_us: int) -> Appended | None:
        """The usual append: one batch into room that is there, without a plan. None: it takes more than that."""
        segment, size = self._open[-1], len(batch)
        position, seq, offset = segment.position, self.written + 1, self.end_offset
        end = position + size
        if end > segment.allocated or end > self.options.segment_bytes or self.segment_ends:
            return None
        place = Stamp(seq, offset, self.term, self.log_id, time_us, self._checksum)
        entry = settled(batch, inspect(batch, size, self.options.max_batch_bytes), position, place)
        try:
            segment.write_rows(seq, (entry.row,))
        except BaseException as error:
            self._give_up([], error, interrupted=not isinstance(error, Exception))
        try:
            segment.write_batch(seq, entry.buffers, end)
        except BaseException as error:
            self._give_up([], error, interrupted=True, begun=(segment, position))
        self.written, self.end_offset, self._checksum = seq, entry.end_offset, entry.checksum
        self.last_time_us, self._ends[seq] = time_us, entry.end_offset
        self._trim_ends()
        return Appended(seq, offset, position)

    def _append_planned(self, batches: Sequence[Buffer], time_us: int) -> list[Appended]:
        """Any append: over as many segments as it takes."""
        plan = Plan(self._open[-1], self._end_now())
        options, made = self.options, []

        def room(end: LogEnd, size: int) -> Segment:
            made.append(self._make_segment(end, self.generation, size))
            return made[-1]

        try:
            plan.place(
                batches, self.log_id, self.term, time_us, begin=self.segment_ends,
                segment_bytes=options.segment_bytes, max_batch_bytes=options.max_batch_bytes, room=room,
            )  # fmt: skip
            for piece in plan.pieces:
                piece.segment.reserve(piece.end, options.allocate_bytes, max(options.segment_bytes, piece.end))
                piece.segment.write_rows(piece.first_seq, piece.rows)
        except BaseException as error:
            self._give_up(made, error, interrupted=not isinstance(error, Exception))
        self._write(plan, made)
        self.last_time_us, self.segment_ends = time_us, False
        self._ends.update(plan.ends)
        self._trim_ends()
        for segment in made:
            self._announce(segment)
        return plan.appended

    def _write(self, plan: Plan, made: list[Segment]) -> None:
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
            self._give_up(made, error, interrupted=True, begun=(pieces[0].segment, pieces[0].position))
        self._open += made
        self.written, self.end_offset, self._checksum = plan.seq, plan.offset, plan.checksum

    def _give_up(
        self, made: list[Segment], error: BaseException, *, interrupted: bool, begun: tuple[Segment, int] | None = None
    ) -> NoReturn:
        """The log ends where it did, whatever files and bytes lie behind that: the next generation makes them void.

        Until there is one, a crash must not bring back what follows the end: where writing had `begun`, the first batch
        is made none. Segments of a plan that failed are removed, but a power cut may bring them back.
        """
        if made or interrupted:
            self._must_cut, self.ready = True, False
        if begun is not None:
            error = self._taken_back(*begun, error)
        gone = {segment.ref.name for segment in made}
        self._names = [name for name in self._names if name not in gone]
        for segment in made:
            segments.remove(self._files, segment)
        if isinstance(error, OSError):
            raise self._poisoned_by(error) from error
        raise error

    def _taken_back(self, segment: Segment, position: int, error: BaseException) -> BaseException:
        """Why the append failed; where its first batch cannot be made none, nobody may be told that it is not there."""
        try:
            segments.void(self._files, segment.ref.path, position)
        except (OSError, StorageFull) as problem:
            reason = f"{error}, and what was written of it could not be taken back: {problem}"
            self.poison(reason)
            if isinstance(error, Exception):
                return Poisoned(f"{self.path} failed to append ({reason}); open it again to see what is there")
        return error

    def _trim_ends(self) -> None:
        """Keep the end offsets of the newest batches at hand; older ones are in the index."""
        known = self._ends
        if len(known) > 2 * _ENDS_KEPT:
            self._ends = dict(islice(known.items(), len(known) - _ENDS_KEPT, None))

    # -- segments ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """What the first append after opening, or after a failure, needs first."""
        self._check_open()
        if not self._term_raised:
            self.term = self.next_term
            self._promises.promise(self.log_id, self.term)
            self._term_raised = True
        if self._must_cut:
            self._cut()
        elif not self._open:
            self._reopen_last()
        self.ready = True

    def _reopen_last(self) -> None:
        """Go on in place: the clean mark must be gone from the disk before anything can follow it."""
        ref = reference(self.path, self._end_name)
        try:
            last = segments.reopen(self._files, ref, self._end.mark(self.log_id, ref.generation))
        except OSError as error:
            raise self._poisoned_by(error) from error
        self._open.append(last)
        self._announce(last)

    def _cut(self) -> None:
        """Leave whatever lies behind the end behind: go on in a new generation, whose header makes it void."""
        self._sync_open(mark=False)
        made = self._make_segment(self._end_now(), self._next_generation, DATA_START, durable=True)
        self.generation, self._next_generation = self._next_generation, self._next_generation + 1
        opening.remove_void(self._files, self.path)
        self._close_open()
        self._open.append(made)
        self._must_cut = False
        if self._reader is not None:
            self._reader.refresh()
        self._announce(made)

    def _make_segment(self, end: LogEnd, generation: int, size: int, *, durable: bool = False) -> Segment:
        """A segment that starts at `end`, with room for a batch of `size` bytes."""
        made = self._room.make(end, generation, size, durable=durable)
        self._names = [*(name for name in self._names if name.base_seq <= end.seq), made.ref.name]
        return made

    def _announce(self, segment: Segment) -> None:
        if self.on_segment is not None:
            self.on_segment(segment.ref)

    def adopt_spare(self, path: str) -> None:
        """Use this prepared file (blocks reserved, synced, all zeros) for the next segment."""
        self._room.adopt(path)

    def dirty_segments(self) -> list[SegmentRef]:
        """The segments that hold batches not known to be durable."""
        return [segment.ref for segment in self._open if segment.last_seq > self.durable]

    # -- durability -------------------------------------------------------------------------------

    def sync(self, *, mark: bool = True) -> int:
        """Make everything appended durable, here and now; returns its seq. Raises Poisoned, for good.

        Args:
            mark: False leaves the mark to a `mark_durable` soon after, for which nobody has to wait.
        """
        self._check_open()
        if self.durable < self.written:
            self._sync_open(mark=mark)
        return self.durable

    def _sync_open(self, *, mark: bool) -> None:
        pending = self.pending()
        self.carry_out(pending, mark=mark)
        self.settle(pending.generation, pending.end.seq)

    def pending(self) -> Pending:
        """What a sync that begins now covers: `carry_out` does it, `settle` says that it is done."""
        self._check_open()
        return Pending(self.generation, self._end_now(), [each for each in self._open if each.last_seq > self.durable])

    def carry_out(self, pending: Pending, *, mark: bool = True) -> None:
        """Sync, and leave a mark. Appends may go on meanwhile; a cut or a close may not. Raises Poisoned."""
        try:
            for segment in pending.segments:
                segment.sync()
        except OSError as error:
            self._failure = error  # without a call: nothing that interrupts us may let the next sync succeed
            raise self._poisoned_by(error) from error
        if mark and pending.segments:
            active = pending.segments[-1]
            # Copy-on-write file systems need room even for it. The batches are durable; the next sync leaves one.
            with suppress(StorageFull):
                segments.write_mark(active.file, pending.end.mark(self.log_id, active.ref.generation))

    def settle(self, generation: int, seq: int) -> None:
        """A sync of everything up to `seq` succeeded. One that began in another generation says nothing."""
        if generation != self.generation or not self.durable < seq <= self.written:
            return
        self.durable = seq
        while len(self._open) > 1 and self._open[0].last_seq <= seq:
            self._open.pop(0).close()

    def mark_durable(self) -> None:
        """Write the mark for what is durable into the segment that holds it; the next sync carries it."""
        if self.durable == self.written and self._open:
            active = self._open[-1]
            segments.write_mark(active.file, self._end_now().mark(self.log_id, active.ref.generation))
            return
        reader = self._own_reader()
        row = reader.row(self.durable)
        if row is not None:
            name = reader.segment_of(self.durable).name
            mark = layout.mark_from_row(self.log_id, layout.word(name.generation, self.durable), row)
            segments.leave_mark(self._files, reference(self.path, name).path, mark)

    def _end_now(self) -> LogEnd:
        position = self._open[-1].position if self._open else self._end.position
        return LogEnd(self.written, position, self.end_offset, self._checksum, self.last_time_us, self.term)

    def _poisoned_by(self, error: OSError) -> Poisoned:
        self.poison(str(error))
        return Poisoned(f"{self.path} could not be synced ({error}); what was not durable yet is lost, open it again")

    def poison(self, reason: str) -> None:
        """No more appends, no more acks: a sync failed. Written to the disk too, so that it survives a restart."""
        if self.poisoned is None:
            self.poisoned = reason  # first of all: nothing that interrupts us may leave it open
            self.poisoned = opening.poison(self._files, self.path, reason, durable=self.durable)
        self.ready = False

    def _check_open(self) -> None:
        if self._failure is not None and self.poisoned is None:
            self.poison(str(self._failure))
        if self.poisoned is not None:
            raise Poisoned(f"{self.path} takes no more writes since a sync failed ({self.poisoned}); reads go on")
        if self._closed:
            raise Closed(f"{self.path} is closed")

    def close(self, clean: bool = True) -> None:
        """Sync, leave a clean mark, let go of the files. Closing what is poisoned, or without `clean`, just lets go."""
        if self._closed:
            return
        try:
            if clean and self.poisoned is None and self.ready:
                self.sync()
                self._leave_clean_mark()
        finally:
            self._closed, self.ready = True, False
            self._close_open()
            if self._reader is not None:
                self._reader.close()
                self._reader = None  # it leads back here, as the extents do: no work for the collector
                del self._extents

    def _leave_clean_mark(self) -> None:
        active = self._open[-1]
        try:
            active.index.sync()
            segments.write_mark(active.file, self._end_now().mark(self.log_id, active.ref.generation, clean=True))
            active.sync()
        except OSError as error:
            raise self._poisoned_by(error) from error

    def _close_open(self) -> None:
        while self._open:
            self._open.pop().close()

    # -- reading and retention --------------------------------------------------------------------

    def reader(self, *, mapped: bool = False) -> LogReader:
        """A reader of this log that sees what is committed."""
        return LogReader(
            self.path, self._files, mapped=mapped, cache=self._cache, limit=self._limit, first=lambda: self._first or 0,
            newest=lambda: self._open[-1].newest if self._open else None,
        )  # fmt: skip

    def _limit(self) -> int:
        return layout.word(self.generation, self.committed)

    def _own_reader(self) -> LogReader:
        if self._reader is None:
            self._reader = LogReader(self.path, self._files, cache=self._cache, limit=lambda: self.written)
            self._extents = Extents(self._reader)
        return self._reader

    def set_first(self, offset: int) -> None:
        """Retention took effect: nothing before `offset` is kept any more."""
        if offset > self.end_offset:
            raise OutOfBounds(f"{self.path} cannot begin at {offset}, it ends at {self.end_offset}")
        self._first = max(offset, self.first_offset)

    def segments(self) -> list[Extent]:
        """Every segment's extent, oldest first, the active one last."""
        reader = self._own_reader()
        if reader.names != self._names:
            reader.refresh()
        return self._extents.all(self.written, self.end_offset, self.last_time_us)

    def expired(self, covered_seq: int) -> list[SegmentRef]:
        """Segments wholly before the first offset, durable, and covered by a snapshot of `covered_seq`."""
        gone = removable(self.segments(), self.first_offset, min(covered_seq, self.durable))
        return [reference(self.path, name) for name in self._names[: len(gone)]]

    def forget(self, gone: Sequence[SegmentRef]) -> None:
        """These segments were unlinked."""
        names = {ref.name for ref in gone}
        self._names = [name for name in self._names if name not in names]
        if self._reader is not None:
            self._extents.forget(names)
            self._reader.refresh()
