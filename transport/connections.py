"""Connections that libzmq accepted, by descriptor: the one thing that may be done to them behind its back.

Contract: only connections of the given listeners are touched. Knows no zmq.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


def shut_down(fd: int, endpoints: Sequence[str]) -> bool:
    """Shut down the connection `fd` if one of the listeners on `endpoints` accepted it; says whether.

    The peer may be gone and the number in use for something else: hence the look at whose it is now.
    """
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            if _names(connection).isdisjoint(endpoints):
                return False
            connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # closed in the meantime, which is just what was wanted
    return True


def _names(connection: socket.socket) -> set[str]:
    """Our side's address of a connection, in each way a listener may have written it."""
    name = connection.getsockname()
    if connection.family == socket.AF_UNIX:
        return {f"ipc://{name}"}
    host, port = name[:2]
    numeric = f"[{host}]" if ":" in host else host
    return {f"tcp://{each}:{port}" for each in (numeric, host.removeprefix("::ffff:"), "0.0.0.0", "[::]")}
