"""Jobs on files that may take long: unlinking, finishing a snapshot, removing a deleted topic, making a spare.

Idea: a store submits jobs with callbacks; `Jobs` runs them. `InlineJobs` does it at
once, in the caller's thread; a broker hands it to its keeper (`broker/keeper/jobs.py`), which calls the same functions.

Contract: each job may be repeated after a crash in the middle. The functions raise OSError and StorageError.
Must not know: the caller, the purpose of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from . import runs, snapshots
from .errors import StorageFull
from .layout import DATA_START, SEGMENT_SUFFIX, spare_name
from .room import RESERVE_BYTES

if TYPE_CHECKING:
    from .files import Files


class Jobs(Protocol):
    """Does jobs, now or later, and calls back once."""

    def unlink(
        self, directory: str, names: Sequence[str], done: Callable[[int], None], failed: Callable[[], None]
    ) -> None:
        """Remove files; `done(0)` when their names are durably gone, `failed()` when that could not be done."""
        ...

    def finish_snapshot(
        self, directory: str, seq: int, log_id: bytes, runs: Sequence[int], done: Callable[[int], None]
    ) -> None:
        """Sync runs, sync and name a prepared snapshot; `done(seq)` gets what the second-newest one covers."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory."""
        ...


class InlineJobs:
    """Does each job at once, and raises its errors too."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def unlink(
        self, directory: str, names: Sequence[str], done: Callable[[int], None], failed: Callable[[], None]
    ) -> None:
        """See Jobs."""
        try:
            unlink(self._files, directory, names)
        except BaseException:
            failed()
            raise
        done(0)

    def finish_snapshot(
        self, directory: str, seq: int, log_id: bytes, runs: Sequence[int], done: Callable[[int], None]
    ) -> None:
        """See Jobs."""
        done(finish_snapshot(self._files, directory, seq, log_id, runs))

    def remove_tree(self, path: str) -> None:
        """See Jobs."""
        self._files.remove_tree(path)


def prepare_spare(files: Files, directory: str, size_bytes: int) -> str:
    """A file with reserved blocks, synced, under a name of its own. Returns its path.

    Its first page is written, so that syncing a header there is one write to the disk, and no change of the file's map.
    Raises StorageFull, also where that would leave less than RESERVE_BYTES of the disk free.
    """
    free = files.free(directory)
    if free - size_bytes < RESERVE_BYTES:
        raise StorageFull(
            f"no spare segment of {size_bytes >> 20} MiB in {directory}: the disk has {free >> 20} MiB left, and "
            f"{RESERVE_BYTES >> 20} MiB stay free; make room on it"
        )
    path = f"{directory}/{spare_name(files.new_id().hex())}"
    with files.create(path, size_bytes) as file:
        file.pwritev([bytes(DATA_START)], 0)
        file.sync()
    return path


def unlink(files: Files, directory: str, names: Sequence[str]) -> None:
    """As `unlinking`, all at once."""
    for _ in unlinking(files, directory, names):
        pass


def unlinking(files: Files, directory: str, names: Sequence[str]) -> Iterator[None]:
    """Remove files of one directory, durably and in this order, a segment at a step; those already gone are fine.

    Its names are durable first: no power cut takes what is removed and the name of the segment that follows. A segment
    is gone from the disk before the next one goes: a log with a hole would end there.
    """
    if not files.exists(directory):
        return
    files.sync_dir(directory)
    for name in names:
        if files.exists(f"{directory}/{name}"):
            files.unlink(f"{directory}/{name}")
            if name.endswith(SEGMENT_SUFFIX):
                files.sync_dir(directory)
                yield
    files.sync_dir(directory)


def removing(files: Files, path: str) -> Iterator[None]:
    """Remove a topic's directory and all it holds, a segment at a step; missing is fine."""
    for partition in files.listdir(path):
        inside = f"{path}/{partition}"
        for name in files.listdir(inside) if files.is_directory(inside) else ():
            if name.endswith(SEGMENT_SUFFIX) and files.is_file(f"{inside}/{name}"):
                files.unlink(f"{inside}/{name}")
                yield
    files.remove_tree(path)


def finish_snapshot(files: Files, directory: str, seq: int, log_id: bytes, numbers: Sequence[int]) -> int:
    """Sync the runs of these numbers, then a prepared snapshot, and give it its name.

    Returns the seq that the second-newest snapshot covers.
    """
    runs.sync(files, directory, numbers)
    path = f"{directory}/{snapshots.file_name(seq)}.new"
    if files.exists(path):
        files.sync(path)
        return snapshots.commit(files, directory, seq, log_id)
    return snapshots.second_newest_seq(files, directory, log_id)
