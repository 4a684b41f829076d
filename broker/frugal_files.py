"""Files that leave descriptors for connections, and connections that leave some for files.

Idea: libzmq needs descriptors at moments that it chooses: if it cannot accept a connection its I/O thread spins, and
over ipc:// the process ends. So logs stop opening files before the limit; requests that need one more are refused as on
a full disk, and open files go on. Connections get half of the descriptors at most, and never the last ones: as many
stay free as libzmq may accept before it hears of a refusal. (With limits below ten times that, a burst can be too
quick.) Files open only for reading give way: a start reads every log, and must not take the descriptors of writers.
Logs are opened for writing by their first batch, so the future needs of existing logs count before one is made.
The metadata log is opened late, too, and without it no topic can be deleted: neither logs nor connections take its
place.

Contract: as `Files`. The kernel gives the lowest free number, so a number near the limit says how many are in use.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ..storage.errors import StorageFull
from ..storage.files import File, Files
from ..transport.descriptors import DescriptorRoom
from ..transport.socket_options import MONITOR_EVENTS, SOCKETS_MAX

RESERVED = 2 * MONITOR_EVENTS
"""For connections, deliveries and the broker's own few. At most a quarter of the limit."""

READING = 64
"""Only for files that are read: a broker with as many logs as it can write must still read them. At most a sixteenth of
the limit."""

ROLLING = 64
"""Never for another log: those that are there open a segment before they close the one before it. At most a sixteenth
of the limit."""

LOG_FILES = 2
"""Descriptors of each log that is written: a segment and its index."""

METADATA_FILES = 2 * LOG_FILES
"""Only for the metadata log, which opens a segment before it closes the one before it."""

PEERS_MOST = 1024
"""For connections of other nodes, beside those of clients. At most a sixteenth of the limit."""

KEPT = MONITOR_EVENTS + 32
"""Never for connections: for those about to be refused, and what is open for a moment. At most a tenth of the limit."""


def connection_room(limit: int) -> DescriptorRoom:
    """Descriptors for connections in a process that may open `limit` files."""
    return DescriptorRoom(min(SOCKETS_MAX, limit // 2), _kept_from(limit) - METADATA_FILES)


def peer_room(limit: int) -> DescriptorRoom:
    """Descriptors for connections of other nodes: a flood of clients takes none of them, and one of peers no more."""
    return DescriptorRoom(min(PEERS_MOST, limit // 16), _kept_from(limit) - METADATA_FILES)


def _kept_from(limit: int) -> int:
    return limit - min(KEPT, limit // 10)


class FrugalFiles(Files):
    """The file system of this machine, for a process that may open `limit` files.

    `always`: the directory of the metadata log, with its slash.
    """

    def __init__(self, limit: int, *, always: str) -> None:
        self.give_way: Callable[[], bool] = lambda: False
        """Closes something that can be opened again at any time; says whether there was any."""
        self._limit = limit
        self._always = always
        self._most_always = _kept_from(limit)
        self._most = limit - min(RESERVED, limit // 4)
        self._most_written = self._most - min(READING, limit // 16)
        self._most_made = self._most_written - min(ROLLING, limit // 16)

    def check_log(self, unopened: int) -> None:
        """Raise StorageFull unless another log can be written, when `unopened` others have to open their files yet."""
        self._leave_some("another log", self._most_made - LOG_FILES * unopened)

    def create(self, path: str, size: int = 0) -> File:
        self._leave_some(path, self._most_written)
        return super().create(path, size)

    def open(self, path: str, *, write: bool = False) -> File:
        self._leave_some(path, self._most_written if write else self._most)
        return super().open(path, write=write)

    def _leave_some(self, what: str, most: int) -> None:
        """Raise StorageFull when `most` are in use, and nothing gives way."""
        if what.startswith(self._always):
            most = self._most_always
        while (lowest := _lowest_free()) is None or lowest >= most:
            if not self.give_way():
                raise StorageFull(
                    f"cannot open {what}: this process may have {self._limit} open files, and the last "
                    f"{self._limit - most} are for the logs there are, for reading and for connections; raise its "
                    "limit (ulimit -n), or delete topics"
                )


def _lowest_free() -> int | None:
    """The number that the next descriptor gets; None when there is none left."""
    try:
        lowest = os.dup(0)
    except OSError:
        return None
    os.close(lowest)
    return lowest
