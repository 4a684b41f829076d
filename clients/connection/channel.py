"""A channel: messages to one broker and back, without waiting.

Idea: `UnixChannel` and `ZmqChannel` speak to a broker process over sockets (modules of their names), `LocalChannel`
(local.py) to a node in this process, `SeveralChannel` to one node of a cluster at a time. The rest of the clients
cannot tell them apart.

Contract: `send` says at once whether the message was taken; `receive` returns an arrived message, or None. `fileno` is
readable when `receive` may have something; several threads may wait for it at once, without the client's lock. All
else only under that lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]
    from contextlib import AbstractContextManager

    from ...storage.errors import Error
    from ...transport.messages import Answer, Joined, Message, Topic, Welcome
    from ..reading.mapped import LogSource, MappedSource


class ClientChannel(Protocol):
    """See the module."""

    @property
    def remote(self) -> bool:
        """The broker is another process: answers arrive whatever we do. Where it is this one, `receive` works."""
        ...

    @property
    def more(self) -> bool:
        """Whether to `receive` again at once. Where that is not known before, it is true."""
        ...

    @property
    def connections(self) -> int:
        """Connections made so far: what was sent over an older one may never have arrived."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the latest connection stands."""
        ...

    @property
    def unreachable(self) -> bool:
        """Whether the latest try to connect has failed, as far as that can be known."""
        ...

    @property
    def refusal(self) -> Error | None:
        """Why the broker will never let this client in; None as long as it may."""
        ...

    def send(self, message: Message, payload: Buffer = b"") -> bool:
        """Take one message; False when it cannot be taken now."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """What is sent in this block leaves at its end, with one write where that is possible."""
        ...

    def receive(self) -> tuple[Answer, Buffer] | None:
        """The next message that has arrived; None when there is none."""
        ...

    def now_us(self) -> int:
        """The time of day in microseconds UTC: the broker's if that is in this process, otherwise this machine's."""
        ...

    def choose_delivery(self, group: str, wanted: str) -> str:
        """How records will travel: push, control or mapped. Raises InvalidArgument for an unavailable way."""
        ...

    def open_source(self, welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
        """The source that a mapped session reads from. Raises MappedUnavailable."""
        ...

    def open_logs(self, welcome: Welcome) -> LogSource:
        """The logs themselves, for reading ranges. Raises MappedUnavailable."""
        ...

    def listen(self, endpoint: str) -> None:
        """Receive what is pushed from `endpoint`, too."""
        ...

    def unlisten(self, endpoint: str) -> None:
        """Stop listening; messages pushed and not received are dropped."""
        ...

    def due(self) -> float:
        """When to `receive` although nothing arrived; on this process's clock."""
        ...

    def fileno(self) -> int:
        """One descriptor for poll, select and event loops."""
        ...

    def look_again(self) -> None:
        """Look for arrived messages without relying on `fileno`."""
        ...

    def break_off(self) -> None:
        """Start a new connection: an interrupted call may have stopped between two frames or with a message in hand."""
        ...

    def wake(self) -> None:
        """Make `fileno` readable, from any thread."""
        ...

    def close(self) -> None:
        """Drop everything. Repeating it finishes what an interrupt left."""
        ...
