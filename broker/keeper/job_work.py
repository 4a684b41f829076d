"""The jobs themselves: what the keeper does for the broker, or the broker alone when it has no keeper.

Contract: each may be repeated after a crash in the middle. Raises OSError and StorageError.
Must not know: who asked, who does it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...storage import runs, snapshots
from ...storage.layout import spare_name

if TYPE_CHECKING:
    from ...storage.files import Files


def prepare_spare(files: Files, directory: str, size_bytes: int) -> str:
    """A file with reserved blocks, synced, under a name of its own. Returns its path."""
    path = f"{directory}/{spare_name(uuid.uuid4().hex)}"
    file = files.create(path, size_bytes)
    try:
        file.sync()
    finally:
        file.close()
    return path


def unlink(files: Files, directory: str, names: Sequence[str]) -> None:
    """Remove files of one directory, durably; those already gone are fine."""
    for name in names:
        if files.exists(f"{directory}/{name}"):
            files.unlink(f"{directory}/{name}")
    if files.exists(directory):
        files.sync_dir(directory)


def finish_snapshot(files: Files, directory: str, seq: int, log_id: bytes, numbers: Sequence[int]) -> int:
    """Sync the runs of these numbers, then a prepared snapshot, and give it its name.

    Returns the seq that the second-newest snapshot covers.
    """
    runs.sync(files, directory, numbers)
    path = f"{directory}/{snapshots.file_name(seq)}.new"
    if files.exists(path):
        file = files.open(path, write=True)
        try:
            file.sync()
        finally:
            file.close()
        return snapshots.commit(files, directory, seq, log_id)
    return snapshots.second_newest_seq(files, directory, log_id)
