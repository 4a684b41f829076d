"""Opens a connection to an address, over the channel of its scheme."""

from __future__ import annotations

from collections.abc import Callable

from ..storage.linux import need_linux
from ..transport.errors import none_left
from ..transport.keys import KeyLike, check_key, key_of
from ..transport.socket_options import MESSAGE_BYTES_MAX
from ..transport.url import addresses, parse
from .connection.channel import ClientChannel
from .connection.connection import Connection

NAME = "penstock-python"


def open_connection(
    url: str, *, timeout: float, name: str | None, clock: Callable[[], float], key: KeyLike = None
) -> Connection:
    """A connection over the channel that serves `url`. `key`: see `key_of`. Raises InvalidUrl, InvalidKey."""
    found = addresses(url)
    if len(found) == 1:
        channel, turn_to = open_channel(url, clock=clock, key=key), None
    else:
        from .channels.several import SeveralChannel

        several = SeveralChannel(found[0], lambda address: open_channel(address, clock=clock, key=key))
        channel, turn_to = several, several.turn_to
    return Connection(
        channel, url=url, name=name or NAME, timeout=timeout, clock=clock, addresses=found, turn_to=turn_to
    )


def open_channel(url: str, *, clock: Callable[[], float], key: KeyLike = None) -> ClientChannel:
    """The channel that serves `url`, one address. Imports the engine (half of all code) and ZeroMQ only if needed.

    Raises InvalidUrl, InvalidKey, and CannotListen where no descriptor is left.
    """
    found = parse(url)
    check_key(key)
    if found.scheme == "mem":
        from .embedded.local import memory_broker

        return memory_broker(found.name).connect()
    if found.scheme != "tcp":
        need_linux(f"{found.scheme}://")
    if found.scheme == "file":
        from .embedded.directory import DirectoryChannel

        return DirectoryChannel(found.path, clock=clock)
    if found.scheme == "unix":
        from .channels.unix import UnixChannel

        return UnixChannel(url, max_bytes=MESSAGE_BYTES_MAX, clock=clock)
    from .channels.zmq import ZmqChannel

    try:
        return ZmqChannel(url, max_bytes=MESSAGE_BYTES_MAX, key=key_of(key) if found.scheme == "tcp" else None)
    except OSError as error:
        raise none_left(error.strerror) from error
