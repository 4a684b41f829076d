"""The exporter: metrics of a broker for Prometheus, on a listener of its own.

Idea: a process beside the broker and its client, so that making text of a thousand series takes no time from other
clients. It asks when it is asked, at most once a second however many scrape.

Contract: `run` serves `GET /metrics` until SIGTERM or SIGINT; `ready` is called once, with the event that programs
read. The broker may be restarted meanwhile: without it, `penstock_up` is 0. Raises what keeps it from serving. Its
connections are bounded (scrape_door.py).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from .broker.beside import serve_beside
from .broker.diagnostics import say
from .broker.errors import NoLeader, NotLeader
from .broker.exposure import need_closed
from .broker.processes import usage
from .broker.system import calm_collector
from .clients.aio.client import AsyncClient
from .clients.aio.driver import AsyncDriver
from .clients.cluster import node_stats
from .clients.opening import open_connection
from .exposition import CONTENT_TYPE, text
from .gateway.listening import Listeners
from .metrics import Look, metrics
from .scrape_door import ScrapeDoor, answer_of
from .storage.errors import Error
from .transport.url import Url, parse

SCHEMES = ("unix", "tcp")
FRESH_S = 1.0


class ExporterConfig(Struct, frozen=True, kw_only=True):
    """Settings of one exporter."""

    url: str  # of the broker
    metrics: tuple[str, ...]  # unix:// and tcp:// addresses to listen on
    partitions: bool = False  # series of each partition too
    most: int = 1000  # topics, groups and queues that have series
    insecure: bool = False  # allow addresses that other machines can reach
    timeout_s: float = 5.0  # for the broker to answer
    supervisor: int = 0  # whose children are the broker's processes; 0: elsewhere
    data: str = ""  # the broker's directory, if it is on this machine

    def addresses(self) -> list[Url]:
        """The addresses to listen on. Raises InvalidUrl, InsecureListen."""
        found = [parse(address, schemes=SCHEMES) for address in self.metrics]
        for url in found:
            need_closed(url, guarded=False, insecure=self.insecure, about="and metrics name topics and groups")
        return found

    def to_json(self) -> str:
        """The settings as one argument of a command."""
        return msgspec.json.encode(self).decode()


class Exporter:
    """Looks at a broker, and keeps the answer for `FRESH_S`."""

    def __init__(self, client: AsyncClient, config: ExporterConfig) -> None:
        self._client = client
        self._config = config
        self._looking = asyncio.Lock()
        self._text = b""
        self._until_s = 0.0
        self._told = ""  # the code of the error that was told of last

    async def scrape(self) -> bytes:
        """The answer of a scrape."""
        async with self._looking:
            if time.monotonic() >= self._until_s:
                config = self._config
                found = metrics(await self._look(), most=config.most, partitions=config.partitions)
                self._text, self._until_s = text(found).encode(), time.monotonic() + FRESH_S
            return self._text

    async def answer(self, method: bytes, path: bytes) -> bytes:
        """The answer of a request."""
        if method not in (b"GET", b"HEAD"):
            return answer_of("405 Method Not Allowed", b"GET /metrics\n")
        if path.partition(b"?")[0] != b"/metrics":
            return answer_of("404 Not Found", b"the metrics are at /metrics\n")
        return answer_of("200 OK", await self.scrape(), CONTENT_TYPE, whole=method == b"GET")

    async def _look(self) -> Look:
        client, config = self._client, self._config
        here = {
            "now": datetime.now(UTC),
            "usage": usage(config.supervisor) if config.supervisor else {},
            "disk_free_bytes": shutil.disk_usage(config.data).free if config.data else None,
        }
        begun_s = time.monotonic()
        try:
            stats, topics = await client.stats(), await client.topics()
            groups, queues = await client.groups(), await client.queues()
        except (NotLeader, NoLeader):  # a member of a cluster, which knows of itself alone
            return Look(**here, took_s=time.monotonic() - begun_s, stats=await self._own_stats())
        except Error as error:
            self._tell(error)
            return Look(**here, took_s=time.monotonic() - begun_s)
        self._told = ""
        took_s = time.monotonic() - begun_s
        return Look(**here, took_s=took_s, stats=stats, topics=topics, groups=groups, queues=queues)

    def _tell(self, error: Error) -> None:
        """Why there are no metrics of the broker, once for each reason."""
        if error.code != self._told:
            self._told = error.code
            say(f"metrics lack what the broker counts: {error.message}")

    async def _own_stats(self) -> dict[str, Any] | None:
        config = self._config
        try:
            return await asyncio.to_thread(node_stats, config.url, config.timeout_s)
        except Error as error:
            self._tell(error)
            return None


def run(config: ExporterConfig, ready: Callable[[dict[str, Any]], None]) -> None:
    """See the module. Raises InvalidUrl, InsecureListen, AddressInUse, CannotListen."""
    config.addresses()
    asyncio.run(_serve(config, ready))


async def _serve(config: ExporterConfig, ready: Callable[[dict[str, Any]], None]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connection = open_connection(config.url, timeout=config.timeout_s, name="exporter", clock=time.monotonic)
    client = AsyncClient(AsyncDriver(connection))
    exporter = Exporter(client, config)
    listeners = Listeners(ScrapeDoor(exporter.answer).accept)
    try:
        bound = await listeners.open(config.addresses())
        calm_collector()
        ready({"event": "ready", "metrics": bound, "broker": config.url, "pids": {"exporter": os.getpid()}})
        await stop.wait()
    finally:
        listeners.close()
        await client.close()


def _beside(settings: str, say: Callable[[dict[str, Any]], None]) -> None:
    config = msgspec.json.decode(settings, type=ExporterConfig)
    run(msgspec.structs.replace(config, supervisor=os.getppid()), say)


if __name__ == "__main__":
    sys.exit(serve_beside("penstock.exporter", _beside))
