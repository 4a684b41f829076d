"""Installs a staged state when a replica is opened: redoes what the install record says, as often as it takes.

Idea: each log is brought to its place at the entry of the record: what agrees stays, what is behind it is cut, and what
was staged is appended; a log that was fetched whole takes the place of the old one. The order log comes last, then the
record goes.

Contract: local, and idempotent at every step: a crash anywhere leaves a record that is redone, or none and a whole
state. A record that cannot be carried out is damage. Logs that are replaced go to the trash. Where the member had lost
something, they go to `DATA/aside/`, with those that the record does not name, and the note of the damage goes too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ...storage.data_directory import (
    ASIDE,
    DAMAGED,
    ORDER,
    STAGED,
    TOPICS,
    TRASH,
    log_path,
    partition_paths,
    topics_of,
)
from ...storage.errors import StorageError, is_damage
from ...storage.log import LogOptions, LogWriter
from ...storage.reader import LogReader
from .errors import ReplicaDamaged
from .places import Places
from .replicated import Replicated
from .staging import ORDER_DIRECTORY, InstalledLog, InstallRecord, read_record, record_names

if TYPE_CHECKING:
    from ...storage.files import Files

CHUNK_BYTES = 4 << 20
"""Of batches that are appended together."""


def install(
    files: Files, data: str, order_id: bytes, options: LogOptions | None = None, suspect: Collection[str] = ()
) -> InstallRecord | None:
    """Carry out the install record of a data directory, durably. Returns it, or None where there is none.

    `suspect`: paths of logs with a sync that never answered (see `LogWriter.open`).

    Raises ReplicaDamaged, StorageFull, Poisoned, OSError.
    """
    record = read_record(files, data, order_id)
    if record is None:
        return None
    if record.damaged:
        _set_strangers_aside(files, data, record)
    for log in record.logs:
        path = log_path(data, log.topic, log.partition)
        staged = f"{data}/{STAGED}/{log.log_id.hex()}"
        if log.replaced:
            _move(files, data, staged, path, kept=record.damaged)
        elif log.seq > log.behind:
            _extend(files, path, staged, log, options or LogOptions(), suspect=path in suspect)
    _move(files, data, f"{data}/{STAGED}/{ORDER_DIRECTORY}", f"{data}/{ORDER}", kept=record.damaged)
    if record.damaged and files.exists(f"{data}/{DAMAGED}"):
        files.unlink(f"{data}/{DAMAGED}")
        files.sync_dir(data)
    for name in list(record_names(files, data)):
        files.unlink(name)
    files.sync_dir(f"{data}/{STAGED}")
    files.remove_tree(f"{data}/{STAGED}")
    return record


def _move(files: Files, data: str, staged: str, path: str, *, kept: bool) -> None:
    """Put a staged directory in the place of another; nothing where that is done."""
    if not files.exists(staged):
        if not files.exists(path):
            raise ReplicaDamaged(f"{path} is to be installed, and is neither there nor in {staged}")
        return
    if files.exists(path):
        _move_away(files, path, f"{data}/{ASIDE if kept else TRASH}")
    files.mkdir(path.rpartition("/")[0])
    files.rename_dir(staged, path)
    files.sync_dir(path.rpartition("/")[0])
    files.sync_dir(staged.rpartition("/")[0])


def _move_away(files: Files, path: str, away: str) -> None:
    files.mkdir(away)
    files.rename_dir(path, f"{away}/{path.rpartition('/')[2]}-{files.new_id().hex()[:8]}")
    files.sync_dir(away)


def _set_strangers_aside(files: Files, data: str, record: InstallRecord) -> None:
    """Move away the logs that the record does not name: they may be damaged, and no entry to come names them."""
    named = {log_path(data, log.topic, log.partition) for log in record.logs}
    for topic in topics_of(files, data):
        for path in partition_paths(files, data, topic):
            if path not in named:
                _move_away(files, path, f"{data}/{ASIDE}")
        files.sync_dir(f"{data}/{TOPICS}/{topic.hex()}")


def _extend(files: Files, path: str, staged: str, wanted: InstalledLog, options: LogOptions, *, suspect: bool) -> None:
    order = Replicated(Places(0, {}))
    log = LogWriter.open(path, files=files, order=order, options=options, suspect=suspect)
    try:
        if log.checksum_at(wanted.seq) == wanted.checksum:
            return
        first = log.names[0].base_seq
        if log.damage or not first - 1 <= wanted.behind <= log.written:
            raise ReplicaDamaged(f"{path} holds batches {first} to {log.written}, and had {wanted.behind}", path=path)
        log.cut(wanted.behind)
        for batches in _staged(files, staged, wanted):
            log.append_stamped(batches)
        log.sync()
    finally:
        log.close(clean=log.poisoned is None)
    if log.checksum != wanted.checksum:
        raise ReplicaDamaged(f"{path} does not hold batch {wanted.seq} as the install record names it")


def _staged(files: Files, staged: str, wanted: InstalledLog) -> Iterator[list[bytes]]:
    """The staged batches of a log, some at a time."""
    reader = LogReader(staged, files, log_id=wanted.log_id)
    try:
        cursor = reader.cursor_at(wanted.behind + 1)
        while (chunk := cursor.next(CHUNK_BYTES, wanted.seq)) is not None:
            yield [bytes(batch.buffer) for batch in chunk.batches]
    except StorageError as error:
        if not is_damage(error):
            raise
        raise ReplicaDamaged(f"{staged} cannot be read, and is to be installed: {error}") from error
    finally:
        reader.close()
