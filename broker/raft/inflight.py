"""What is on its way to one follower: a window bounded by messages and by bytes. Pure.

Idea: each message with entries takes a place until the follower acknowledges its last entry. A full window pauses the
stream; the message that filled it may exceed the bytes, so that a large entry gets through at all.
"""

from __future__ import annotations

from collections import deque


class Inflight:
    """The messages that a follower has not acknowledged, oldest first."""

    __slots__ = ("_max_bytes", "_max_messages", "_sent", "_sent_bytes")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._sent: deque[tuple[int, int]] = deque()  # last index and bytes of each
        self._sent_bytes = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def full(self) -> bool:
        """Nothing more may be sent."""
        return len(self._sent) >= self._max_messages or self._sent_bytes >= self._max_bytes

    def add(self, index: int, size: int) -> None:
        """A message left whose last entry is `index`."""
        self._sent.append((index, size))
        self._sent_bytes += size

    def free(self, index: int) -> None:
        """The follower has everything up to `index`."""
        while self._sent and self._sent[0][0] <= index:
            self._sent_bytes -= self._sent.popleft()[1]

    def clear(self) -> None:
        """Forget all of it."""
        self._sent.clear()
        self._sent_bytes = 0
