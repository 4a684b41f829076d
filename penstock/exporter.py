"""The exporter: metrics of a broker for Prometheus, on a listener of its own.

Idea: a process beside the broker and its client, so that making text of a thousand series takes no time from other
clients. It asks when it is asked, at most once a second however many scrape. Where there are users, a scraper is one of
them, as at the gateway: it needs to see the node, and is shown the topics, groups and queues that it may see.

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
from .broker.errors import NoLeader, NotLeader, Overloaded
from .broker.exposure import need_closed
from .broker.processes import usage
from .broker.rights import ANYONE, NODE, Principal, authorize
from .broker.system import calm_collector, set_file_limit
from .clients.aio.client import AsyncClient
from .clients.aio.driver import AsyncDriver
from .clients.cluster import node_stats
from .clients.opening import open_connection
from .gateway.connections import AllConnections
from .gateway.errors import InvalidCertificate
from .gateway.exposition import CONTENT_TYPE, text
from .gateway.http.authenticating import CHALLENGE, principal_of
from .gateway.http.problems import Refusal
from .gateway.listening import Listeners
from .gateway.refused import RefusedCounts
from .gateway.tls import Certificate
from .gateway.users import Users
from .metrics import Look, metrics
from .scrape_door import ScrapeDoor, ScrapeRequest, answer_of
from .storage.errors import Error
from .transport.url import DOOR_SCHEMES, Url, parse

FRESH_S = 1.0
_STATUS = {401: "401 Unauthorized", 403: "403 Forbidden", 429: "429 Too Many Requests"}
FILES = 1024
"""Descriptors, of which connections (ScrapeDoor) and handshakes of TLS take a part."""

HANDSHAKES = 500
"""Peers that have yet to finish the handshake of TLS, each of which takes 50 KiB."""

TEXTS = 8
"""Answers that are kept so long: one for each user that scrapes, of that many at once."""


class ExporterConfig(Struct, frozen=True, kw_only=True):
    """Settings of one exporter."""

    url: str  # of the broker
    metrics: tuple[str, ...]  # unix://, tcp:// and tls:// addresses to listen on
    users: str = ""  # the users file; "" lets anyone scrape
    grants: bool = False  # users may see what the file grants them, not everything
    tls_certificate: str = ""  # of tls:// addresses; PEM files
    tls_key: str = ""
    partitions: bool = False  # series of each partition too
    most: int = 1000  # topics, groups and queues that have series
    insecure: bool = False  # allow addresses that other machines can reach, without users
    timeout_s: float = 5.0  # for the broker to answer
    supervisor: int = 0  # whose children are the broker's processes; 0: elsewhere
    data: str = ""  # the broker's directory, if it is on this machine

    def addresses(self) -> list[Url]:
        """The addresses to listen on. Raises InvalidUrl, InsecureListen, InvalidCertificate."""
        found = [parse(address, schemes=DOOR_SCHEMES) for address in self.metrics]
        for url in found:
            need_closed(
                url, guarded=bool(self.users), insecure=self.insecure, way_out="name users (--access)",
                about="and metrics name topics and groups",
            )  # fmt: skip
            if url.scheme == "tls" and not self.tls_certificate:
                raise InvalidCertificate(f"{url} needs a certificate: set tls_certificate and tls_key")
        return found

    def to_json(self) -> str:
        """The settings as one argument of a command."""
        return msgspec.json.encode(self).decode()


class Exporter:
    """Looks at a broker, and keeps what it saw for `FRESH_S`."""

    def __init__(
        self, client: AsyncClient, config: ExporterConfig, users: Users | None = None,
        refused: RefusedCounts | None = None,
    ) -> None:  # fmt: skip
        """`refused`: of the gateway, where there is one beside the broker."""
        self._client = client
        self._refused = refused
        self._config = config
        self._users = users
        self._looking = asyncio.Lock()
        self._seen = Look(now=datetime.now(UTC), took_s=0.0)
        self._texts: dict[str, bytes] = {}  # by what its reader has proved to be
        self._until_s = 0.0
        self._told = ""  # the code of the error that was told of last

    async def scrape(self, reader: Principal = ANYONE) -> bytes:
        """The answer of a scrape."""
        async with self._looking:
            if time.monotonic() >= self._until_s:
                self._seen = await self._look()
                self._until_s = time.monotonic() + FRESH_S
                self._texts.clear()
            found = self._texts.get(reader.proof)
            if found is None:
                config = self._config
                shown = metrics(visible(self._seen, reader), most=config.most, partitions=config.partitions)
                if len(self._texts) >= TEXTS:
                    self._texts.clear()
                found = self._texts[reader.proof] = text(shown).encode()
            return found

    async def answer(self, request: ScrapeRequest) -> bytes:
        """The answer of a request."""
        if request.method not in (b"GET", b"HEAD"):
            return answer_of("405 Method Not Allowed", b"GET /metrics\n")
        if request.path.partition(b"?")[0] != b"/metrics":
            return answer_of("404 Not Found", b"the metrics are at /metrics\n")
        try:
            reader = await self._reader(request)
        except Refusal as refused:
            header = CHALLENGE if refused.status == 401 else None
            return answer_of(_STATUS[refused.status], f"{refused.problem.message}\n".encode(), header=header)
        return answer_of("200 OK", await self.scrape(reader), CONTENT_TYPE, whole=request.method == b"GET")

    async def _reader(self, request: ScrapeRequest) -> Principal:
        """The user that asks. Raises Refusal unless it may see the broker's figures."""
        try:
            reader = await principal_of(self._users, request.headers, request.source)
        except Overloaded as error:  # too many wrong passwords
            raise Refusal(429, error.code, error.message) from None
        if self._users is not None and not authorize(reader, "see", NODE):
            raise Refusal(403, "forbidden", self._users.forbid(reader, "see", NODE))
        return reader

    async def _look(self) -> Look:
        client, config = self._client, self._config
        here = {
            "now": datetime.now(UTC),
            "usage": usage(config.supervisor) if config.supervisor else {},
            "disk_free_bytes": _free_bytes(config.data),
            "refused": {} if self._refused is None else self._refused.by_reason(),
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


def _free_bytes(data: str) -> int | None:
    """None where that is not known: no directory, or one that is gone."""
    try:
        return shutil.disk_usage(data).free if data else None
    except OSError:
        return None


def visible(look: Look, reader: Principal) -> Look:
    """What a user may see of a look. Pure."""
    groups = [each for each in look.groups if authorize(reader, "see", f"group:{each.topic}/{each.name}")]
    queues = [each for each in look.queues if authorize(reader, "see", f"group:{each.topic}/{each.name}")]
    topics = [each for each in look.topics if authorize(reader, "see", f"topic:{each.name}")]
    return msgspec.structs.replace(look, topics=topics, groups=groups, queues=queues)


def run(config: ExporterConfig, ready: Callable[[dict[str, Any]], None], page: int = -1) -> None:
    """See the module; `page` is where the gateway counts.

    Raises InvalidUrl, InsecureListen, InvalidUsers, InvalidCertificate, AddressInUse ...
    """
    config.addresses()
    users = Users.load(config.users, enforced=config.grants) if config.users else None
    refused = RefusedCounts(page) if page >= 0 else None
    asyncio.run(_serve(config, users, Certificate(config.tls_certificate, config.tls_key), refused, ready))


async def _serve(
    config: ExporterConfig, users: Users | None, certificate: Certificate, refused: RefusedCounts | None,
    ready: Callable[[dict[str, Any]], None],
) -> None:  # fmt: skip
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    set_file_limit(FILES)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connection = open_connection(config.url, timeout=config.timeout_s, name="exporter", clock=time.monotonic)
    client = AsyncClient(AsyncDriver(connection))
    exporter = Exporter(client, config, users, refused)
    door, tls = ScrapeDoor(exporter.answer), certificate.context("http/1.1")
    listeners = Listeners(door.accept, AllConnections(FILES), tls, handshakes=HANDSHAKES)
    following = loop.create_task(certificate.follow())
    try:
        bound = await listeners.open(config.addresses())
        calm_collector()
        ready({"event": "ready", "metrics": bound, "broker": config.url, "pids": {"exporter": os.getpid()}})
        await stop.wait()
    finally:
        following.cancel()
        listeners.close()
        await client.close()


def _beside(settings: str, say: Callable[[dict[str, Any]], None], page: int) -> None:
    config = msgspec.json.decode(settings, type=ExporterConfig)
    run(msgspec.structs.replace(config, supervisor=os.getppid()), say, page)


if __name__ == "__main__":
    sys.exit(serve_beside("penstock.exporter", _beside))
