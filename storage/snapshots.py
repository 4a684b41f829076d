"""Snapshots: the state of a partition at one seq, so that replay starts there and old segments may go.

Idea: one file per snapshot, a 64-byte checksummed header and the body as one block. A file is written under another
name, synced, renamed and the directory synced: a snapshot with its name is complete, unless the disk damaged it later.
Two are kept, so one damaged file costs replay, not state.

Contract: a snapshot is committed only when the batches up to its seq are durable. `load_newest` returns only bytes
whose checksums, log id and name agree, falls back to the one before, and raises when the remaining ones no longer
reach the log. The halves `prepare` and `commit` let another process do the sync between them. A snapshot that cannot be
read is not used, and not removed for that: the error may pass.

Must not know: what the body says (the engine's), when to take one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from .errors import BadChecksum, Corrupt, InvalidBatch, NewerFormat, StorageError, is_damage

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .files import Files

MAGIC = 0x53534E50  # "PNSS" in the file
VERSION = 1
KEPT = 2
ANY_LOG = bytes(16)

SNAPSHOT = np.dtype(
    [
        ("header_checksum", "<u8"),  # xxh3_64 of the rest of the header
        ("magic", "<u4"),
        ("version", "<u4"),
        ("seq", "<i8"),  # last seq whose effects are in the body
        ("term", "<i8"),
        ("log_id", "V16"),
        ("body_bytes", "<u8"),
        ("body_checksum", "<u8"),  # xxh3_64 of the body
    ]
)
_STRUCT = struct.Struct("<QIIqq16sQQ")
SNAPSHOT_BYTES = 64
assert SNAPSHOT.itemsize == _STRUCT.size == SNAPSHOT_BYTES

_PREFIX = "snapshot-"
_NEW = ".new"


class Snapshot(msgspec.Struct, frozen=True):
    """State after everything up to `seq`."""

    seq: int
    term: int
    body: bytes
    log_id: bytes = ANY_LOG


class FoundSnapshot(msgspec.Struct, frozen=True):
    """One snapshot file of a directory; `problem` is None when it is whole."""

    name: str
    seq: int
    problem: StorageError | None


def file_name(seq: int) -> str:
    """The name of the snapshot at `seq`."""
    return f"{_PREFIX}{seq:020d}"


def seq_of(name: str) -> int | None:
    """The seq that a file name says, None when it is not a snapshot's."""
    digits = name.removeprefix(_PREFIX)
    return int(digits) if name.startswith(_PREFIX) and len(digits) == 20 and digits.isdecimal() else None


def encode_header(seq: int, term: int, body: Buffer, log_id: bytes = ANY_LOG) -> bytes:
    """The 64 bytes that go before the body."""
    rest = _STRUCT.pack(0, MAGIC, VERSION, seq, term, log_id, len(body), xxh3_64_intdigest(body))[8:]
    return xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


def decode(data: Buffer, path: str = "") -> Snapshot:
    """The snapshot that a file's bytes are.

    Raises:
        InvalidBatch: no snapshot header. BadChecksum: header or body is damaged. Corrupt: the body is cut
            short. NewerFormat: a newer penstock wrote it.
    """
    view = memoryview(data)
    seq, term, log_id, body_bytes, body_checksum = _decode_header(view, path)
    body = view[SNAPSHOT_BYTES : SNAPSHOT_BYTES + body_bytes]
    if len(body) != body_bytes:
        raise Corrupt(f"{path} ends after {len(body)} of {body_bytes} bytes", path=path, position=len(view))
    if xxh3_64_intdigest(body) != body_checksum:
        raise BadChecksum(f"the body of {path} does not match its checksum", path=path, position=SNAPSHOT_BYTES)
    return Snapshot(seq, term, bytes(body), log_id)


def _decode_header(data: Buffer, path: str) -> tuple[int, int, bytes, int, int]:
    view = memoryview(data)
    if len(view) < SNAPSHOT_BYTES:
        raise InvalidBatch(f"{path} has {len(view)} bytes, a snapshot's header alone has {SNAPSHOT_BYTES}")
    checksum, magic, version, *said = _STRUCT.unpack_from(view)
    if magic != MAGIC:
        raise InvalidBatch(f"{path} is not a snapshot")
    if xxh3_64_intdigest(view[8:SNAPSHOT_BYTES]) != checksum:
        raise BadChecksum(f"the header of {path} does not match its checksum", path=path, position=0)
    if version > VERSION:
        raise NewerFormat(f"{path} has version {version}, this penstock reads {VERSION}; upgrade it")
    seq, term, log_id, body_bytes, body_checksum = said
    return seq, term, log_id, body_bytes, body_checksum


def stated(files: Files, path: str) -> tuple[int, bytes]:
    """Seq and log id that a snapshot's header says, whatever its body is. Raises as `decode` does."""
    with files.open(path) as file:
        seq, _, log_id, _, _ = _decode_header(file.pread(SNAPSHOT_BYTES, 0), path)
    return seq, log_id


def prepare(files: Files, directory: str, seq: int, term: int, body: bytes, log_id: bytes = ANY_LOG) -> str:
    """Write the snapshot under a temporary name and return that path: sync it, then `commit`. Raises StorageFull."""
    path = f"{directory}/{file_name(seq)}{_NEW}"
    with files.create_anew(path, SNAPSHOT_BYTES + len(body)) as file:
        file.pwritev([encode_header(seq, term, body, log_id), body], 0)
    return path


def commit(files: Files, directory: str, seq: int, log_id: bytes = ANY_LOG) -> int:
    """Give a synced snapshot its name and remove what is no longer needed.

    Returns:
        The seq of the second-newest whole snapshot (0 without one): segments up to it may go.
    """
    name = file_name(seq)
    files.replace(f"{directory}/{name}{_NEW}", f"{directory}/{name}")
    files.sync_dir(directory)
    second, unread = _newest_below(files, directory, seq, log_id)
    for other in files.listdir(directory):
        found = seq_of(other.removesuffix(_NEW))
        is_begun = found is not None and found > seq and other.endswith(_NEW)  # one that is taken meanwhile
        if found is not None and other not in (name, file_name(second), *unread) and not is_begun:
            files.unlink(f"{directory}/{other}")
    return second


def save(files: Files, directory: str, seq: int, term: int, body: bytes, log_id: bytes = ANY_LOG) -> int:
    """Write, sync and commit a snapshot; returns what `commit` does. Raises StorageFull, OSError (sync failed)."""
    files.sync(prepare(files, directory, seq, term, body, log_id))
    return commit(files, directory, seq, log_id)


def load(files: Files, directory: str, name: str, log_id: bytes = ANY_LOG) -> Snapshot:
    """One snapshot by file name. Raises as `decode` does, and Corrupt when it belongs elsewhere, or cannot be read
    (with the OSError as its cause). StorageFull, and OSErrors that are no damage, are raised as they are."""
    path = f"{directory}/{name}"
    try:
        data = files.read(path)
    except OSError as error:
        if not is_damage(error):
            raise
        raise Corrupt(f"{path} cannot be read: {error.strerror}", path=path) from error
    snapshot = decode(data, path)
    if snapshot.seq != seq_of(name):
        raise Corrupt(f"{path} holds the snapshot of seq {snapshot.seq}", path=path, position=0)
    if ANY_LOG not in (log_id, snapshot.log_id) and log_id != snapshot.log_id:
        raise Corrupt(f"{path} belongs to log {snapshot.log_id.hex()}", path=path, position=0)
    return snapshot


def is_unread(problem: StorageError | OSError) -> bool:
    """Whether nothing is known of the bytes of a snapshot with this problem: the next time they may be read."""
    return not is_damage(problem) or isinstance(problem.__cause__, OSError)


def scan(files: Files, directory: str, log_id: bytes = ANY_LOG) -> list[FoundSnapshot]:
    """Every snapshot of a directory, newest first, read and judged. Raises StorageFull, OSError."""
    found: list[FoundSnapshot] = []
    for name in _names(files, directory):
        problem: StorageError | None = None
        try:
            load(files, directory, name, log_id)
        except StorageError as error:
            if not is_damage(error):
                raise
            if isinstance(error.__cause__, FileNotFoundError):
                continue  # a newer one was saved meanwhile
            problem = error
        found.append(FoundSnapshot(name, seq_of(name) or 0, problem))
    return found


def load_newest(
    files: Files, directory: str, log_id: bytes = ANY_LOG, *, first_seq: int = 1, last_seq: int | None = None
) -> Snapshot | None:
    """The newest whole snapshot, None when replay can and must start at the log's beginning.

    Args:
        first_seq: the first seq that the log still has; a snapshot older than that is of no use.
        last_seq: the last seq that the log has; a snapshot beyond it knows batches that a cut made void.

    Raises:
        Corrupt: no whole snapshot reaches `first_seq`; the message names the damaged ones.
        NewerFormat: a newer penstock wrote the newest one (falling back would undo what it did).
        StorageFull, OSError: one cannot be read now.
    """
    problems: list[str] = []
    for name in _names(files, directory):
        try:
            snapshot = load(files, directory, name, log_id)
        except NewerFormat:
            raise
        except StorageError as error:
            if not is_damage(error):
                raise
            problems.append(error.message)
            continue
        if last_seq is not None and snapshot.seq > last_seq:
            problems.append(f"{name} is beyond the log's last seq {last_seq}")
        elif snapshot.seq >= first_seq - 1:
            return snapshot
    if first_seq > 1:
        reason = "; ".join(problems) or "there is none"
        raise Corrupt(f"the log starts at seq {first_seq} and no snapshot reaches it: {reason}", path=directory)
    return None


def drop_beyond(files: Files, directory: str, last_seq: int) -> None:
    """Remove snapshots of batches that the log lost (its writer calls this at opening): others get their seqs."""
    beyond = [name for name in _names(files, directory) if (seq_of(name) or 0) > last_seq]
    for name in beyond:
        files.unlink(f"{directory}/{name}")
    if beyond:
        files.sync_dir(directory)


def second_newest_seq(files: Files, directory: str, log_id: bytes = ANY_LOG) -> int:
    """The seq of the second-newest whole snapshot, 0 with fewer than two. Reads them: keep what `commit` returned."""
    whole = [found.seq for found in scan(files, directory, log_id) if found.problem is None]
    return whole[1] if len(whole) > 1 else 0


def _names(files: Files, directory: str) -> list[str]:
    return sorted((name for name in files.listdir(directory) if seq_of(name) is not None), reverse=True)


def _newest_below(files: Files, directory: str, seq: int, log_id: bytes) -> tuple[int, list[str]]:
    """The seq of the newest whole one below `seq`, 0 without one, and those between that cannot be read now."""
    unread: list[str] = []
    for name in _names(files, directory):
        older = seq_of(name) or 0
        if older < seq:
            try:
                load(files, directory, name, log_id)
            except (StorageError, OSError) as error:
                if is_unread(error):
                    unread.append(name)
                continue  # damaged: a whole newer one has just been written, so this one is only in the way
            return older, unread
    return 0, unread
