"""The gateway process: one event loop, one connection to the broker, and the doors.

Contract: `run` serves until SIGTERM or SIGINT, then answers what has arrived, for `drain_s` at most. `ready` is called
once, with the event that programs read, when a broker is there: one that does not lead will do, as its doors say which
node does. The broker may be restarted meanwhile. Once the process is about to end, no
other of these signals cuts it short. Raises what keeps it from serving.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from ..broker.errors import CannotStart
from ..broker.system import calm_collector, return_large_blocks, set_file_limit
from ..clients.aio.driver import AsyncDriver
from ..clients.opening import open_connection
from ..transport.url import Url
from . import libraries
from .config import GatewayConfig
from .connections import AllConnections
from .holding import HeldBytes
from .link import BrokerLink
from .refused import RefusedCounts
from .tls import Certificate
from .users import Users

STOPS = (signal.SIGTERM, signal.SIGINT)

OWN_DESCRIPTORS = 256
"""Of the process itself: its sockets, the broker, files, and connections that are refused or fail to begin."""

DESCRIPTORS_MOST = 16 << 10
"""Enough for the connections of both doors: the system keeps further ones out."""


class GatewayDoor(Protocol):
    """A door, as the process sees it."""

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the bound addresses. Raises AddressInUse, CannotListen."""
        ...

    async def drain(self, seconds: float) -> None:
        """Stop listening, answer what has arrived, and close every connection after `seconds` at the latest."""
        ...


class GatewayParts(NamedTuple):
    """What the doors of a process have in common."""

    link: BrokerLink
    every: AllConnections
    held: HeldBytes
    users: Users | None
    certificate: Certificate


def _resp(shared: GatewayParts, config: GatewayConfig) -> GatewayDoor:
    from .resp.server import RespDoor

    link, every, held, users, certificate = shared
    return RespDoor(link, every, held, users=users, may_create=config.may_create, tls=certificate.context())


def _http(shared: GatewayParts, config: GatewayConfig) -> GatewayDoor:
    for library in libraries.OF_DOORS["http"]:
        libraries.load(library)
    from .console.console import Console
    from .http.server import HttpDoor

    link, every, held, users, certificate = shared
    pages = Console(link, config.supervisor).pages()
    tls = certificate.context("http/1.1")
    return HttpDoor(link, every, held, users=users, config=config, tls=tls, pages=pages)


DOORS: dict[str, Callable[[GatewayParts, GatewayConfig], GatewayDoor]] = {"resp": _resp, "http": _http}
"""By the name of their addresses in the settings. One that is not asked for loads nothing."""


def run(config: GatewayConfig, ready: Callable[[dict[str, Any]], None], page: int = -1) -> None:
    """See the module; `page` is that of RefusedCounts.

    Raises InvalidUrl, InsecureListen, InvalidCertificate, InvalidUsers, TimedOut ...
    """
    config.addresses()
    refused = RefusedCounts(page)
    users = Users.load(config.users, enforced=config.grants, refused=refused) if config.users else None
    certificate = Certificate(config.tls_certificate, config.tls_key)
    uvloop = libraries.load("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, users, certificate, refused, ready))


async def _unless_stopped(reached: Coroutine[Any, Any, object], stop: asyncio.Event) -> None:
    """Wait for a broker. Raises CannotStart where the process is told to end before."""
    loop = asyncio.get_running_loop()
    reaching, told = loop.create_task(reached), loop.create_task(stop.wait())
    await asyncio.wait((reaching, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not reaching.done():
        reaching.cancel()
        raise CannotStart("told to stop before a broker was there")
    await reaching


async def _serve(
    config: GatewayConfig, users: Users | None, certificate: Certificate, refused: RefusedCounts,
    ready: Callable[[dict[str, Any]], None],
) -> None:  # fmt: skip
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in STOPS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    every = AllConnections(max(set_file_limit(DESCRIPTORS_MOST) - OWN_DESCRIPTORS, 1), refused)
    connection = open_connection(config.url, timeout=config.timeout_s, name="gateway", clock=time.monotonic)
    link = BrokerLink(AsyncDriver(connection), refused)
    shared = GatewayParts(link, every, HeldBytes(refused=refused), users, certificate)
    following = loop.create_task(certificate.follow())
    try:
        await _unless_stopped(link.driver.run(connection.reached(connection.deadline())), stop)
        doors, bound = [], {}
        try:
            for name, urls in config.addresses().items():
                doors.append(DOORS[name](shared, config))
                bound[name] = await doors[-1].open(urls)
            calm_collector()
            return_large_blocks()
            ready({"event": "ready", **bound, "broker": config.url, "pids": {"gateway": os.getpid()}})
            await stop.wait()
        finally:
            await asyncio.gather(*(door.drain(config.drain_s) for door in doors))
    finally:
        following.cancel()
        await link.close()
        for number in STOPS:  # handlers are taken away before a process is over; what is ignored stays so
            signal.signal(number, signal.SIG_IGN)
