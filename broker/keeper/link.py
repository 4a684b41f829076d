"""The broker's end of the link to its keeper.

Idea: three descriptors. Jobs and registrations go over a packet socket, the doorbell is an eventfd (it
remembers a ring that comes before the sleep, so there is no wake-up to lose), and so is the bell back. A
link lives as long as its keeper: the supervisor sends a new one with the next keeper.

Contract: nothing here waits, except `stop`. After `gone` is True every call is a no-op: the broker does
without. Must not know: what a report means for a log.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

from ..packets import PacketSocket, PeerGone
from ..poller import milliseconds
from .messages import Attach, LinkMessage, Report, Started, Stop, decode_reports, packets


class KeeperLink:
    """One keeper, from the moment its process was spawned until its end."""

    def __init__(self, socket: int, doorbell: int, bell_back: int) -> None:
        self.started = False  # it watches the board: rounds can be left to it
        self.gone = False
        self.pid = 0
        self.bell_fd = bell_back
        self._socket = PacketSocket(socket)
        self._doorbell = doorbell
        self.waiting = self._socket.waiting
        """Commands that the keeper has made no room for yet."""

    @property
    def socket_fd(self) -> int:
        """For the poller: readable when reports wait, or when the keeper ended."""
        return self._socket.fd

    @property
    def unsent(self) -> bool:
        """Commands wait for the keeper to make room: poll for writing, then call `flush`."""
        return bool(self.waiting) and not self.gone

    def attach(self, board: str, data: str, lock: int) -> None:
        """The first of all commands: what to watch, with a copy of the directory's lock."""
        try:
            self._socket.send_descriptors(packets([Attach(board, data)])[0], [lock])
        except OSError:
            # It has ended already: the socket is readable and says so.
            return

    def send(self, commands: Iterable[LinkMessage]) -> None:
        """Queue commands in order, and send what the socket takes."""
        if not self.gone:
            self._socket.send(packets(commands))

    def flush(self) -> None:
        """Send what waited for room."""
        self._socket.flush()

    def ring(self) -> None:
        """Words have moved: look at the board."""
        os.eventfd_write(self._doorbell, 1)

    def answered(self) -> None:
        """Silence the bell back; words may have moved."""
        os.eventfd_read(self.bell_fd)

    def receive(self) -> list[Report]:
        """Every report that waits. Sets `gone` when the keeper has ended; reports sent before are still returned."""
        found: list[Report] = []
        try:
            while (received := self._socket.receive()) is not None:
                found += decode_reports(received[0])
        except PeerGone:
            self.gone = True
        for report in found:
            if isinstance(report, Started):
                self.started, self.pid = True, report.pid
        return found

    def stop(self, timeout_s: float) -> list[Report]:
        """Ask the keeper to sync and end, and wait for that. Returns its last reports; `gone` says if it ended."""
        self.send([Stop()])
        deadline = time.monotonic() + timeout_s
        found: list[Report] = []
        poll = select.poll()
        while not self.gone and (left := deadline - time.monotonic()) > 0:
            self._socket.flush()
            poll.register(self._socket.fd, select.POLLIN | (select.POLLOUT if self._socket.unsent else 0))
            poll.poll(milliseconds(left))
            found += self.receive()
        return found

    def close(self) -> None:
        """Close all three descriptors."""
        self.gone = True
        self._socket.close()
        os.close(self._doorbell)
        os.close(self.bell_fd)
