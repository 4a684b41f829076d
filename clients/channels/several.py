"""The channel to a cluster: to one of its nodes at a time.

Contract: as channel.py. `turn_to` drops the channel to one node and opens that to another; to the connection above, the
old connection is lost. `fileno` stays the same. Must not know: which node to turn to, and what the messages mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..connection.readiness import Front

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable  # pyright: ignore[reportAttributeAccessIssue]
    from contextlib import AbstractContextManager

    from ...storage.errors import Error
    from ...transport.messages import Answer, Joined, Message, Topic, Welcome
    from ..connection.channel import ClientChannel
    from ..reading.mapped import LogSource, MappedSource


class SeveralChannel:
    """See the module. `open_one` opens the channel to one address."""

    def __init__(self, first: str, open_one: Callable[[str], ClientChannel]) -> None:
        self._open_one = open_one
        self._inner = open_one(first)
        self._before = 0  # connections of the channels before
        self._left: list[ClientChannel] = []  # yet to be closed
        try:
            self._front = Front()
            self._watched = self._inner
            self._front.add(self._inner.fileno())
        except BaseException:
            self._inner.close()
            raise

    def turn_to(self, address: str) -> None:
        """Begin anew with another node."""
        channel = self._open_one(address)
        old = self._inner
        self._left.append(old)
        self._before += old.connections + 1  # one more: what was sent is lost before there is another connection
        self._inner = channel
        self._settle()

    def _settle(self) -> None:
        """Watch the present channel, and close the ones before. Repeating it finishes what an interrupt left."""
        if self._watched is not self._inner:
            self._front.remove(self._watched.fileno())
            self._watched = self._inner
            self._front.add(self._inner.fileno())
        while self._left:
            self._left[-1].close()
            self._left.pop()

    @property
    def remote(self) -> bool:
        return self._inner.remote

    @property
    def more(self) -> bool:
        return self._inner.more

    @property
    def connections(self) -> int:
        return self._before + self._inner.connections

    @property
    def connected(self) -> bool:
        return self._inner.connected

    @property
    def unreachable(self) -> bool:
        return self._inner.unreachable

    @property
    def refusal(self) -> Error | None:
        return self._inner.refusal

    def send(self, message: Message, payload: Buffer = b"") -> bool:
        return self._inner.send(message, payload)

    def together(self) -> AbstractContextManager[None]:
        return self._inner.together()

    def receive(self) -> tuple[Answer, Buffer] | None:
        return self._inner.receive()

    def now_us(self) -> int:
        return self._inner.now_us()

    def choose_delivery(self, group: str, wanted: str) -> str:
        return self._inner.choose_delivery(group, wanted)

    def open_source(self, welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
        return self._inner.open_source(welcome, topic, joined)

    def open_logs(self, welcome: Welcome) -> LogSource:
        return self._inner.open_logs(welcome)

    def listen(self, endpoint: str) -> None:
        self._inner.listen(endpoint)

    def unlisten(self, endpoint: str) -> None:
        self._inner.unlisten(endpoint)  # none of the old ones is known to a new channel, which ignores it

    def due(self) -> float:
        return self._inner.due()

    def fileno(self) -> int:
        return self._front.fileno()

    def look_again(self) -> None:
        self._inner.look_again()

    def break_off(self) -> None:
        self._settle()
        self._inner.break_off()

    def wake(self) -> None:
        self._inner.wake()

    def close(self) -> None:
        self._inner.close()
        while self._left:
            self._left[-1].close()
            self._left.pop()
        self._front.close()
