"""Reads a file around what the disk cannot read any more.

Idea: a read that fails with EIO is repeated page by page, and a page that cannot be read comes as bytes that are no
batch, no header and not zeros. So a bad sector is damage like any other: it has a place, good batches around it are
found, and what is accepted or mended for rotten bytes works for it, too.

Contract: every other error is raised. Only for those who look for damage, for copies of it, and for files that are
not believed by themselves: the end of a log is found by bytes that were read. Must not know: what a segment or a batch
is.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from .files import File

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .files import Files

PAGE_BYTES = 4096
_NOTHING = b"\xff"


def read_patiently(files: Files, path: str) -> bytes:
    """All of a small file that is checked by its reader, with bytes that mean nothing where the disk cannot read it.

    Raises FileNotFoundError, StorageFull, OSError.
    """
    with PatientFile(files.open(path)) as file:
        return file.pread(file.size(), 0)


def read_around(file: File, size: int, position: int) -> tuple[bytes, int]:
    """As `file.pread`, and the position of the first byte that could not be read; -1 for none."""
    try:
        return file.pread(size, position), -1
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    found, end, bad = bytearray(), min(position + size, file.size()), -1
    while position < end:
        count = min(PAGE_BYTES - position % PAGE_BYTES, end - position)
        try:
            found += file.pread(count, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            found += _NOTHING * count
            bad = position if bad < 0 else bad
        position += count
    return bytes(found), bad


def read_up_to(file: File, size: int, position: int) -> bytes:
    """As `file.pread`, up to what the disk cannot read: nothing where that is at `position`."""
    found, bad = read_around(file, size, position)
    return found if bad < 0 else found[: bad - position]


def write_over(file: File, position: int) -> bool:
    """Have the first page that cannot be read, from that of `position` on, be one that means nothing.

    Returns whether there was any. Raises StorageFull, OSError.
    """
    for page in range(position - position % PAGE_BYTES, file.size(), PAGE_BYTES):
        if read_around(file, PAGE_BYTES, page)[1] >= 0:
            file.pwritev([_NOTHING * PAGE_BYTES], page)
            return True
    return False


class PatientFile(File):
    """A file open for reading, which it closes. `trouble` says what could not be read of it so far, "" for nothing."""

    __slots__ = ("_file", "trouble")

    def __init__(self, file: File) -> None:
        super().__init__(file.path, -1)
        self._file = file
        self.trouble = ""

    def pread(self, size: int, position: int) -> bytes:
        found, bad = read_around(self._file, size, position)
        if bad >= 0 and not self.trouble:
            self.trouble = f"the disk cannot read it at {bad}"
        return found

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As of the file, and None also where the disk cannot read it."""
        try:
            return self._file.pread_cached(size, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
