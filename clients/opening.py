"""From an address to a connection: which channel serves it, and what mapped readers need."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..storage.files import Files
from ..transport.messages import Joined, Topic
from ..transport.socket_options import MESSAGE_BYTES_MAX
from ..transport.url import parse
from .channel import Channel, ZmqChannel
from .connection import Connection
from .local import directory_channel, memory_broker

if TYPE_CHECKING:
    from .mapped import MappedSource

NAME = "penstock-python"


def open_connection(url: str, *, timeout: float, name: str | None, clock: Callable[[], float]) -> Connection:
    """A connection over the channel that serves `url`. Raises InvalidUrl."""
    return Connection(open_channel(url), url=url, name=name or NAME, timeout=timeout, clock=clock)


def open_channel(url: str) -> Channel:
    """The channel that serves `url`."""
    found = parse(url)
    if found.scheme == "mem":
        return memory_broker(found.name).connect()
    if found.scheme == "file":
        return directory_channel(found.path, Files())
    return ZmqChannel(url, max_bytes=MESSAGE_BYTES_MAX)


def mapped_opener(connection: Connection) -> Callable[[Topic, Joined], MappedSource]:
    """What opens the files of a mapped session. Raises MappedUnavailable."""

    def opener(topic: Topic, joined: Joined) -> MappedSource:
        from .mapped import MappedSource

        assert connection.welcome is not None, "a session has a broker that welcomed us"
        return MappedSource(connection.welcome, topic, joined)

    return opener
