"""Backs up a data directory: asks the broker that serves it how far its logs go, or finds that out where none runs.

Idea: the places of a checkpoint (broker/engine/topics/checkpointing.py) are a state that a crash could have left, and
any start puts that in order. Without a broker, the directory itself is such a state; it stays locked until the copy is
made.

Contract: nothing in the data directory is changed but the holder named in its lock. Where retention is faster than the
opening of files, a new checkpoint is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from ..storage import layout, lock
from ..storage.backup import NO_FILES, Backup, BackupPlace, Made, Moved
from ..storage.data_directory import METADATA, metadata_path, partition_path
from ..storage.errors import AlreadyOpen, Corrupt, Error, ReadFailed
from ..storage.files import FileLock, Files, Progress
from ..storage.opening import check_readable, find_end
from ..transport.messages import Checkpointed, LogPlace
from .connection.driver import Driver
from .embedded.peek import Peek
from .opening import open_connection
from .verbs import Verbs

CHECKPOINTS = 10
"""How often a new checkpoint is asked for."""

_EVERYTHING = 1 << 62
_CATALOGUE = "the catalogue"

Found = tuple[list[BackupPlace], dict[str, str]]
"""Places, and why other logs are left out, by title."""


def back_up(
    data: str, target: str, *, keep: int = 0, timeout_s: float = 30.0, progress: Progress | None = None,
    private: Mapping[str, str] = NO_FILES,
) -> Made:  # fmt: skip
    """Back up the data directory `data` into `target`, as a new point beside those that are there.

    Args:
        keep: how many points remain, 0: all.
        timeout_s: how long the broker may take to answer.
        private: paths of files of users that are backed up, too, by the names of their settings.

    Raises:
        AlreadyOpen: a process has the directory that is no broker, or another backup writes into `target`.
        ForeignDirectory, NewerFormat, StorageFull, TimedOut; ReadFailed: records were removed faster than files opened.
        Corrupt: the catalogue cannot be read, and without it nothing can be restored.
    """
    files = Files()
    backup = Backup(files, data, target, private)
    held: FileLock | None = None
    try:
        try:
            held = lock.take(f"{data}/{layout.LOCK}", files)
        except AlreadyOpen:
            return _beside_a_broker(backup, _endpoint(files, data), timeout_s, keep, progress)
        return _make(backup, lambda: stopped(files, data), keep, progress)
    finally:
        backup.close()
        if held is not None:
            held.release()


def _beside_a_broker(backup: Backup, url: str, timeout_s: float, keep: int, progress: Progress | None) -> Made:
    driver = Driver(open_connection(url, timeout=timeout_s, name=None, clock=time.monotonic))
    try:
        verbs = Verbs(driver.connection)
        return _make(backup, lambda: _served(driver.run(verbs.checkpoint())), keep, progress)
    finally:
        driver.close()


def _make(backup: Backup, places: Callable[[], Found], keep: int, progress: Progress | None) -> Made:
    left_out = _pin(backup, places)
    if _CATALOGUE in left_out:
        raise Corrupt(f"without the catalogue nothing can be restored: {left_out[_CATALOGUE]}")
    return backup.make(left_out, time.time_ns() // 1000, keep=keep, progress=progress)


def _pin(backup: Backup, places: Callable[[], Found]) -> dict[str, str]:
    """Open what the places need. Returns why logs are left out."""
    reason = ""
    for _ in range(CHECKPOINTS):
        found, left_out = places()
        try:
            return left_out | backup.pin(found)
        except Moved as moved:
            reason = f"records of {moved} were removed faster than files could be opened, {CHECKPOINTS} times"
    raise ReadFailed(f"{reason}: back up again")


def _endpoint(files: Files, data: str) -> str:
    """Where the broker of a locked directory listens. Raises AlreadyOpen for another process."""
    try:
        holder = lock.holder_of(files.read(f"{data}/{layout.LOCK}"))
    except msgspec.MsgspecError:
        holder = lock.Holder()
    if not holder.local:
        lock.take(f"{data}/{layout.LOCK}", files).release()  # which names the holder, or finds it gone
        raise AlreadyOpen(f"{data} was open in another process a moment ago: back up again")
    return holder.local


def _served(answer: Checkpointed) -> Found:
    return [_place(each) for each in answer.logs], dict(answer.unavailable)


def _place(log: LogPlace) -> BackupPlace:
    if not log.name:
        return BackupPlace(METADATA, _CATALOGUE, log.log_id, log.seq, 0)
    directory = partition_path("", log.topic, log.partition).removeprefix("/")
    return BackupPlace(directory, f"{log.name}/{log.partition}", log.log_id, log.seq, log.first, log.needed)


def stopped(files: Files, data: str) -> Found:
    """The ends of all logs of a directory that no process has open. Raises Corrupt without a readable catalogue."""
    catalogue = metadata_path(files, data)
    if catalogue is None:
        return [], {}
    places, left_out = [_end(files, data, catalogue, _CATALOGUE)], {}
    peek = Peek(data, files)
    try:
        partitions = peek.partitions()
    finally:
        peek.close()
    for path, topic in partitions.items():
        title = f"{topic}/{path.rpartition('/')[2]}"
        try:
            places.append(_end(files, data, path, title))
        except (Error, OSError) as error:
            left_out[title] = error.message if isinstance(error, Error) else str(error)
    return places, left_out


def _end(files: Files, data: str, path: str, title: str) -> BackupPlace:
    found = find_end(files, path)
    check_readable(path, found)
    return BackupPlace(path.removeprefix(f"{data}/"), title, found.log_id, found.end.seq, _EVERYTHING)
