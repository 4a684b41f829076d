"""The channel over a Unix socket: one connection for everything, deliveries too.

Contract: as channel.py. The connection makes progress only in calls of this channel, so its driver must keep calling
while answers are expected. Must not know: what the messages mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...transport.codec import decode_answer, frames
from ...transport.errors import ProtocolError
from ...transport.sent import Sent
from ...transport.unix_client import UnixClient
from ..connection.wall_clock import wall_us
from ..reading.mapped import board_logs, board_source

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable  # pyright: ignore[reportAttributeAccessIssue]

    from ...transport.messages import Answer, Joined, Message, Topic, Welcome
    from ..reading.mapped import LogSource, MappedSource

_TAKEN = Sent.TAKEN


class UnixChannel:
    """See the module."""

    remote = True
    refusal = None  # the system vouches for it

    def __init__(self, url: str, *, max_bytes: int, clock: Callable[[], float]) -> None:
        self._url = url
        self._socket = UnixClient(url, max_bytes=max_bytes, clock=clock)
        self.connections = self._socket.connections
        self.more = False
        self.due, self.wake, self.break_off = self._socket.due, self._socket.wake, self._socket.break_off
        self.close, self.together = self._socket.close, self._socket.together

    @property
    def connected(self) -> bool:
        return self._socket.connected

    @property
    def unreachable(self) -> bool:
        return not self._socket.connected

    def send(self, message: Message, payload: Buffer = b"") -> bool:
        return self._socket.send(frames(message, payload)) is _TAKEN

    def receive(self) -> tuple[Answer, Buffer] | None:
        while (received := self._socket.receive()) is not None:
            self.connections, self.more = self._socket.connections, self._socket.more
            try:
                return decode_answer(received)
            except ProtocolError:
                continue  # no message of ours: drop it
        self.connections = self._socket.connections
        return None

    def now_us(self) -> int:
        return wall_us()

    def choose_delivery(self, group: str, wanted: str) -> str:
        return "mapped" if wanted == "mapped" else "control"

    def open_source(self, welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
        return board_source(welcome, topic, joined)

    def open_logs(self, welcome: Welcome) -> LogSource:
        return board_logs(welcome)

    def listen(self, endpoint: str) -> None:
        raise ProtocolError(f"the broker at {self._url} wants to deliver from {endpoint}, unasked")

    def unlisten(self, endpoint: str) -> None:
        """Do nothing: there is no listener."""

    def fileno(self) -> int:
        return self._socket.fd

    def look_again(self) -> None:
        """Do nothing: the descriptor tells everything as long as it lasts."""
