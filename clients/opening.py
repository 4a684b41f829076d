"""From an address to a connection: which channel serves it."""

from __future__ import annotations

from collections.abc import Callable

from ..transport.socket_options import MESSAGE_BYTES_MAX
from ..transport.url import parse
from .channel import Channel, ZmqChannel
from .connection import Connection
from .directory import DirectoryChannel
from .local import memory_broker

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
        return DirectoryChannel(found.path)
    return ZmqChannel(url, max_bytes=MESSAGE_BYTES_MAX)
