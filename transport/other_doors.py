"""What listens at a port where a broker is looked for: the gateway's doors are beside it, and easily mistaken for it.

Idea: ZeroMQ speaks first, and reads ten bytes of its peer, of which the first and the last count. Eight are
left for two lines that Redis answers and HTTP refuses.

Contract: waits for PATIENCE_S at most. Whatever is not recognised, and whatever does not answer, is nothing.
"""

from __future__ import annotations

import socket

from .url import Url

PATIENCE_S = 1.0

_QUESTION = b"\xff\r\nPING\r\n\x7f"
_ANSWERS = {
    b"-": "of Redis clients (--resp)",
    b"HTTP": "of HTTP clients (--http)",
    b"\x15\x03": "of clients that come over TLS (--resp, --http)",
}


def door_at(url: Url) -> str:
    """Whose door a tcp address is, if it is no broker's; "" where that cannot be said."""
    try:
        with socket.create_connection((url.host.strip("[]"), url.port), PATIENCE_S) as connection:
            connection.sendall(_QUESTION)
            said = connection.recv(16)
    except OSError:
        return ""
    return next((whose for begin, whose in _ANSWERS.items() if said.startswith(begin)), "")
