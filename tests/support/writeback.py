"""A disk behind a page cache, whose write-back may fail the way Linux tells it.

Idea: `MemoryFiles` is the page cache; beside it stands what is on the disk. A failed write-back leaves the page
clean (a later sync has nothing to do and succeeds), the disk without the bytes, and an error that each
descriptor opened before is told once; one opened later is told only if no other was yet. `power_cut` gives the
file system as the disk has it. Allocations and writes can be made to fail as on a full disk.

Contract: deterministic, page by page. Names are durable at once; what is synced is whole.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.storage.errors import StorageFull
from penstock.storage.files import File
from penstock.storage.memory_files import Content, MemoryFile, MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Buffer
    from types import CodeType

PAGE = 4096


class Disk:
    """One file on the disk, and how its write-backs went."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.dirty: set[int] = set()  # pages in memory that the disk does not have
        self.errors = 0  # failed write-backs so far
        self.told = 0  # the last of them that any descriptor was told of
        self.fails = False  # the next write-back does
        self.unreadable = 0  # the error of every read


class Killed(BaseException):
    """The process ends, in the middle of something."""


class CachedFile(MemoryFile):
    """One descriptor."""

    __slots__ = ("_disk", "_files", "_seen")

    def __init__(self, path: str, content: Content, disk: Disk, files: WritebackFiles) -> None:
        super().__init__(path, content)
        self._disk = disk
        self._files = files
        self._seen = disk.errors if disk.told == disk.errors else disk.told

    def pread(self, size: int, position: int) -> bytes:
        if self._disk.unreadable:
            raise OSError(self._disk.unreadable, os.strerror(self._disk.unreadable), self.path)
        return super().pread(size, position)

    def allocate(self, size: int) -> None:
        self._files.take_space(self.path)
        super().allocate(size)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._files.take_space(self.path)
        super().pwritev(buffers, position)
        end = position + sum(map(len, buffers))
        self._disk.dirty.update(range(position // PAGE, (end + PAGE - 1) // PAGE))

    def begin_sync(self) -> None:
        self._files.write_back(self.path, self.content)  # if that fails, it is `sync` that tells

    def sync(self) -> None:
        self._files.about_to_sync(self.path)
        self._files.write_back(self.path, self.content)
        if self._seen != self._disk.errors:
            self._seen = self._disk.told = self._disk.errors
            raise OSError(errno.EIO, "Input/output error")


class WritebackFiles(MemoryFiles):
    """A file system whose disk can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.incarnation = 0  # as in the lock of a node
        self.killed_at = 0  # the process ends before the change or sync of this number, from 2 on; 0: goes on
        self.full_at = 0  # the nth use of space from now on fails; 0: none does
        self.fails_at = 0  # the nth sync from now on fails, if it has anything to write
        self.within: CodeType | None = None  # a function: what is done elsewhere is not counted for these three
        self._told_all = 0  # errors that a syncfs has reported
        self._disks: dict[int, Disk] = {}
        self._kept: list[Content] = []  # contents by id() must stay alive

    def disk(self, content: Content) -> Disk:
        if id(content) not in self._disks:
            self._disks[id(content)] = Disk()
            self._kept.append(content)
        return self._disks[id(content)]

    def create(self, path: str, size: int = 0) -> File:
        self.take_space(path)
        file = super().create(path, size)
        return CachedFile(path, self.contents[path], self.disk(self.contents[path]), self) if file else file

    def open(self, path: str, *, write: bool = False) -> File:
        content = self._content(path)
        return CachedFile(path, content, self.disk(content), self)

    def unlink(self, path: str) -> None:
        self.work()
        super().unlink(path)

    def replace(self, source: str, target: str) -> None:
        self.work()
        super().replace(source, target)

    def rename_dir(self, source: str, target: str) -> None:
        self.work()
        super().rename_dir(source, target)

    def remove_tree(self, path: str) -> None:
        self.work()
        super().remove_tree(path)

    def take_space(self, path: str) -> None:
        """One use of space: fails if it is its turn."""
        self.work()
        if self.full_at and self._counts():
            self.full_at -= 1
            if self.full_at == 0:
                raise StorageFull(f"cannot write to {path}: no space is left on the device")

    def work(self) -> None:
        """One change or sync: the process ends before it if it is its turn, and does nothing more."""
        if self.killed_at and (self.killed_at == 1 or self._counts()):
            self.killed_at = max(self.killed_at - 1, 1)
            if self.killed_at == 1:
                raise Killed

    def _counts(self) -> bool:
        """Whether what is done now is done within the function that was named, if one was."""
        frame = sys._getframe(2) if self.within is not None else None
        while frame is not None and frame.f_code is not self.within:
            frame = frame.f_back
        return self.within is None or frame is not None

    @property
    def is_armed(self) -> bool:
        """Whether something is yet to fail by its number."""
        return bool(self.killed_at or self.full_at or self.fails_at)

    def disarm(self) -> None:
        """Nothing fails any more by its number."""
        self.killed_at = self.full_at = self.fails_at = 0
        self.within = None

    def about_to_sync(self, path: str) -> None:
        """One sync: its write-back fails if it is its turn."""
        self.work()
        self.syncs += 1
        if self.fails_at and self._counts():
            self.fails_at -= 1
            if self.fails_at == 0:
                self.fail_next(path)

    def fail_next(self, path: str) -> None:
        """The next write-back of this file fails, whatever causes it."""
        self.disk(self.contents[path]).fails = True

    def write_back(self, path: str, content: Content) -> None:
        """The kernel writes the file's dirty pages, in its own time or because of a sync."""
        disk = self.disk(content)
        disk.data.extend(bytes(max(0, len(content.data) - len(disk.data))))
        dirty, disk.dirty = disk.dirty, set()
        if dirty and disk.fails:
            disk.fails = False
            disk.errors += 1
            return
        for page in dirty:
            disk.data[page * PAGE : (page + 1) * PAGE] = content.data[page * PAGE : (page + 1) * PAGE]

    def sync_all(self) -> None:
        """syncfs: writes everything back, and fails once if anything ever did since it was last asked."""
        self.syncs += 1
        for path, content in list(self.contents.items()):
            self.write_back(path, content)
        errors = sum(disk.errors for disk in self._disks.values())
        if errors != self._told_all:
            self._told_all = errors
            raise OSError(errno.EIO, "Input/output error")

    def power_cut(self) -> WritebackFiles:
        """The file system after a power cut: only what the disk has."""
        after = WritebackFiles()
        after.directories = set(self.directories)
        for path, content in self.contents.items():
            after.contents[path] = Content(bytes(self.disk(content).data))
            after.disk(after.contents[path]).data = bytearray(self.disk(content).data)
        return after
