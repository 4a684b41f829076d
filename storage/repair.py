"""Repairs a log as far as possible, and records the ranges accepted as lost.

Idea: verify first, then one small step per finding, each harmless on its own and safe to repeat: rebuild an
index or a segment's header from the batches, cut a torn or poisoned tail the way the next writer would, drop
a damaged snapshot that a whole one stands in for, and, only when told to, accept a damaged range as lost.

Contract: offline; holds the writer's lock throughout. Batches are never changed or removed, except a tail
above the newest mark. Damage that cannot be repaired stays as it is and stays in the report. A dry run takes the same
steps on files that keep every change in memory (rehearsal.py).

Must not know: replicas (they repair a log by sending it anew).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from . import aside, cutting, first_page, layout, lock, log_ids, opening, segment, snapshots
from .accepted import Accepted, read_accepted, write_accepted
from .errors import Corrupt, Error
from .files import Files, Progress
from .index import row_of
from .layout import INDEX_ROW_STRUCT, IndexRow, SegmentName
from .recovery import NOTHING, LogEnd, before
from .rehearsal import RehearsalFiles
from .scan import Bad, Good, look, scan
from .segment import SegmentRef, reference
from .unreadable import read_around, write_over
from .verify import Report, verify


class Repaired(msgspec.Struct):
    """The findings before, the actions taken, and the findings after; in a dry run, as they would be."""

    before: Report
    actions: list[str]
    after: Report


def repair(
    files: Files,
    directory: str,
    *,
    now_us: int,
    accept_loss: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Repaired:
    """Repair one log.

    Args:
        now_us: when losses are accepted, for the record.
        accept_loss: record damaged ranges as accepted losses, so that they block nothing any more.
        dry_run: only say what would be done.

    Raises:
        AlreadyOpen: a writer has the log. NewerFormat, StorageFull. Poisoned: a sync failed just now.
        Corrupt: nothing says any more where the log begins, or which topics there were.
    """
    with _locked(files, directory):
        files = RehearsalFiles(files) if dry_run else files
        if accept_loss:
            _check_something_is_left(files, directory)
        may_go = aside.is_spareable_or_segment if accept_loss else aside.is_spareable
        moved = aside.set_strangers_aside(files, directory, may_go)
        if accept_loss:
            moved += _give_up_unread_tail(files, directory)
        found = verify(files, directory, progress=progress)
        repairs = _Repairs(files, directory, found, moved)
        misplaced = _misplaced(files, directory)
        if misplaced and not accept_loss:  # whose snapshots and indexes are here is not known before they are put back
            return Repaired(found, repairs.actions, repairs.look_again(found))
        repairs.set_copies_aside()
        if accept_loss:
            try:
                repairs.begin_anew(misplaced)
                repairs.restore()
            except Corrupt as error:
                done = "".join(f"; before that: {action}" for action in repairs.actions)
                raise Corrupt(f"{error.message}{done}", path=error.path) from error
            repairs.give_up(now_us)
            repairs.begin_at_one()
        repairs.write_marks()
        repairs.cut_tail()
        repairs.rebuild()
        repairs.drop_snapshots()
        after = repairs.look_again(found)
        if accept_loss and repairs.accept(after, now_us):
            after = repairs.look_again(after)
        return Repaired(found, repairs.actions, after)


@contextmanager
def _locked(files: Files, directory: str) -> Iterator[None]:
    if not files.exists(directory) and log_ids.own_id(directory) is None:
        raise FileNotFoundError(f"there is no log in {directory}")
    held = lock.take(lock.lock_path(directory, files), files)
    try:
        yield
    finally:
        held.release()


def _give_up_unread_tail(files: Files, directory: str) -> list[str]:
    """Write over what the disk cannot read behind the newest mark, where the log ends then. Returns what was done.

    No writer ends a log for what it cannot read, as that may have been acknowledged.
    """
    done: list[str] = []
    while True:
        try:
            opening.find_end(files, directory)
            return done
        except Error:
            return done  # the steps to come see to it
        except OSError as error:
            if not _write_over(files, error.filename):
                return done
            done.append(f"write over what the disk cannot read of {error.filename} behind its mark")


def _write_over(files: Files, path: str) -> bool:
    with files.open(path, write=True) as file:
        page, _ = read_around(file, layout.DATA_START, 0)
        mark, _ = layout.newest_mark(page)
        return write_over(file, layout.DATA_START if mark is None else mark.end_position)


class _Repairs:
    """The steps; each looks at the report, does what it finds to do, and says so."""

    def __init__(self, files: Files, directory: str, report: Report, actions: list[str]) -> None:
        self.actions = actions
        self._files = files
        self._directory = directory
        self._report = report
        self._look_for_end()

    def _look_for_end(self) -> None:
        """Find the log's end, and the segments that a writer needs but can learn nothing from.

        All of them where none says which log it is, or one is no file. Where the disk cannot read a first page that
        says so, those of which it cannot.
        """
        files, directory = self._files, self._directory
        self._end: opening.FoundLog | None = None
        self._unreadable = [each.file for each in self._report.segments]
        if not self._report.segments or aside.strangers(files, directory, aside.is_segment):
            return
        try:
            self._end = opening.find_end(files, directory)
            self._unreadable = self._end.unreadable
        except Corrupt:
            return
        except OSError as error:
            headers = {bad.file for bad in self._report.damage if bad.position == 0}
            self._unreadable = [each.file for each in self._report.segments if each.file in headers]
            if error.errno != errno.EIO or not self._unreadable:
                raise

    def _do(self, action: str, step: Callable[[], object]) -> None:
        self.actions.append(action)
        step()

    def look_again(self, last: Report) -> Report:
        """Verify again; the last report if nothing was done."""
        return verify(self._files, self._directory) if self.actions else last

    def _look_anew(self) -> None:
        self._report = self.look_again(self._report)
        self._look_for_end()

    def _set_aside(self, path: str, reason: str) -> None:
        self.actions.append(aside.set_aside(self._files, path, reason))

    def _set_segment_aside(self, ref: SegmentRef, reason: str) -> None:
        """Its index, which nothing needs, is rebuilt when it comes back."""
        self._set_aside(ref.path, reason)
        if self._files.exists(ref.index_path):
            self._files.unlink(ref.index_path)

    def set_copies_aside(self) -> None:
        """A segment that says itself that it is one of an older generation, which is there too, makes nothing void."""
        files, directory = self._files, self._directory
        names, void = layout.live_segments(files.listdir(directory))
        done = len(self.actions)
        for name in names:
            ref = reference(directory, name)
            original = first_page.stated(files, ref.path) if ref.path in self._unreadable else None
            if original is not None and original in void and original.base_seq == name.base_seq:
                self._set_segment_aside(ref, f"a copy of {reference(directory, original).path}")
        if len(self.actions) > done:
            self._look_anew()

    def begin_anew(self, misplaced: dict[SegmentName, str]) -> None:
        """Set segments of another partition aside. Where no segment is left, have an empty log instead."""
        files, directory = self._files, self._directory
        names, _ = layout.live_segments(files.listdir(directory))
        for name, why in misplaced.items():
            self._set_segment_aside(reference(directory, name), why)
        if len(misplaced) == len(names):
            self.actions += aside.make_anew(files, directory)
        if misplaced or not names:
            self._look_anew()

    def restore(self) -> None:
        """Give segments that say nothing any more a first page again: no writer opens the log without.

        Where nothing tells at which offset one begins, it is set aside.
        """
        files, directory = self._files, self._directory
        if not self._unreadable:
            return
        names, void = layout.live_segments(files.listdir(directory))
        found = _collect(files, directory)
        log_id = self._end.log_id if self._end else found.log_id
        log_id = log_id or first_page.log_id_of(files, directory, names) or files.new_id()
        logs = look(files, directory).logs
        for place, name in enumerate(names):
            path = reference(directory, name).path
            if path not in self._unreadable:
                continue
            before = names[place + 1].base_seq if place + 1 < len(names) else layout.SEQ_LIMIT
            last = found.rows.get(names[place - 1], {}).get(name.base_seq - 1) if place else None
            start = first_page.start_of(files, directory, name, log_id, last)
            if start is not None:
                if logs.get(name, log_id) != log_id:
                    self._set_aside(path, f"it is of log {logs[name].hex()}; the log of {directory} is {log_id.hex()}")
                    files.create(path).close()
                known = place + 1 < len(names) or first_page.last_of(files, directory, name, log_id, before)
                again = "" if known else ": nothing says how many records it held, so their offsets are given out again"
                for each in void:
                    if layout.makes_void(name, [each]):
                        self._set_segment_aside(reference(directory, each), f"{path} makes it void")
                self._do(
                    f"write the first page of {path} anew, which begins at offset {start.offset}{again}",
                    partial(first_page.write, files, directory, name, log_id, start, before),
                )
            elif len(self._unreadable) < len(names):
                self._set_aside(path, "nothing says at which offset it begins")
            else:
                raise Corrupt(f"nothing says at which offset {path} begins: restore it from a copy", path=path)
        self._look_anew()

    def give_up(self, now_us: int) -> None:
        """Have the log end where its batches do, though more was durable: no writer opens it before that."""
        found = self._end
        if found is None or not found.missing or self._unreadable:
            return
        self._do(
            f"give up what {self._directory} held behind batch {found.end.seq}", lambda: self._end_at(found, now_us)
        )
        self._look_anew()

    def _end_at(self, found: opening.FoundLog, now_us: int) -> None:
        files, directory, last = self._files, self._directory, found.end.seq
        gone = [bad for bad in self._report.unaccepted if bad.next_seq is None or bad.next_seq > last + 1]
        write_accepted(files, directory, [*read_accepted(files, directory), *(_given_up(bad, now_us) for bad in gone)])
        mark = found.end.mark(found.log_id, found.end_name.generation)
        segment.leave_mark(files, reference(directory, found.end_name).path, mark, durably=True)
        for name in files.listdir(directory):
            if (snapshots.seq_of(name) or 0) > last:
                self._set_aside(f"{directory}/{name}", f"a snapshot of what lay behind batch {last}")

    def begin_at_one(self) -> None:
        """Where no snapshot reaches the first batch, have the lost ones before it in a segment: readers pass those."""
        first_seq, files, directory, end = self._report.first_seq, self._files, self._directory, self._end
        if end is None or not any(bad.file == directory for bad in self._report.damage):
            return
        for each in self._report.snapshots:
            if each.problem:
                self._set_aside(each.file, each.problem)
        ref = reference(directory, SegmentName(1, end.names[0].generation))
        files.create(ref.path).close()
        self._do(
            f"make {ref.path}: what batches 1 to {first_seq - 1} held is given up, and what they did, too",
            partial(first_page.write, files, directory, ref.name, end.log_id, NOTHING, first_seq),
        )
        self._look_anew()

    def write_marks(self) -> None:
        """Marks that are lost come back when the log is opened, as far as its batches go."""
        if self._end is not None and self._end.unmarked and self._may_open() and not self._report.poison:
            files = ", ".join(reference(self._directory, name).path for name in self._end.unmarked)
            self._do(f"write the marks of {files} anew", self._recover)

    def _recover(self) -> opening.FoundLog:
        return opening.recover(self._files, self._directory, suspect=False)

    def _may_open(self) -> bool:
        return self._end is not None and not self._unreadable and not self._end.missing

    def cut_tail(self) -> None:
        """Begin a new generation where the log ends, if anything but zeros lies behind it or a sync failed."""
        if not self._may_open():
            return
        tail, poison = self._report.tail, self._report.poison
        if poison:
            self._do(f"cut at the last mark, because a sync failed: {poison}", self._cut)
        elif tail is not None and tail.reason:
            self._do(f"cut {tail.file} at {tail.position}: {tail.reason}", self._cut)

    def _cut(self) -> None:
        files, directory = self._files, self._directory
        found = self._recover()
        cutting.begin_generation(files, directory, found.log_id, found.end, found.next_generation, clean=True).close()
        cutting.remove_void(files, directory)

    def rebuild(self) -> None:
        """Write indexes and segment headers anew from the batches."""
        headers = {bad.file for bad in self._report.damage if bad.position == 0 and bad.first_seq == bad.next_seq}
        wrong = {each.file: each.index for each in self._report.segments if each.index != "ok"}
        for path in self._unreadable:
            headers.discard(path)  # with it, one that makes others void would be believed
            wrong.pop(path, None)  # it may be all that says what the segment held
        if not headers and not wrong:
            return
        found = _collect(self._files, self._directory)
        for name in found.names:
            ref = reference(self._directory, name)
            if ref.path in headers and name in found.starts:
                self._do(f"rebuild the header of {ref.path}", lambda name=name: self._write_header(name, found))
            if ref.path in wrong:
                self._do(
                    f"rebuild {ref.index_path}: {wrong[ref.path]}", lambda name=name: self._write_index(name, found)
                )

    def _write_header(self, name: SegmentName, found: _Found) -> None:
        with self._files.open(reference(self._directory, name).path, write=True) as file:
            header = layout.encode_segment_header(found.starts[name].header(found.log_id, name.generation))
            page, _ = read_around(file, layout.DATA_START, 0)  # written as a whole, as the disk may not read it
            file.pwritev([header + page[layout.SECTOR_BYTES :]], 0)
            file.sync()

    def _write_index(self, name: SegmentName, found: _Found) -> None:
        """Rows at the place of their seq; what is damaged has a row of zeros."""
        rows = found.rows.get(name, {})
        nothing = IndexRow(*[0] * len(IndexRow._fields))
        seqs = range(name.base_seq, max(rows, default=name.base_seq - 1) + 1)
        body = b"".join(INDEX_ROW_STRUCT.pack(*rows.get(seq, nothing)) for seq in seqs)
        header = layout.encode_index_header(found.log_id, name.generation, name.base_seq)
        self._files.rewrite(reference(self._directory, name).index_path, header + body)

    def drop_snapshots(self) -> None:
        """Remove damaged snapshots that a whole one, or the whole log, stands in for. What cannot be read stays."""
        if self._unreadable:
            return
        least = self._report.first_seq - 1
        whole = [each.seq for each in self._report.snapshots if not each.problem and each.seq >= least]
        if not whole and least > 0:
            return
        seen = snapshots.scan(self._files, self._directory)
        others = [each.name for each in seen if each.problem is None]
        unread = [each.name for each in seen if each.problem and snapshots.is_unread(each.problem)]
        for each in self._report.snapshots:
            path, name = each.file, each.file.rpartition("/")[2]
            if each.problem and name in others:
                self._set_aside(path, each.problem)
            elif each.problem and name not in unread:
                self._do(f"drop a damaged snapshot: {each.problem}", lambda path=path: self._files.unlink(path))

    def accept(self, report: Report, now_us: int) -> bool:
        """Write down every damaged range that is not accepted yet and loses something; whether there was any."""
        known = read_accepted(self._files, self._directory)
        fresh = [bad for bad in report.unaccepted if bad.first_seq != bad.next_seq]
        if fresh:
            given_up = [*known, *(_given_up(bad, now_us) for bad in fresh)]
            lost = ", ".join(_range_text(bad) for bad in fresh)
            self._do(f"accept the loss of {lost}", lambda: write_accepted(self._files, self._directory, given_up))
        return bool(fresh)


class _Found(msgspec.Struct):
    """Results of a scan of the segments: rows by seq, and the place before each segment's first batch."""

    names: list[SegmentName]
    log_id: bytes
    rows: dict[SegmentName, dict[int, IndexRow]]
    starts: dict[SegmentName, LogEnd]


def _collect(files: Files, directory: str) -> _Found:
    segments = look(files, directory)
    found = _Found(segments.names, segments.log_id, {}, {})
    last = NOTHING
    for each in scan(files, directory, segments):
        if not isinstance(each, Good):
            continue
        batch = each.batch
        if batch.seq == each.segment.base_seq:
            if last.seq == batch.seq - 1 and last.checksum == batch.previous:
                found.starts[each.segment] = last.at_start()
            elif last is NOTHING:
                found.starts[each.segment] = before(batch)
        found.rows.setdefault(each.segment, {})[batch.seq] = row_of(batch, each.position)
        last = last.after(batch, each.position)
    return found


def _misplaced(files: Files, directory: str) -> dict[SegmentName, str]:
    """The segments that belong in another directory, and where."""
    return {
        name: log_ids.misplacement(files, directory, log_id)
        for name, log_id in look(files, directory).logs.items()
        if log_ids.is_misplaced(directory, log_id)
    }


def _check_something_is_left(files: Files, directory: str) -> None:
    """Raise Corrupt, before anything is moved, where what is left does not even say what is lost."""
    misplaced, names = _misplaced(files, directory), look(files, directory).names
    if len(misplaced) == len(names) and log_ids.own_id(directory) is None:
        strangers = (f"{path} is {aside.NO_FILE}" for path in aside.strangers(files, directory, aside.is_segment))
        found = (f"{reference(directory, name).path}: {why}" for name, why in misplaced.items())
        why = "".join(f"; {each}" for each in [*strangers, *found])
        raise Corrupt(f"nothing is left of the log in {directory}: restore it from a copy{why}", path=directory)
    if not log_ids.is_catalogue(directory):
        return
    report = verify(files, directory)
    whole = any(not each.problem for each in report.snapshots)
    if report.damage and not report.batches and not whole:
        raise Corrupt(
            f"nothing in {directory} says which topics there are: no batch and no snapshot can be read; restore it "
            "from a copy",
            path=directory,
        )


def _given_up(bad: Bad, now_us: int) -> Accepted:
    return Accepted(
        bad.file, bad.position, bad.first_seq, bad.next_seq, bad.offset, bad.next_offset, bad.reason, now_us
    )


def _range_text(bad: Bad) -> str:
    if bad.next_offset is None:
        return f"everything from offset {bad.offset} on"
    if bad.offset == bad.next_offset:
        return f"batch {bad.first_seq}, which holds no record"
    return f"offsets {bad.offset} to {bad.next_offset - 1}"
