"""Files that leave descriptors for others.

Idea: libzmq needs descriptors at moments that it chooses: a connection it cannot accept makes its I/O thread spin,
a socket it cannot make is refused. So logs stop taking them a little before the limit; what needs one more is
refused like on a full disk, and everything that is open goes on.

Contract: as `Files`. The kernel gives the lowest free number, so a number near the limit says how many are in use.
"""

from __future__ import annotations

import os

from ..storage.errors import StorageFull
from ..storage.files import File, Files

RESERVED = 128
"""For connections, deliveries and the broker's own few. At most a quarter of the limit."""


class FrugalFiles(Files):
    """The file system of this machine, for a process that may open `limit` files."""

    def __init__(self, limit: int) -> None:
        self._most = limit - min(RESERVED, limit // 4)

    def create(self, path: str, size: int = 0) -> File:
        self._leave_some(path)
        return super().create(path, size)

    def open(self, path: str, *, write: bool = False) -> File:
        self._leave_some(path)
        return super().open(path, write=write)

    def _leave_some(self, path: str) -> None:
        """Raise StorageFull when only the reserve is left."""
        try:
            lowest = os.dup(0)
            os.close(lowest)
        except OSError:
            lowest = self._most
        if lowest >= self._most:
            raise StorageFull(f"cannot open {path}: this process has {lowest} open files; raise its limit (ulimit -n)")
