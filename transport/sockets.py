"""Sockets by address: callers need not know which kind serves which scheme.

Contract: ZeroMQ is loaded, and its threads started, when the first address asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from .descriptors import DescriptorRoom
from .keys import Key
from .socket_options import MESSAGE_BYTES_MAX
from .unix_client import UnixClient
from .unix_server import UnixServer
from .url import connect_url, listen_url

if TYPE_CHECKING:
    from .zmq_connecting import ClientSocket
    from .zmq_curve import GateSocket, Guarded
    from .zmq_serving import PushSocket, ServerSocket
    from .zmq_sockets import Context

    Server: TypeAlias = ServerSocket | UnixServer
    Client: TypeAlias = ClientSocket | UnixClient


class Sockets:
    """Owner of sockets: everything it made is closed with it, and closing never waits for a peer."""

    def __init__(
        self, room: DescriptorRoom | None = None, guarded: Guarded | None = None, key: Key | None = None
    ) -> None:
        """`guarded`: what ZeroMQ's listeners let in; None for any peer. `key`: of what connects over tcp."""
        self.room = room or DescriptorRoom()
        self._guarded = guarded
        self._key = key
        self._context: Context | None = None
        self._own: list[UnixServer | UnixClient] = []

    def server(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX, is_open: bool = False) -> Server:
        """A socket that listens at `url`: see its `endpoints`.

        `is_open`: processes of any user may connect to a path. Raises AddressInUse, CannotListen or InvalidUrl.
        """
        if listen_url(url).scheme != "unix":
            return self.zmq.server([url], max_bytes=max_bytes, is_open=is_open)
        made = UnixServer(url, max_bytes=max_bytes, room=self.room, is_open=is_open)
        self._own.append(made)
        return made

    def client(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> Client:
        """A socket connected to `url`, which reconnects: see its `connections`. Raises InvalidUrl."""
        if connect_url(url).scheme != "unix":
            return self.zmq.client(url, max_bytes=max_bytes)
        made = UnixClient(url, max_bytes=max_bytes)
        self._own.append(made)
        return made

    def push(self, server: Server, domain: str = "") -> PushSocket | None:
        """A socket for deliveries to one client of `server`; None where its connection is the best way for them.

        `domain` is what the gate is told of it.

        Raises TransportError (no descriptors left, path too long).
        """
        return (
            None
            if isinstance(server, UnixServer)
            else self.zmq.push(server.endpoints[0], domain=domain, is_open=server.is_open)
        )

    @property
    def zmq(self) -> Context:
        """ZeroMQ's context."""
        if self._context is None:
            from .zmq_sockets import Context

            self._context = Context(room=self.room, key=self._key, guarded=self._guarded)
        return self._context

    @property
    def gate(self) -> GateSocket | None:
        """What asks about new connections, if ZeroMQ listens and peers have to be known."""
        return None if self._context is None else self._context.gate

    @property
    def has_threads(self) -> bool:
        """Whether what was sent may still be on its way in a thread of this process."""
        return self._context is not None

    def close(self) -> None:
        """Close all sockets. What was not delivered is dropped. Repeating it does nothing."""
        while self._own:
            self._own.pop().close()
        if self._context is not None:
            self._context.close()

    def __enter__(self) -> Sockets:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
