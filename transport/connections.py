"""Works around libzmq: makes its listeners, and shuts down connections that it accepted.

Contract: touches only connections of the given listeners. Knows no zmq.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .socket_options import BINDING

if TYPE_CHECKING:
    from .url import Url


def listener(url: Url) -> socket.socket:
    """A socket that listens at `url` (ipc, or tcp with a numeric host), for libzmq to accept from. Raises OSError.

    Where libzmq makes it itself and no descriptor is left, it ends the process.
    """
    if url.scheme == "ipc":
        family, address = socket.AF_UNIX, url.path
    else:
        host = url.host.strip("[]")
        family, address = (socket.AF_INET6 if ":" in host else socket.AF_INET), (host, url.port)
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.bind(address)
        made.listen(BINDING["BACKLOG"])
    except BaseException:
        made.close()
        raise
    return made


def shut_down(fd: int, endpoints: Sequence[str]) -> bool:
    """Shut down the connection `fd` if one of the listeners on `endpoints` accepted it; says whether.

    The peer may be gone and the number in use for something else: hence the look at whose it is now.
    """
    try:
        connection = socket.socket(fileno=fd)  # no copy: there may be no descriptor left
    except OSError:
        return False  # closed in the meantime, which is just what was wanted
    try:
        if _names(connection).isdisjoint(endpoints):
            return False
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        connection.detach()
    return True


def _names(connection: socket.socket) -> set[str]:
    """Our side's address of a connection, in each way a listener may have written it."""
    name = connection.getsockname()
    if connection.family == socket.AF_UNIX:
        return {f"ipc://{name}"}
    host, port = name[:2]
    numeric = f"[{host}]" if ":" in host else host
    return {f"tcp://{each}:{port}" for each in (numeric, host.removeprefix("::ffff:"), "0.0.0.0", "[::]")}
