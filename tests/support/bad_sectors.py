"""Files of which some pages cannot be read: the disk answers EIO, until such a page is written as a whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.storage.files import File
from penstock.storage.memory_files import MemoryFile, MemoryFiles
from penstock.storage.unreadable import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Buffer


class BadSectors(MemoryFiles):
    """`bad` has paths and numbers of pages; `refused` counts the calls that met one."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[tuple[str, int]] = set()
        self.refused = 0

    def unlink(self, path: str) -> None:
        """A file that is made under this name later has other pages."""
        super().unlink(path)
        self.bad = {each for each in self.bad if each[0] != path}

    def open(self, path: str, *, write: bool = False) -> File:
        file = BadFile(path, self._content(path))
        file.files = self
        return file


class BadFile(MemoryFile):
    """One open file."""

    __slots__ = ("files",)
    files: BadSectors

    def pread(self, size: int, position: int) -> bytes:
        self._check(position, min(position + size, self.size()))
        return super().pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        end = position + sum(map(len, buffers))
        whole = range(-(-position // PAGE_BYTES), end // PAGE_BYTES)
        self.files.bad -= {(self.path, page) for page in whole}
        self._check(position, end)
        super().pwritev(buffers, position)

    def _check(self, position: int, end: int) -> None:
        pages = range(position // PAGE_BYTES, -(-end // PAGE_BYTES))
        if any((self.path, page) in self.files.bad for page in pages):
            self.files.refused += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
