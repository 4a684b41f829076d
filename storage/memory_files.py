"""Files that live in this process's memory: what `mem://` and most tests run on.

Idea: the same verbs as `Files` over a table of path to content. A file that is unlinked or renamed lives on
for its open handles, as on a disk.

Contract: behaves as `Files` does on success; never runs out of anything by itself, and `sync` has nothing to do.
Must not know: what a segment, a batch or a mark is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .files import File, FileLock, Files

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


UNBOUNDED = 1 << 62
"""Bytes that are free in memory, as far as anything here knows."""


class Content:
    """The bytes of one file, whatever its name is now.

    While a view exists, `data` cannot be resized and is replaced by a longer copy: the view keeps
    the old bytes, so a mapped reader maps again when it misses something.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)

    def grow(self, size: int) -> None:
        missing = size - len(self.data)
        if missing <= 0:
            return
        try:
            self.data.extend(bytes(missing))
        except BufferError:
            self.data = self.data + bytes(missing)


class MemoryFile(File):
    """One open file in memory."""

    __slots__ = ("content",)

    def __init__(self, path: str, content: Content) -> None:
        super().__init__(path, -1)
        self.content = content

    def pread(self, size: int, position: int) -> bytes:
        return bytes(memoryview(self.content.data)[position : position + size])

    def pread_cached(self, size: int, position: int) -> bytes | None:
        return self.pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        self.content.grow(position + sum(map(len, views)))
        data = self.content.data
        for view in views:
            data[position : position + len(view)] = view
            position += len(view)

    def allocate(self, size: int) -> None:
        self.content.grow(size)

    def begin_sync(self) -> None:
        return None

    def sync(self) -> None:
        return None

    def size(self) -> int:
        return len(self.content.data)

    def identity(self) -> tuple[int, int]:
        return 0, id(self.content)

    def map(self) -> memoryview:
        return memoryview(self.content.data).toreadonly()

    def close(self) -> None:
        return None


class MemoryLock(FileLock):
    """A lock in a table of locks."""

    __slots__ = ("_table", "_taken")

    def __init__(self, path: str, table: dict[str, bytes]) -> None:
        super().__init__(path, -1)
        self._table = table
        self._taken = True
        table[path] = b""

    @property
    def held(self) -> bool:
        return self._taken

    def note(self, text: bytes) -> None:
        self._table[self.path] = text

    def take_bytes(self) -> bool:
        return True

    def release(self) -> None:
        if self._taken:
            self._taken = False
            self._table.pop(self.path, None)


class MemoryFiles(Files):
    """A file system of its own in memory, empty at first."""

    def __init__(self) -> None:
        self.contents: dict[str, Content] = {}
        self.directories: set[str] = set()
        self.locks: dict[str, bytes] = {}

    def create(self, path: str, size: int = 0) -> File:
        if path in self.contents:
            raise FileExistsError(path)
        content = self.contents[path] = Content(bytes(size))
        return MemoryFile(path, content)

    def open(self, path: str, *, write: bool = False) -> File:
        return MemoryFile(path, self._content(path))

    def _content(self, path: str) -> Content:
        content = self.contents.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return content

    def free(self, directory: str) -> int:
        return UNBOUNDED

    def rename(self, source: str, target: str) -> None:
        if target in self.contents:
            raise FileExistsError(target)
        self.replace(source, target)

    def replace(self, source: str, target: str) -> None:
        self.contents[target] = self._content(source)
        del self.contents[source]

    def unlink(self, path: str) -> None:
        self._content(path)
        del self.contents[path]

    def mkdir(self, path: str) -> None:
        while path and path not in self.directories:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def listdir(self, path: str) -> list[str]:
        if path in self.contents:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        below = path.rstrip("/") + "/"
        inside = [name[len(below) :] for name in [*self.contents, *self.directories] if name.startswith(below)]
        return sorted({name.partition("/")[0] for name in inside})

    def exists(self, path: str) -> bool:
        return path in self.contents or path in self.directories

    def is_file(self, path: str) -> bool:
        return path in self.contents

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def sync_dir(self, path: str) -> None:
        return None

    def rename_dir(self, source: str, target: str) -> None:
        for name in [name for name in self.contents if name.startswith(source + "/")]:
            self.contents[target + name[len(source) :]] = self.contents.pop(name)
        moved = {name for name in self.directories if _within(name, source)}
        self.directories = self.directories - moved | {target + name[len(source) :] for name in moved}

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.contents if _within(name, path)]:
            del self.contents[name]
        self.directories = {name for name in self.directories if not _within(name, path)}

    def try_lock(self, path: str) -> FileLock | bytes:
        if path in self.locks:
            return self.locks[path]
        if path not in self.contents:
            self.create(path)
        return MemoryLock(path, self.locks)


def _within(name: str, directory: str) -> bool:
    return name == directory or name.startswith(directory + "/")
