"""Verifies a log: reads everything in its directory and reports damage.

Idea: one pass of `scan` feeds a report: the findings per segment and whether its index agrees, every damaged range
with file and position, where the log ends and why, the snapshots, and known problems (poison, accepted losses). The
report is made of plain values: `msgspec.to_builtins` is its JSON.

Contract: reads only, takes no lock, safe beside a running broker. `ok` means that all damage is accepted; `clean` that
`repair` has nothing to do either. Bad bytes above the newest mark are no damage but a torn tail, which the next writer
cuts. A file beside the segments that cannot be read is reported, and all others are looked at.

Must not know: how to repair.
"""

from __future__ import annotations

import msgspec

from . import aside, finals, log_ids, snapshots
from .accepted import Accepted, is_accepted, read_accepted
from .batch import Kind
from .errors import Corrupt
from .files import File, Files, Progress
from .index import row_of
from .layout import (
    INDEX_HEADER_BYTES,
    INDEX_ROW_BYTES,
    INDEX_ROW_STRUCT,
    POISON,
    PROMISES,
    SegmentName,
    decode_index_header,
)
from .recovery import end_offset_of
from .scan import Bad, Good, Segments, Tail, look, scan
from .unreadable import PatientFile


class SegmentReport(msgspec.Struct):
    """One live segment. `index` is "ok", or what is wrong with it, which a rebuild puts right.

    `records` have offsets; `staged` ones wait for a transaction, or were published behind, or never will be.
    """

    file: str
    base_seq: int
    generation: int
    batches: int = 0
    records: int = 0
    batch_bytes: int = 0
    index: str = "ok"
    staged: int = 0


class SnapshotReport(msgspec.Struct, frozen=True):
    """One snapshot file; `problem` is "" when it is whole."""

    file: str
    seq: int
    problem: str


class Report(msgspec.Struct):
    """The contents of a log's directory. Damaged ranges are [first_seq, next_seq) and [offset, next_offset)."""

    path: str
    log_id: str = ""
    first_seq: int = 0
    last_seq: int = 0
    first_offset: int = 0
    end_offset: int = 0
    durable_seq: int = 0
    batches: int = 0
    records: int = 0
    segments: list[SegmentReport] = []
    damage: list[Bad] = []
    accepted: list[Accepted] = []
    tail: Tail | None = None
    snapshots: list[SnapshotReport] = []
    void: list[str] = []
    poison: str = ""
    staged: int = 0
    strangers: list[str] = []
    finals: list[str] = []
    unread: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether no durable data is lost, except accepted losses."""
        return not self.unaccepted

    @property
    def unaccepted(self) -> list[Bad]:
        """Damage that is not accepted. That of the log as a whole never is: no writer opens it as it stands."""
        return [bad for bad in self.damage if bad.file == self.path or not is_accepted(bad, self.accepted)]

    @property
    def clean(self) -> bool:
        """Whether there is also nothing that `repair` or the next start rebuilds, cuts, drops or sets aside."""
        whole = all(segment.index == "ok" for segment in self.segments) and not any(s.problem for s in self.snapshots)
        cut = self.tail is not None and self.tail.reason != ""
        return self.ok and whole and not cut and not (self.poison or self.strangers or self.finals or self.unread)


def verify(files: Files, directory: str, *, progress: Progress | None = None) -> Report:
    """Read all of one log and report.

    Raises NewerFormat, and FileNotFoundError for a directory that is not there and no partition's.
    """
    segments = look(files, directory)
    report = Report(directory, segments.log_id.hex(), durable_seq=segments.durable)
    try:
        report.accepted = read_accepted(files, directory)
    except OSError as error:
        report.unread.append(_unread(error))
    try:
        report.poison = _text(files, f"{directory}/{POISON}")
    except OSError as error:
        report.unread.append(_unread(error))
    report.strangers = aside.strangers(files, directory, aside.is_of_a_log)
    report.void = [name.segment_file for name in segments.void]
    if not files.exists(directory) and log_ids.own_id(directory) is None:
        raise FileNotFoundError(f"there is no log in {directory}")
    _read_all(files, directory, segments, report, progress)
    for found in snapshots.scan(files, directory, segments.log_id or snapshots.ANY_LOG):
        problem = found.problem.message if found.problem is not None else ""
        report.snapshots.append(SnapshotReport(f"{directory}/{found.name}", found.seq, problem))
    report.finals, unread = finals.problems(files, directory)
    report.unread += map(_unread, unread)
    _check_reach(files, directory, report)
    _check_segments(files, directory, report)
    return report


def _read_all(files: Files, directory: str, segments: Segments, report: Report, progress: Progress | None) -> None:
    checks: dict[SegmentName, _IndexCheck] = {}
    for name in segments.names:
        path = f"{directory}/{name.segment_file}"
        report.segments.append(SegmentReport(path, name.base_seq, name.generation))
        checks[name] = _IndexCheck(files, f"{directory}/{name.index_file}", name, segments.log_id)
    by_name = dict(zip(segments.names, report.segments, strict=True))
    total, done = sum(page.size for page in segments.pages.values()), 0
    if segments.names:
        report.first_seq = segments.names[0].base_seq
        report.last_seq = report.first_seq - 1  # where it has no batch yet, as an order that was just installed
    try:
        for found in scan(files, directory, segments):
            match found:
                case Good():
                    _count(report, by_name[found.segment], found)
                    checks[found.segment].see(found)
                    done += found.batch.batch_bytes
                    if progress is not None:
                        progress(done, total)
                case Bad():
                    report.damage.append(found)
                    report.last_seq = max(report.last_seq, (found.next_seq or 0) - 1)
                case Tail():
                    report.tail = found
    finally:
        for name, check in checks.items():
            by_name[name].index = check.result()
            check.close()
    # What retention took while we read is nothing to report.
    report.segments = [each for each in report.segments if each.batches or files.exists(each.file)]


def _count(report: Report, segment: SegmentReport, found: Good) -> None:
    batch = found.batch
    end = end_offset_of(batch)
    records = end - batch.base_offset
    if not report.batches:
        report.first_offset = batch.base_offset
    segment.batches += 1
    segment.records += records
    if batch.kind == Kind.STAGED:
        segment.staged += batch.record_count
        report.staged += batch.record_count
    segment.batch_bytes += batch.batch_bytes
    report.batches += 1
    report.records += records
    report.last_seq = batch.seq
    report.end_offset = end


def _check_segments(files: Files, directory: str, report: Report) -> None:
    """Check that each segment is a file."""
    end = report.last_seq + 1, None, report.end_offset, None
    report.damage += [Bad(path, 0, aside.NO_FILE, *end) for path in aside.strangers(files, directory, aside.is_segment)]


def _check_reach(files: Files, directory: str, report: Report) -> None:
    """A log that does not begin at 1 needs a snapshot that reaches its first batch, unless it stands alone."""
    if report.first_seq <= 1 or files.exists(f"{directory}/{PROMISES}"):
        return
    log_id = bytes.fromhex(report.log_id) or snapshots.ANY_LOG
    try:
        snapshots.load_newest(files, directory, log_id, first_seq=report.first_seq, last_seq=report.last_seq)
    except Corrupt as error:
        bad = Bad(directory, 0, error.message, 1, report.first_seq, 0, report.first_offset)
        report.damage.insert(0, bad)


class _IndexCheck:
    """Holds the rows of one index against the batches as they come by."""

    def __init__(self, files: Files, path: str, name: SegmentName, log_id: bytes) -> None:
        self._name = name
        self._file: File | None = None
        self._wrong = 0
        self._missing = 0
        self._rows = memoryview(b"")
        self._first = 0
        try:
            self._file = PatientFile(files.open(path))
        except OSError as error:
            self._problem = "missing" if isinstance(error, FileNotFoundError) else str(error.strerror)
            return
        self._problem = ""
        header = decode_index_header(self._file.pread(INDEX_HEADER_BYTES, 0))
        wanted = log_id or (header and header[0])  # where no segment says which log this is, the index may
        if header != (wanted, name.generation, name.base_seq):
            self._problem = "its header does not verify"

    def see(self, good: Good) -> None:
        if self._problem:
            return
        row = self._row(good.batch.seq - self._name.base_seq)
        if row == INDEX_ROW_STRUCT.pack(*row_of(good.batch, good.position)):
            return
        if any(row):
            self._wrong += 1
        else:
            self._missing += 1

    def _row(self, index: int) -> bytes:
        """The bytes of one row, from a window that moves along."""
        if not self._first <= index < self._first + len(self._rows) // INDEX_ROW_BYTES:
            assert self._file is not None
            start = INDEX_HEADER_BYTES + index * INDEX_ROW_BYTES
            self._rows = memoryview(self._file.pread(1024 * INDEX_ROW_BYTES, start))
            self._first = index
        place = (index - self._first) * INDEX_ROW_BYTES
        return bytes(self._rows[place : place + INDEX_ROW_BYTES])

    def result(self) -> str:
        if self._problem or not (self._wrong or self._missing):
            return self._problem or "ok"
        return f"{self._wrong} rows are wrong, {self._missing} are missing"

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _unread(error: OSError) -> str:
    """A sentence for a file beside the segments."""
    return f"{error.filename} cannot be read: {error.strerror}"


def _text(files: Files, path: str) -> str:
    """The text of a small file, "" without one."""
    if not files.is_file(path):
        return ""
    try:
        return files.read(path).decode(errors="replace").strip() or "no reason given"
    except FileNotFoundError:
        return ""
