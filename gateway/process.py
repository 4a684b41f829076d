"""The gateway process: one event loop, one connection to the broker, and the doors.

Contract: `run` serves until SIGTERM or SIGINT, then answers what has arrived, for `drain_s` at most. `ready` is called
once, with the event that programs read. The broker may be
restarted meanwhile. The process is about to end then: no other of these signals cuts it short. Raises what keeps it
from serving.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from ..broker.system import calm_collector, set_file_limit
from ..clients.aio.driver import AsyncDriver
from ..clients.opening import open_connection
from . import libraries
from .config import GatewayConfig
from .link import BrokerLink
from .resp.server import RespDoor
from .users import Users

STOPS = (signal.SIGTERM, signal.SIGINT)


def run(config: GatewayConfig, ready: Callable[[dict[str, Any]], None]) -> None:
    """See the module. Raises InvalidUrl, InsecureListen, InvalidUsers, MissingLibrary, AddressInUse, TimedOut ..."""
    config.addresses()
    users = Users.load(config.users) if config.users else None
    uvloop = libraries.load("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, users, ready))


async def _serve(config: GatewayConfig, users: Users | None, ready: Callable[[dict[str, Any]], None]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in STOPS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    set_file_limit()
    connection = open_connection(config.url, timeout=config.timeout_s, name="gateway", clock=time.monotonic)
    link = BrokerLink(AsyncDriver(connection))
    try:
        await link.client.ping()
        door = RespDoor(link, users=users, may_create=config.may_create)
        try:
            bound = await door.open(config.addresses())
            calm_collector()
            ready({"event": "ready", "resp": bound, "broker": config.url, "pids": {"gateway": os.getpid()}})
            await stop.wait()
        finally:
            await door.drain(config.drain_s)
    finally:
        await link.close()
        for number in STOPS:  # handlers are taken away before a process is over; what is ignored stays so
            signal.signal(number, signal.SIG_IGN)
