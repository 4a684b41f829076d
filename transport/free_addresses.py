"""Tells whether addresses can be listened on, before anything is made that listens there.

Idea: listen at all of them for a moment, so that two names of one host are found as well.
Contract: what is refused here would be refused later; what a listener alone finds out, such as a family of addresses
that the machine does not have, is left to it. Nothing is created or removed. Knows no messages.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import ExitStack

from . import ipc_paths
from .errors import AddressInUse, CannotListen, TransportError
from .url import Url

_SURE = (errno.EADDRINUSE, errno.EACCES)
"""Why a port is refused at once."""


def need_free(urls: Iterable[Url]) -> None:
    """Try addresses of paths and ports. Raises AddressInUse, CannotListen."""
    with ExitStack() as stack:
        for url in urls:
            if url.has_port:
                _try_port(url, stack)
            else:
                ipc_paths.need_free(url.path)


def _try_port(url: Url, stack: ExitStack) -> None:
    """Listen on a port until `stack` closes."""
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host_of(url), url.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            tried = stack.enter_context(socket.socket(family, kind, protocol))
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind(place)
            tried.listen()
    except OSError as error:
        if error.errno in _SURE or isinstance(error, socket.gaierror):
            raise refused(url, error) from error


def host_of(url: Url) -> str | None:
    """The host of an address as sockets take it; None for all."""
    return None if url.host == "*" else url.host.strip("[]")


def refused(url: Url, error: OSError) -> TransportError:
    """The system's error about listening at `url`, with the way out."""
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"a process already listens on {url}; stop it or choose another address")
    return CannotListen(f"cannot listen on {url}: {error.strerror or error}")
