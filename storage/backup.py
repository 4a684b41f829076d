"""Backs up a data directory, served or not: its logs up to given places, as one point of a backup directory.

Idea: the caller says how far each log goes, all at one moment. Every file that is needed is opened first, which keeps
its bytes when retention unlinks it; then what the newest point does not have yet is copied and synced, and the new
point is written last. Two checksums tie a copy to its log: the one in the header of a segment's last batch, which
covers by the chain all batches before it, and one per piece that was copied.

Contract: changes nothing in the data directory, takes no lock there and writes no mark. Until the point has its name,
the backup directory has what it had. Raises Moved when retention was faster: ask for new places. Must not know what
batches mean, nor how a broker is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from . import accepted, layout, lock, runs, snapshots
from .backup_point import (
    FORMAT,
    PRIVATE,
    CopiedPiece,
    FileCopy,
    LogCopy,
    Point,
    SegmentCopy,
    check_owner,
    claim_directory,
    next_point,
    point_names,
    point_path,
    read_point,
    write_point,
)
from .data_directory import identify
from .errors import Corrupt, ForeignDirectory, InvalidBatch, StorageError
from .files import File, Files, Progress
from .layout import DATA_START, live_segments, mark_from_row, word
from .segment_reader import SegmentReader
from .unreadable import read_around

CHUNK_BYTES = 4 << 20
TRIES = 10
"""How often the files of a log are listed anew while they change."""


NO_FILES: Mapping[str, str] = {}


class Moved(Exception):
    """Retention or a deletion was faster than the backup: ask for new places."""


class BackupPlace(Struct, frozen=True):
    """How far one log is backed up: its last batch, and what must be there: the first offset, and all batches from one
    on, which may lie below it; 0 for none."""

    directory: str
    title: str
    log_id: bytes
    seq: int
    first: int
    needed: int = 0


class Made(Struct, frozen=True):
    """A new point: its name, and the bytes that were copied for it."""

    name: str
    point: Point
    copied: int


class Pinned:
    """The open files of one log, which stay whole whatever is unlinked."""

    def __init__(self, place: BackupPlace) -> None:
        self.place = place
        self.segments: list[SegmentReader] = []
        self.others: dict[str, File] = {}

    def limit_of(self, index: int) -> int:
        """The last seq that a segment holds up to the place."""
        following = self.segments[index + 1 :]
        return min(self.place.seq, following[0].name.base_seq - 1) if following else self.place.seq

    def close(self) -> None:
        for each in (*self.segments, *self.others.values()):
            each.close()


def pin(files: Files, data: str, place: BackupPlace) -> Pinned:
    """Open what one log needs. Raises Moved, StorageFull (too many files for this process), OSError."""
    for _ in range(TRIES):
        pinned = Pinned(place)
        try:
            if _open_all(files, f"{data}/{place.directory}", pinned):
                return pinned
        except FileNotFoundError:
            pass  # unlinked since it was listed
        except BaseException:
            pinned.close()
            raise
        pinned.close()
    raise Moved(place.title)


def _open_all(files: Files, directory: str, pinned: Pinned) -> bool:
    """Whether what was opened reaches from the first offset, and the first batch that is needed, to the place."""
    place, listed = pinned.place, files.listdir(directory)
    for name in sorted(listed):
        seq = snapshots.seq_of(name)
        if name == accepted.FILE_NAME or runs.number_of(name) is not None or (seq is not None and seq <= place.seq):
            pinned.others[name] = files.open(f"{directory}/{name}")
    names = [name for name in live_segments(listed)[0] if name.base_seq <= place.seq + 1]
    for name in names:
        pinned.segments.append(SegmentReader(files, directory, name, place.log_id, mapped=False))
    if not names:
        return False
    first, header = names[0].base_seq, pinned.segments[0].page.header
    if (header is not None and header.base_offset > place.first) or 0 < place.needed < first:
        return False
    return first == 1 or any((snapshots.seq_of(name) or 0) >= first - 1 for name in pinned.others)


class Backup:
    """One backup of `data` into `target`, which is locked until `close`."""

    def __init__(self, files: Files, data: str, target: str, private: Mapping[str, str] = NO_FILES) -> None:
        """Raises ForeignDirectory, NewerFormat, AlreadyOpen (another backup runs), StorageFull.

        Args:
            private: paths of files of users that are backed up, too, by the names of their settings.
        """
        self._files = files
        self._private = private
        self._data = data
        self._target = target
        identity = identify(files, data)
        if identity is None:
            raise ForeignDirectory(f"{data} is no data directory yet: start a broker there first")
        self.identity = identity
        files.mkdir(target)
        self._lock = lock.take(f"{target}/{layout.LOCK}", files)
        self._pinned: list[Pinned] = []
        try:
            check_owner(files, target, identity)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        self.unpin()
        self._lock.release()

    def pin(self, places: Sequence[BackupPlace]) -> dict[str, str]:
        """Open the files of all logs; returns why logs had to be left out, by title. Raises Moved, StorageFull."""
        left_out: dict[str, str] = {}
        try:
            for place in places:
                try:
                    self._pinned.append(pin(self._files, self._data, place))
                except Corrupt as error:
                    left_out[place.title] = error.message
        except BaseException:
            self.unpin()
            raise
        return left_out

    def unpin(self) -> None:
        while self._pinned:
            self._pinned.pop().close()

    def make(self, left_out: dict[str, str], now_us: int, *, keep: int = 0, progress: Progress | None = None) -> Made:
        """Copy what is pinned, write the point, and remove older ones beyond `keep` (0: none).

        Args:
            left_out: logs that could not be read, by title, and why.

        Raises: StorageFull, OSError. Nothing is there then but what was there before.
        """
        claim_directory(self._files, self._target, self.identity)  # not before: a follower is refused its places
        before = self._newest()
        total = sum(reader.size for pinned in self._pinned for reader in pinned.segments)
        copier = _Copier(self._files, self._target, before, total, progress)
        logs: list[LogCopy] = []
        left_out = dict(left_out)
        for pinned in self._pinned:
            try:
                logs.append(copier.log(pinned))
            except (Corrupt, InvalidBatch) as error:
                left_out[pinned.place.title] = error.message
            pinned.close()
        self._pinned.clear()
        private: list[FileCopy] = []
        for name, path in self._private.items():
            try:
                file = self._files.open(path)
            except OSError as error:
                left_out[name] = f"{path} cannot be read: {error.strerror}"
                continue
            with file:
                private.append(copier.private(name, file))
        self._files.sync_dir(self._target)
        name, made_us = next_point(self._files, self._target, now_us)
        point = Point(FORMAT, made_us, self.identity, logs, left_out, private)
        write_point(self._files, self._target, name, point)
        prune(self._files, self._target, keep)
        return Made(name, point, copier.copied)

    def _newest(self) -> Point | None:
        """The newest point that can be read: what it has is not copied again."""
        for name in reversed(point_names(self._files, self._target)):
            try:
                return read_point(self._files, self._target, name)
            except StorageError:
                continue  # it says so when it is restored; its files are left alone
        return None


class _Copier:
    """Copies logs into the backup directory. `copied` counts bytes."""

    def __init__(self, files: Files, target: str, before: Point | None, total: int, progress: Progress | None) -> None:
        self.copied = 0
        self._files = files
        self._target = target
        self._total = total
        self._done = 0
        self._progress = progress
        logs = before.logs if before is not None else []
        self._known = {(log.log_id, segment.name): segment for log in logs for segment in log.segments}

    def log(self, pinned: Pinned) -> LogCopy:
        """Raises Corrupt when its last batch, or all snapshots it needs, cannot be read."""
        place, log_id = pinned.place, pinned.place.log_id.hex()
        directory = f"{self._target}/{log_id}"
        self._files.mkdir(directory)
        segments: list[SegmentCopy] = []
        term = 0
        for index, reader in enumerate(pinned.segments):
            cut = _cut(reader, pinned.limit_of(index), is_last=index + 1 == len(pinned.segments))
            term = max(term, cut.term)
            segments.append(self._segment(directory, log_id, reader, cut))
            self._done += reader.size
            if self._progress is not None:
                self._progress(self._done, self._total)
        others = [self._other(directory, name, file) for name, file in pinned.others.items()]
        _check_reach(pinned, others)
        self._files.sync_dir(directory)
        return LogCopy(place.directory, place.title, log_id, place.seq, term, segments, [each for each, _ in others])

    def _segment(self, directory: str, log_id: str, reader: SegmentReader, cut: _Cut) -> SegmentCopy:
        known = self._known.get((log_id, str(reader.name)))
        if known is None or not self._goes_on(directory, known, reader, cut):
            fresh = f"{reader.name}-{self._files.new_id().hex()[:12]}"
            self._files.create(f"{directory}/{fresh}").close()
            known = SegmentCopy(str(reader.name), fresh, [], 0, 0, "")
        pieces, at = list(known.pieces), cut.at
        if cut.end > known.end:
            checksum, is_whole = self._copy(reader.file, f"{directory}/{known.file}", known.end, cut.end)
            pieces.append(CopiedPiece(cut.end, checksum))
            at = at if is_whole else -1
        return SegmentCopy(known.name, known.file, pieces, at, cut.tie, cut.mark.hex())

    def _goes_on(self, directory: str, known: SegmentCopy, reader: SegmentReader, cut: _Cut) -> bool:
        """Whether the segment begins with what was copied of it."""
        path = f"{directory}/{known.file}"
        if known.at < 0 or known.end > cut.end or not self._files.is_file(path):
            return False
        with self._files.open(path) as file:
            whole = file.size() >= known.end
        return whole and _tie(reader.file, known.at) == known.tie

    def _copy(self, source: File, path: str, start: int, end: int) -> tuple[int, bool]:
        """Copy bytes to the same position, durably; returns their checksum, and whether all of them could be read."""
        state, is_whole = xxh3_64(), True
        with self._files.open(path, write=True) as target:
            for position in range(start, end, CHUNK_BYTES):
                data, bad = read_around(source, min(CHUNK_BYTES, end - position), position)
                is_whole = is_whole and bad < 0
                if position == 0:
                    blank = bytes(max(min(len(data), DATA_START) - layout.MARK_POSITIONS[0], 0))
                    data = data[: layout.MARK_POSITIONS[0]] + blank + data[DATA_START:]
                target.pwritev([data], position)
                state.update(data)
                self.copied += len(data)
            target.sync()
        return state.intdigest(), is_whole

    def private(self, name: str, file: File) -> FileCopy:
        """Copy a file that stands beside the data, for this user alone."""
        directory = f"{self._target}/{PRIVATE}"
        self._files.mkdir(directory)
        stored, _ = self._other(directory, name, file)
        self._files.sync_dir(directory)
        return stored

    def _other(self, directory: str, name: str, file: File) -> tuple[FileCopy, bytes]:
        data, _ = read_around(file, file.size(), 0)
        checksum = xxh3_64_intdigest(data)
        stored = FileCopy(name, f"{name}-{checksum:016x}", len(data), checksum)
        path = f"{directory}/{stored.file}"
        if not self._files.is_file(path):
            self._files.rewrite(path, data)
            self.copied += len(data)
        return stored, data if snapshots.seq_of(name) is not None else b""


class _Cut(Struct, frozen=True):
    """Where a segment is cut: as SegmentCopy, and the term of its last batch."""

    end: int
    at: int
    tie: int
    mark: bytes
    term: int


def _cut(reader: SegmentReader, seq: int, *, is_last: bool) -> _Cut:
    """Up to and with batch `seq`. Raises Corrupt when that is the log's last one and is damaged, InvalidBatch."""
    if seq < reader.name.base_seq:
        start = reader.start()
        mark = start.mark(reader.log_id or bytes(16), reader.name.generation)
        return _Cut(DATA_START, 0, _tie(reader.file, 0), layout.encode_mark(mark), start.term)
    row = reader.row(seq)
    if row is not None:
        mark = mark_from_row(reader.log_id or bytes(16), word(reader.name.generation, seq), row)
        return _Cut(row.end_position, row.position, _tie(reader.file, row.position), layout.encode_mark(mark), row.term)
    if is_last:
        raise Corrupt(f"{reader.ref.path}: batch {seq}, its last one, cannot be read", path=reader.ref.path)
    mark = reader.page.mark
    return _Cut(reader.size, -1, 0, b"" if mark is None else layout.encode_mark(mark), 0)


def _tie(file: File, position: int) -> int:
    """The checksum that stands first in the header of a batch or a segment."""
    return int.from_bytes(file.pread(8, position), "little")


def _check_reach(pinned: Pinned, others: Sequence[tuple[FileCopy, bytes]]) -> None:
    """Raise Corrupt where no whole snapshot reaches the first batch."""
    first = pinned.segments[0].name.base_seq
    if first == 1:
        return
    problem = "there is none"
    for stored, data in others:
        if (snapshots.seq_of(stored.name) or 0) >= first - 1:
            try:
                snapshots.decode(data, stored.name)
                return
            except StorageError as error:
                problem = error.message
    raise Corrupt(f"{pinned.place.title} starts at batch {first} and no snapshot reaches it: {problem}")


def prune(files: Files, target: str, keep: int) -> None:
    """Remove points but the newest `keep` (0: none), then files that no point names.

    Files stay while a point cannot be read: it may name them.
    """
    names = point_names(files, target)
    for name in names[:-keep] if keep else []:
        files.unlink(point_path(target, name))
    files.sync_dir(target)
    named: set[str] = set()
    for name in names[-keep:] if keep else names:
        try:
            named |= read_point(files, target, name).names()
        except StorageError:
            return
    for log in files.listdir(target):
        directory = f"{target}/{log}"
        if (len(log) != 32 and log != PRIVATE) or not files.is_directory(directory):
            continue
        for name in files.listdir(directory):
            if f"{log}/{name}" not in named:
                files.unlink(f"{directory}/{name}")
        if not files.listdir(directory):
            files.remove_tree(directory)
