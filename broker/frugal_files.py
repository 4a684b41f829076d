"""Files that leave descriptors for connections, and connections that leave some for files.

Idea: libzmq needs descriptors at moments that it chooses: a connection it cannot accept makes its I/O thread spin, over
ipc:// it ends the process. So logs stop taking them before the limit; what needs one more is refused like on a full
disk, and everything that is open goes on. Connections get half of them at most, and never the last ones: as many stay
free as libzmq may accept before it hears of a refusal. (With limits below ten times that, a burst can be too quick.)

Contract: as `Files`. The kernel gives the lowest free number, so a number near the limit says how many are in use.
"""

from __future__ import annotations

import os

from ..storage.errors import StorageFull
from ..storage.files import File, Files
from ..transport.room import DescriptorRoom
from ..transport.socket_options import MONITOR_EVENTS, SOCKETS_MAX

RESERVED = 2 * MONITOR_EVENTS
"""For connections, deliveries and the broker's own few. At most a quarter of the limit."""

KEPT = MONITOR_EVENTS + 32
"""Never for connections: for those about to be refused, and what is open for a moment. At most a tenth of the limit."""


def connection_room(limit: int) -> DescriptorRoom:
    """What connections may take in a process that may open `limit` files."""
    return DescriptorRoom(min(SOCKETS_MAX, limit // 2), limit - min(KEPT, limit // 10))


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
