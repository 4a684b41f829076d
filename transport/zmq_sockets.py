"""ZeroMQ: makes its sockets, with their options (socket_options.py).

    Server (ROUTER)  <-->  Client (DEALER)     everything that asks and answers
    Push             --->  Pull                deliveries: one fresh endpoint, one peer, no second life

Contract: each is made listening or connected, or an error says why not. What they do is said in zmq_serving.py and
zmq_connecting.py, what they share in zmq_socket.py; no other module of the tree imports zmq.
"""

from __future__ import annotations

from collections.abc import Iterable

import zmq

from . import ipc_paths
from .descriptors import DescriptorRoom
from .keys import Key
from .socket_options import BINDING, CLIENT, COMMON, MESSAGE_BYTES_MAX, PULL, PUSH, SERVER
from .url import Url, connect_url, listen_url
from .zmq_connecting import ClientSocket, PullSocket
from .zmq_curve import ANYONE, GateSocket, Guarded, Security, of_client, of_listener
from .zmq_serving import PushSocket, ServerSocket
from .zmq_socket import SocketOwner

SERVER_DOMAIN = "broker"
"""Of the listeners that all clients connect to."""


class Context(SocketOwner):
    """Makes and owns ZeroMQ's sockets."""

    def __init__(
        self, *, room: DescriptorRoom | None = None, key: Key | None = None, guarded: Guarded | None = None
    ) -> None:
        """`key`: of those that connect over tcp; `guarded`: of those that listen. Without it any peer is let in."""
        super().__init__(room=room)
        self._key = key
        self._guarded = guarded
        self.gate = None if guarded is None else GateSocket(self, guarded.gate)
        """What decides about connections to listeners; None lets all in."""

    def server(
        self, urls: Iterable[str], *, max_bytes: int = MESSAGE_BYTES_MAX, domain: str = SERVER_DOMAIN,
        is_open: bool = False,
    ) -> ServerSocket:  # fmt: skip
        """A ROUTER on all `urls` (ipc, or tcp with port 0 for any): see its `endpoints`.

        `domain` is what the gate is told of it. `is_open`: processes of any user may connect to a path.

        Raises AddressInUse, CannotListen or InvalidUrl, and then listens on none of them.
        """
        found = [listen_url(url) for url in urls]
        security = self._listening(domain, found[0])
        made = ServerSocket(self, self.raw_socket(zmq.ROUTER, COMMON | BINDING | SERVER, max_bytes, security), is_open)
        made.bind(found)
        return made

    def client(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> ClientSocket:
        """A DEALER connected to `url`, which reconnects: see its `connections`. Raises InvalidUrl, InvalidKey."""
        found = connect_url(url)
        security = self._connecting(found)
        made = ClientSocket(self, self.raw_socket(zmq.DEALER, COMMON | CLIENT, max_bytes, security), bool(security))
        made.connect(found)
        return made

    def push(
        self, listener: str, *, max_bytes: int = MESSAGE_BYTES_MAX, domain: str = "", is_open: bool = False
    ) -> PushSocket:
        """A PUSH on a fresh endpoint next to `listener`: a path beside its path, or a free port on its host.

        Raises CannotListen (no room or descriptors left, path too long): deliver over the server socket then.
        """
        url = listen_url(listener)
        security = self._listening(domain, url)
        made = PushSocket(self, self.raw_socket(zmq.PUSH, COMMON | BINDING | PUSH, max_bytes, security), is_open)
        made.bind([Url("tcp", host=url.host) if url.scheme == "tcp" else Url("ipc", path=ipc_paths.beside(url.path))])
        return made

    def pull(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> PullSocket:
        """A PULL connected to the endpoint of a push, once: when that is lost it stays silent. Raises InvalidUrl."""
        found = connect_url(url)
        made = PullSocket(self, self.raw_socket(zmq.PULL, COMMON | PULL, max_bytes, self._connecting(found)))
        made.connect(found)
        return made

    def _listening(self, domain: str, url: Url) -> Security:
        if self._guarded is None:
            return ANYONE
        return of_listener(self._guarded, domain, encrypted=url.scheme == "tcp")

    def _connecting(self, url: Url) -> Security:
        return of_client(self._key) if self._key is not None and url.scheme == "tcp" else {}
