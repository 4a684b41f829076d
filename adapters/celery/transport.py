"""The transport: a connection of kombu, with an inbox that the feeds of all its channels fill.

    Connection("penstock+unix:///run/penstock/broker.sock")        # or penstock+tcp://host:port

Contract: as kombu's virtual transports, without an event loop: Celery's worker runs its blocking loop, which waits in
`drain_events`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import base, virtual

from ...broker.errors import NoLeader, NotLeader, Overloaded, Unavailable
from ...clients.errors import TimedOut
from ...storage.errors import Closed, Error
from .channel import KombuChannel
from .feeds import Inbox, MessageFeed
from .link import KombuLink
from .temporary import Binding

AWAY = (TimedOut, Unavailable, NoLeader, NotLeader, Overloaded, Closed)
"""Errors after which kombu connects again and repeats."""


class Transport(virtual.Transport):
    """See the module."""

    Channel = KombuChannel
    driver_type = "penstock"
    driver_name = "penstock"
    connection_errors = (*virtual.Transport.connection_errors, *AWAY)
    channel_errors = (*virtual.Transport.channel_errors, Error)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()  # what the broker refused once, it refuses again
    implements = base.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )
    link: KombuLink
    """The connection to the broker, from `establish_connection` on."""

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.inbox: Inbox = Inbox()
        self.temporary: dict[str, dict[tuple[str | None, str], Binding]] = {}
        self._process = os.getpid()

    def establish_connection(self) -> Transport:
        """Connect to the broker. Raises TimedOut when none answers."""
        self.link = KombuLink(address_of(self.client), self.client.transport_options)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels, then the connection. A forked child leaves it to its parent."""
        try:
            super().close_connection(connection)
        finally:  # a link that stays would extend the leases of its channels for ever
            self.temporary.clear()
            if os.getpid() == self._process:
                with suppress(TimedOut):  # its channels have said what was not settled
                    self.link.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message, waiting for it. Raises TimeoutError, and what a feed failed with."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - monotonic(), 0.0)
            try:
                found = self.inbox.get(timeout=left) if left != 0.0 else self.inbox.get_nowait()
            except Empty:
                raise TimeoutError(f"no message within {timeout} s") from None
            if not isinstance(found, MessageFeed):
                raise found
            if found.deliver():
                return

    def driver_version(self) -> Any:
        """The version of penstock."""
        from importlib.metadata import version

        return version("penstock")


def address_of(connection: Any) -> str:
    """The broker's address. kombu leaves the URL of a connection as it is, and takes those of alternates apart."""
    protocol = str(connection.transport_cls).partition("+")[2]
    if not protocol:
        return str(connection.hostname)
    place = f"{connection.hostname}:{connection.port}" if connection.hostname else f"/{connection.virtual_host}"
    return f"{protocol}://{place}"
