"""Files for a rehearsal: what is done to them stays in memory, and the disk as it is.

Idea: `repair --dry-run` is a repair of such files, so it says exactly what a repair would do. A file that is written
to is a draft: the bytes that were written, over the file on the disk. A name that is moved leads to what it named.

Contract: behaves as `Files` does, for one process at a time, as long as the disk does not change meanwhile. Not for
locks and whole directories, which it refuses; what is written is held in memory.
Must not know: what a segment, a batch or a mark is.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .files import File, FileLock, Files
from .memory_files import UNBOUNDED
from .unreadable import read_around

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


class Draft:
    """A file as rehearsed: pieces over the file at the path `disk`, "" for a file made here."""

    __slots__ = ("disk", "pieces", "size")

    def __init__(self, disk: str, size: int) -> None:
        self.disk = disk
        self.size = size
        self.pieces: list[tuple[int, bytes]] = []


class DraftFile(File):
    """An open draft."""

    __slots__ = ("_below", "_draft")

    def __init__(self, path: str, draft: Draft, below: File | None) -> None:
        super().__init__(path, -1)
        self._draft = draft
        self._below = below

    def pread(self, size: int, position: int) -> bytes:
        data = bytearray(max(0, min(size, self._draft.size - position)))
        if self._below is not None:
            found, bad = read_around(self._below, len(data), position)
            if bad >= 0 and not any(start <= bad < start + len(piece) for start, piece in self._draft.pieces):
                self._below.pread(len(data), position)  # which raises: nothing was written over it
            data[: len(found)] = found
        for start, piece in self._draft.pieces:
            first, behind = max(start, position), min(start + len(piece), position + len(data))
            if first < behind:
                data[first - position : behind - position] = piece[first - start : behind - start]
        return bytes(data)

    def pread_cached(self, size: int, position: int) -> bytes:
        return self.pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        self._draft.pieces.append((position, data))
        self.allocate(position + len(data))

    def allocate(self, size: int) -> None:
        self._draft.size = max(self._draft.size, size)

    def begin_sync(self) -> None:
        return None

    def sync(self) -> None:
        return None

    def size(self) -> int:
        return self._draft.size

    def map(self) -> memoryview:
        return memoryview(self.pread(self.size(), 0))

    def close(self) -> None:
        if self._below is not None:
            self._below.close()


class RehearsalFiles(Files):
    """Over `files`, which are read and never changed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._named: dict[str, Draft | None] = {}  # names that changed; None is gone
        self._made: set[str] = set()  # directories

    def new_id(self) -> bytes:
        return self._files.new_id()

    def create(self, path: str, size: int = 0) -> File:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "is there already", path)
        draft = self._named[path] = Draft("", size)
        return DraftFile(path, draft, None)

    def open(self, path: str, *, write: bool = False) -> File:
        if path not in self._named and not write:
            return self._files.open(path)
        draft = self._named[path] = self._draft(path)
        return DraftFile(path, draft, self._files.open(draft.disk) if draft.disk else None)

    def _draft(self, path: str) -> Draft:
        """A draft of the file at `path`, to be written or renamed."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "is not there", path)
        found = self._named.get(path)
        if found is not None:
            return found
        draft = Draft(path, 0)
        if self._files.is_file(path):
            with self._files.open(path) as file:
                draft.size = file.size()
        return draft

    def free(self, directory: str) -> int:
        return UNBOUNDED  # nothing is written

    def rename(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(errno.EEXIST, "is there already", target)
        self.replace(source, target)

    def replace(self, source: str, target: str) -> None:
        self._named[target] = self._draft(source)
        self._named[source] = None

    def unlink(self, path: str) -> None:
        draft = self._draft(path)
        if draft.disk and self._files.is_directory(draft.disk):
            self._files.unlink(draft.disk)  # which raises what it raises there
        self._named[path] = None

    def mkdir(self, path: str) -> None:
        self._made.add(path)

    def listdir(self, path: str) -> list[str]:
        below = f"{path}/"
        fresh = {name.removeprefix(below) for name in self._named if name.startswith(below)}
        return [name for name in {*self._files.listdir(path), *fresh} if self.exists(below + name)]

    def exists(self, path: str) -> bool:
        if path in self._named:
            return self._named[path] is not None
        return path in self._made or self._files.exists(path)

    def is_file(self, path: str) -> bool:
        draft = self._named.get(path)
        if draft is not None:
            return not draft.disk or self._files.is_file(draft.disk)
        return path not in self._named and self._files.is_file(path)

    def is_directory(self, path: str) -> bool:
        return path in self._made or (path not in self._named and self._files.is_directory(path))

    def sync_dir(self, path: str) -> None:
        return None

    def rename_dir(self, source: str, target: str) -> None:
        raise NotImplementedError(source)

    def remove_tree(self, path: str) -> None:
        raise NotImplementedError(path)

    def try_lock(self, path: str) -> FileLock | bytes:
        raise NotImplementedError(path)
