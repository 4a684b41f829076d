"""A disk of so many bytes, in memory: what is reserved or written beyond them is refused, as a full disk refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.storage.errors import StorageFull
from support.writeback import CachedFile, WritebackFiles

if TYPE_CHECKING:
    from collections.abc import Buffer

    from penstock.storage.files import File


class SmallFile(CachedFile):
    """One descriptor."""

    __slots__ = ()

    def allocate(self, size: int) -> None:
        self._take(size)
        super().allocate(size)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._take(position + sum(map(len, buffers)))
        super().pwritev(buffers, position)

    def _take(self, size: int) -> None:
        files = self._files
        assert isinstance(files, SmallDisk)
        files.take(size - len(self.content.data), self.path)


class SmallDisk(WritebackFiles):
    """See the module. A file takes as many bytes as it is long."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def free(self, directory: str = "") -> int:
        return self.size - sum(len(content.data) for content in self.contents.values())

    def take(self, more: int, path: str) -> None:
        """Refuse `more` bytes where there are fewer."""
        if more > max(0, self.free()):
            raise StorageFull(f"cannot reserve {more} bytes for {path}: no space is left on the device")

    def create(self, path: str, size: int = 0) -> File:
        self.take(size, path)
        super().create(path, size)
        return self.open(path)

    def open(self, path: str, *, write: bool = False) -> File:
        content = self._content(path)
        return SmallFile(path, content, self.disk(content), self)
