"""Restores a point of a backup directory as a new data directory.

Idea: check first that every byte agrees with its checksum, and make nothing before. Then the logs are written, each
segment with the mark that says where it ends, indexes are made from the batches, and `node.json` comes last: without
it, a node refuses the directory. Logs continue in a later term, so that positions and leases from after the point are
refused instead of taken for others. A point of a cluster's node becomes a directory of a broker that is alone: other
nodes and the order that they share are not in it.

Contract: the directory must be new or empty, or one that an ended restore left. Raises BadChecksum and Corrupt for a
damaged backup, before anything is made. Must not know how backups are made.
"""

from __future__ import annotations

from xxhash import xxh3_64, xxh3_64_intdigest

from . import layout, lock
from .backup_point import PRIVATE, FileCopy, LogCopy, Point, SegmentCopy, damaged
from .data_directory import METADATA, TOPICS, note_identity, of_its_own
from .errors import Corrupt, ForeignDirectory, InvalidArgument
from .files import File, Files, Progress
from .index import row_of
from .layout import INDEX_ROW_BYTES, INDEX_ROW_STRUCT, MARK_POSITIONS, Promise, SegmentName
from .promises import journal
from .scan import Bad, Good, scan

CHUNK_BYTES = 4 << 20
TERM_LEAP = 1024
"""How many terms a restored log skips: more than its original began after the point, and a small part of 2^23."""

MARKER = "restoring"
_BEFORE = frozenset({layout.LOCK, f"{MARKER}.new"})
_BEGUN = _BEFORE | {MARKER, METADATA, TOPICS, layout.PROMISES, f"{layout.PROMISES}.new", f"{layout.NODE}.new"}


def check(files: Files, directory: str, point: Point, progress: Progress | None = None) -> None:
    """Read all that a point names. Raises BadChecksum, Corrupt: the message names the file."""
    done, total = 0, point.size
    for log in point.logs:
        for segment in log.segments:
            _check_pieces(files, f"{directory}/{log.log_id}/{segment.file}", segment)
            done += segment.end
            if progress is not None:
                progress(done, total)
        for stored in log.files:
            _whole(files, f"{directory}/{log.log_id}/{stored.file}", stored)
    for stored in point.private:
        _whole(files, f"{directory}/{PRIVATE}/{stored.file}", stored)


def _whole(files: Files, path: str, stored: FileCopy) -> bytes:
    """The content of a small file. Raises BadChecksum, Corrupt."""
    with _opened(files, path) as file:
        data = file.pread(stored.size, 0)
    if xxh3_64_intdigest(data) != stored.checksum:
        raise damaged(path)
    return data


def _check_pieces(files: Files, path: str, segment: SegmentCopy) -> None:
    with _opened(files, path) as file:
        start = 0
        for piece in segment.pieces:
            state = xxh3_64()
            for position in range(start, piece.end, CHUNK_BYTES):
                state.update(file.pread(min(CHUNK_BYTES, piece.end - position), position))
            if state.intdigest() != piece.checksum:
                raise damaged(path)
            start = piece.end


def _opened(files: Files, path: str) -> File:
    try:
        return files.open(path)
    except FileNotFoundError as error:
        raise Corrupt(f"{path} is missing from the backup: restore another point", path=path) from error


def restore(files: Files, directory: str, point: Point, data: str, *, progress: Progress | None = None) -> list[str]:
    """Make the data directory `data`. Returns what was damaged in the original already, in sentences.

    Raises ForeignDirectory (it is not empty), AlreadyOpen, BadChecksum, Corrupt, StorageFull.
    """
    _check_target(files, data)
    check(files, directory, point)
    files.mkdir(data)
    held = lock.take(f"{data}/{layout.LOCK}", files)
    try:
        _check_target(files, data)
        return _make(files, directory, point, data, progress)
    finally:
        held.release()


def restore_private(files: Files, directory: str, point: Point, name: str, path: str) -> None:
    """Write a private file of the backup to a new `path`, for this user alone.

    Raises InvalidArgument: the backup has no such file, or one is there; BadChecksum, Corrupt, StorageFull, OSError.
    """
    check_new_private(files, point, name, path)
    (stored,) = (each for each in point.private if each.name == name)
    files.rewrite(path, _whole(files, f"{directory}/{PRIVATE}/{stored.file}", stored))


def check_new_private(files: Files, point: Point, name: str, path: str) -> None:
    """Raise InvalidArgument where the backup has no such file, or there is one already."""
    if name not in {each.name for each in point.private}:
        raise InvalidArgument(f"the backup has no {name} file: it was made without the setting {name}")
    if files.exists(path):
        raise InvalidArgument(f"{path} is there already: name a new file, and compare them")


def _check_target(files: Files, data: str) -> None:
    found = set(files.listdir(data))
    if not found <= (_BEGUN if MARKER in found else _BEFORE):
        raise ForeignDirectory(f"{data} is not empty: restore into a new directory, then move it to its place")


def _make(files: Files, directory: str, point: Point, data: str, progress: Progress | None) -> list[str]:
    files.rewrite(f"{data}/{MARKER}", b"penstock restore was ended: run it again, or remove this directory\n")
    for name in (METADATA, TOPICS):
        files.remove_tree(f"{data}/{name}")
    done, found = 0, []
    for log in point.logs:
        found += _restore_log(files, f"{directory}/{log.log_id}", log, f"{data}/{log.directory}")
        done += sum(segment.end for segment in log.segments)
        if progress is not None:
            progress(done, point.size)
    promises = (Promise(bytes.fromhex(log.log_id), log.term + TERM_LEAP) for log in point.logs)
    files.rewrite(f"{data}/{layout.PROMISES}", journal(promises))
    note_identity(files, data, of_its_own(point.identity))
    files.unlink(f"{data}/{MARKER}")
    files.sync_dir(data)
    return found


def _restore_log(files: Files, source: str, log: LogCopy, directory: str) -> list[str]:
    """Write one log, durably. Returns its damage. Raises Corrupt when it does not end where it should."""
    files.mkdir(directory)
    for segment in log.segments:
        _restore_segment(
            files, f"{source}/{segment.file}", segment, f"{directory}/{segment.name}{layout.SEGMENT_SUFFIX}"
        )
    for stored in log.files:
        files.rewrite(f"{directory}/{stored.name}", files.read(f"{source}/{stored.file}")[: stored.size])
    files.sync_dir(directory)
    rows = _Rows(files, directory, bytes.fromhex(log.log_id))
    damage = [rows.add(found) for found in scan(files, directory)]
    rows.write()
    known = [f"{log.title}: {text}" for text in damage if text]
    if rows.last_seq != log.seq and not known:
        raise Corrupt(f"{log.title} ends at batch {rows.last_seq} in the backup, not at {log.seq}", path=source)
    return known


def _restore_segment(files: Files, source: str, segment: SegmentCopy, target: str) -> None:
    with files.open(source) as origin, files.create(target, segment.end) as file:
        for position in range(0, segment.end, CHUNK_BYTES):
            file.pwritev([origin.pread(min(CHUNK_BYTES, segment.end - position), position)], position)
        if segment.mark:
            file.pwritev([bytes.fromhex(segment.mark)], MARK_POSITIONS[0])
        file.sync()


class _Rows:
    """The index of one segment after the other, from the batches as they are scanned."""

    def __init__(self, files: Files, directory: str, log_id: bytes) -> None:
        self.last_seq = 0
        self._files = files
        self._directory = directory
        self._log_id = log_id
        self._name: SegmentName | None = None
        self._body = bytearray()

    def add(self, found: object) -> str:
        """Take one finding of the scan. Returns a sentence about damage, or ""."""
        if isinstance(found, Bad):
            return f"{found.file}: position {found.position}: {found.reason}"
        if isinstance(found, Good):
            if found.segment != self._name:
                self.write()
                self._name = found.segment
            place = (found.batch.seq - found.segment.base_seq) * INDEX_ROW_BYTES
            self._body += bytes(place - len(self._body))  # damaged batches have no row
            self._body += INDEX_ROW_STRUCT.pack(*row_of(found.batch, found.position))
            self.last_seq = found.batch.seq
        return ""

    def write(self) -> None:
        """Write the index of the segment that was scanned last."""
        if self._name is not None:
            header = layout.encode_index_header(self._log_id, self._name.generation, self._name.base_seq)
            self._files.rewrite(f"{self._directory}/{self._name.index_file}", header + self._body)
        self._name, self._body = None, bytearray()
