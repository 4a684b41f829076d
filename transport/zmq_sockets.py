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
from .socket_options import BINDING, CLIENT, COMMON, MESSAGE_BYTES_MAX, PULL, PUSH, SERVER
from .url import Url, connect_url, listen_url
from .zmq_connecting import ClientSocket, PullSocket
from .zmq_serving import PushSocket, ServerSocket
from .zmq_socket import SocketOwner


class Context(SocketOwner):
    """Makes and owns ZeroMQ's sockets."""

    def server(self, urls: Iterable[str], *, max_bytes: int = MESSAGE_BYTES_MAX) -> ServerSocket:
        """A ROUTER on all `urls` (ipc, or tcp with port 0 for any): see its `endpoints`.

        Raises AddressInUse, CannotListen or InvalidUrl, and then listens on none of them.
        """
        made = ServerSocket(self, self.raw_socket(zmq.ROUTER, COMMON | BINDING | SERVER, max_bytes))
        made.bind([listen_url(url) for url in urls])
        return made

    def client(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> ClientSocket:
        """A DEALER connected to `url`; it reconnects by itself, see ClientSocket.connections. Raises InvalidUrl."""
        made = ClientSocket(self, self.raw_socket(zmq.DEALER, COMMON | CLIENT, max_bytes))
        made.connect(connect_url(url))
        return made

    def push(self, listener: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> PushSocket:
        """A PUSH on a fresh endpoint next to `listener`: a path beside its path, or a free port on its host.

        Raises CannotListen (no room or descriptors left, path too long): deliver over the server socket then.
        """
        made = PushSocket(self, self.raw_socket(zmq.PUSH, COMMON | BINDING | PUSH, max_bytes))
        url = listen_url(listener)
        made.bind([Url("tcp", host=url.host) if url.scheme == "tcp" else Url("ipc", path=ipc_paths.beside(url.path))])
        return made

    def pull(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> PullSocket:
        """A PULL connected to the endpoint of a push, once: when that is lost it stays silent. Raises InvalidUrl."""
        made = PullSocket(self, self.raw_socket(zmq.PULL, COMMON | PULL, max_bytes))
        made.connect(connect_url(url))
        return made
