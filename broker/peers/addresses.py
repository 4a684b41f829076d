"""Where a node hears its peers: one address is configured, and data comes beside it. Pure."""

from __future__ import annotations

from ...transport.url import listen_url
from ..errors import InvalidPeers


def data_address(address: str) -> str:
    """Where a node whose address for peers is `address` hears data: the next port, or a path beside it.

    Raises InvalidPeers, InvalidUrl.
    """
    url = listen_url(address)
    if url.scheme == "tcp":
        if not url.port:
            raise InvalidPeers(f"{address} has any port, and data comes at the next one: choose one")
        if url.port == 65535:
            raise InvalidPeers(f"{address} has the last port, and data comes at the next one: choose a lower port")
        return f"tcp://{url.host}:{url.port + 1}"
    if url.scheme == "ipc":
        return f"ipc://{url.path}.data"
    raise InvalidPeers(f"{address}: nodes reach each other by tcp:// or ipc://")
