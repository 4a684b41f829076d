"""What a turn has for one peer: one message for each socket, in order, within limits.

Idea: Raft messages of a turn are gathered and leave together. A socket that takes no more keeps what it has; what
exceeds the limit is dropped, which Raft takes for a lost message. The Raft core bounds what is in flight at the
receiver; this bounds what waits here. A notice, an append without entries, tells what is committed by now. No client
waits for that, and the next append tells it as well: so a notice may wait for one, and is dropped when it comes.

Contract: messages of one socket never overtake each other. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..raft.messages import Kind
from .messages import DATA_KINDS, FRAME_BYTES_AIM, MESSAGES_MAX, PeerTurn, frames_of

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ..raft.messages import Message

WAITING_BYTES_MAX = 64 << 20
"""What waits for one socket of one peer; one message may exceed it."""

MESSAGE_BYTES = 64
"""What a Raft message counts beside the data of its entries and its batches."""


class PeerLane:
    """What waits for one socket."""

    def __init__(self) -> None:
        self.bytes = 0
        self.urgent = False
        """Whether more waits than a notice."""
        self.dropped = 0
        """Raft messages so far that there was no room for."""
        self._waiting: deque[tuple[Message, Sequence[Buffer], int]] = deque()

    def put(self, message: Message, bodies: Sequence[Buffer]) -> bool:
        """Take a message for the next flush. False if there is no room: it is lost."""
        is_append = message.kind is Kind.APPEND
        if is_append and self._waiting and _is_notice(self._waiting[-1][0]):
            self.bytes -= self._waiting.pop()[2]
        size = MESSAGE_BYTES + sum(len(entry.data) for entry in message.entries) + sum(map(len, bodies))
        if self._waiting and self.bytes + size > WAITING_BYTES_MAX:
            self.dropped += 1
            return False
        self._waiting.append((message, bodies, size))
        self.bytes += size
        self.urgent |= not _is_notice(message)
        return True

    def flush(self, send: Callable[[list[Buffer]], bool]) -> None:
        """Send all that waits, until `send` takes no more."""
        while self._waiting:
            count, size = 0, 0
            for _, _, each in self._waiting:
                if count and (size + each > FRAME_BYTES_AIM or count == MESSAGES_MAX):
                    break
                count, size = count + 1, size + each
            taken = [self._waiting[place] for place in range(count)]
            turn = PeerTurn(0, [message for message, _, _ in taken])
            if not send(frames_of(turn, [body for _, bodies, _ in taken for body in bodies])):
                return
            for _ in range(count):
                self.bytes -= self._waiting.popleft()[2]
        self.urgent = False

    def clear(self) -> None:
        """Drop all: the connection they were for is lost."""
        self.bytes = 0
        self.urgent = False
        self._waiting.clear()


def _is_notice(message: Message) -> bool:
    return message.kind is Kind.APPEND and not message.entries


class PeerOutbox:
    """What waits for one peer: votes, heartbeats and acknowledgements apart from appends."""

    def __init__(self) -> None:
        self.control = PeerLane()
        self.data = PeerLane()

    def put(self, message: Message, bodies: Sequence[Buffer] = ()) -> bool:
        """Take a message for the next flush. False if there is no room: it is lost."""
        return (self.data if message.kind in DATA_KINDS else self.control).put(message, bodies)
