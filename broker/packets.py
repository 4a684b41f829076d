"""One end of a packet socket pair: whole packets in order, with descriptors if need be, never blocking.

Idea: SOCK_SEQPACKET pairs join broker, keeper and supervisor. Packets the kernel cannot take now wait in a queue here,
so a stopped peer never stops us; the end of the peer is an empty packet.

Contract: `receive` returns None when nothing waits and raises PeerGone once the peer has ended. Must not know: what
the packets say.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence

_PACKET_MAX = 256 << 10
_DESCRIPTORS_MAX = 8


class PeerGone(Exception):
    """The other end of a socket pair was closed, most often because its process ended."""


class PacketSocket:
    """One end. Takes over the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor)
        self._socket.setblocking(False)
        self.waiting: deque[bytes] = deque()
        """Packets that the peer has made no room for yet."""
        self.gone = False

    @staticmethod
    def pair() -> tuple[int, int]:
        """Two joined descriptors, closed on exec."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return ours.detach(), theirs.detach()

    @property
    def fd(self) -> int:
        """For a poller: readable when a packet or the end waits."""
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """Packets that wait for the peer to make room: call `flush` when the socket is writable."""
        return len(self.waiting)

    def send(self, packets: Sequence[bytes]) -> None:
        """Send in order, or queue. To a peer that is gone nothing is sent."""
        if not self.gone:
            self.waiting.extend(packets)
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the kernel takes it."""
        try:
            while self.waiting and not self.gone:
                self._socket.send(self.waiting[0], socket.MSG_NOSIGNAL)
                self.waiting.popleft()
        except BlockingIOError:
            return
        except OSError:
            # Broken pipe or reset: the reading side finds out the same and decides what it means.
            self.gone = True
            self.waiting.clear()

    def send_descriptors(self, packet: bytes, descriptors: Sequence[int]) -> None:
        """Send a packet together with open files. Raises OSError."""
        socket.send_fds(self._socket, [packet], list(descriptors))

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next packet and the descriptors that came with it; None when none waits. Raises PeerGone."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._socket, _PACKET_MAX, _DESCRIPTORS_MAX)
        except BlockingIOError:
            return None
        except OSError as error:
            self.gone = True
            raise PeerGone(str(error)) from error
        if not packet:
            self.gone = True
            raise PeerGone("closed")
        for each in descriptors:
            os.set_inheritable(each, False)
        return packet, descriptors

    def close(self) -> None:
        self._socket.close()
