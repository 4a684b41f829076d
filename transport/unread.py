"""How many bytes of what was sent to each peer still wait here, where the library that sends them does not tell.

Idea: what is sent to one peer leaves in order. One message in MARK_BYTES is marked, and the library says of it when it
has let go of it: then those before it have left, too.

Contract: `bytes_of` is too low by MARK_BYTES at most, and by messages below SMALL_BYTES, which their number bounds.
Memory: PEERS_KEPT peers, and those that have something unread. Knows no sockets.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Protocol

UNREAD_BYTES_MAX = 64 << 20
"""What may wait for one peer, and one message more: beyond, it does not read."""

SMALL_BYTES = 4 << 10
"""Messages below it are not counted: 4096 of them, the most there may be of one peer, are 16 MiB."""

MARK_BYTES = 1 << 20

PEERS_KEPT = 1024


class Mark(Protocol):
    """Of one message."""

    @property
    def done(self) -> bool:
        """Whether the message has left, or its connection has ended."""
        ...


class _Peer:
    __slots__ = ("marks", "total", "unmarked")

    def __init__(self) -> None:
        self.total = 0
        self.unmarked = 0  # of them, sent after the last mark
        self.marks: deque[tuple[Mark, int]] = deque()

    def look(self) -> int:
        """Take note of what has left. Returns what may not have."""
        marks = self.marks
        while marks and marks[0][0].done:
            self.total -= marks.popleft()[1]
        return self.total


class Unread:
    """See the module."""

    def __init__(self) -> None:
        self._peers: dict[bytes, _Peer] = {}

    def bytes_of(self, peer: bytes) -> int:
        """What a peer may have left unread."""
        found = self._peers.get(peer)
        return 0 if found is None else found.look()

    def wants_mark(self, peer: bytes, size: int) -> bool:
        """Whether the next message for a peer, of `size` bytes, is to be marked."""
        found = self._peers.get(peer)
        return size + (0 if found is None else found.unmarked) >= MARK_BYTES

    def sent(self, peer: bytes, size: int, mark: Mark | None = None) -> None:
        """Count a message for a peer."""
        found = self._peers.get(peer)
        if found is None:
            self._forget_some()
            found = self._peers[peer] = _Peer()
        found.total += size
        found.unmarked += size
        if mark is not None:
            found.marks.append((mark, found.unmarked))
            found.unmarked = 0

    def forget(self, peer: bytes) -> None:
        """A connection is gone."""
        self._peers.pop(peer, None)

    def _forget_some(self) -> None:
        """Make room: of the two peers that were looked at the longest ago, forget those that have read."""
        peers = self._peers
        if len(peers) < PEERS_KEPT:
            return
        for peer in list(islice(peers, 2)):
            found = peers.pop(peer)
            if found.look() >= MARK_BYTES:
                peers[peer] = found
