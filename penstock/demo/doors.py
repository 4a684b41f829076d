"""The doors part of the demo: redis-py and curl read every flight through the gateway.

Idea: two processes, one for each door. They report as the consumers of the stream part do, so the same check judges
what Redis and HTTP clients are given, record by record.
Contract: where there is no curl, Python's own HTTP client asks for the same addresses.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from ..storage.errors import MissingLibrary, way_to_install
from ..storage.record import NO_HEADERS, Record
from . import report
from .broker import Broker
from .display import Display
from .listening import all_done, listen
from .report import Seen
from .roles import Conductor, Go, Role, RoleDone
from .stream import PARTITIONS, Measured
from .tally import Tally

MOST = 10_000
"""Records of one request."""

LIBRARIES = ("hiredis", "httptools", "jinja2", "redis", "starlette", "uvicorn", "uvloop")

Pages = Iterator[list[Record]]


def check() -> None:
    """Raises MissingLibrary where the gateway or redis-py could not run."""
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise MissingLibrary(f"the demo needs {name}, which is not installed: {way_to_install('demo')}")


class DoorRoles:
    """The processes of this part. Making it forks them: before any thread, socket or ZeroMQ context."""

    def __init__(self, flights: int, reports: Path, siblings: Sequence[Role]) -> None:
        self._flights = flights
        self._reports = reports
        self.redis = Role("redis-py", partial(follow, redis_pages), siblings)
        self.http = Role(http_client(), partial(follow, http_pages), [*siblings, self.redis])
        self.roles = [self.redis, self.http]

    def run(self, broker: Broker, topic: str, display: Display) -> list[Measured]:
        """Have both read the topic, one after the other. Their reports can then be read."""
        doors = [("RESP", self.redis, broker.resp), ("HTTP", self.http, broker.http)]
        for command in commands(broker.resp, broker.http, topic, MOST):
            display.say(command)
        for door, role, url in doors:
            display.phase(door, f"{role.name} over {door}", self._flights, [role])
            role.tell(Go(url, topic, self._flights, report=str(self._report(role))))
            listen([role], display, lambda role=role: all_done([role]))
        return [Measured(f"read by {role.name}", role.records, role.seconds) for role in self.roles]

    def reports(self) -> dict[str, Seen]:
        """What each client saw, by its name."""
        return {role.name: report.load(self._report(role)) for role in self.roles}

    def close(self) -> None:
        """Leave no process behind."""
        for role in self.roles:
            role.end()

    def _report(self, role: Role) -> Path:
        return self._reports / role.name


def commands(resp: str, http: str, topic: str, most: int) -> list[str]:
    """What a person would type for the first records, with the addresses of the doors."""
    host, _, port = resp.removeprefix("tcp://").rpartition(":")
    return [
        f"redis-cli -h {host} -p {port} XRANGE {topic}:0 - + COUNT {most}",
        f"curl '{_address(http, topic, 0, 0, most)}'",
    ]


# -- in the roles -----------------------------------------------------------------------------------


def follow(pages: Callable[[str, str], Pages], conductor: Conductor) -> None:
    """Read the topic when told to go, then write the report."""
    order = conductor.wait_for_go()
    if order is None:
        return
    tally, started = Tally(), time.perf_counter()
    for records in pages(order.url, order.topic):
        tally.add(records)
        conductor.progress(len(tally))
    seconds = time.perf_counter() - started
    report.save(Seen(tally.totals, tally.trace), Path(order.report))
    conductor.say(RoleDone(len(tally), seconds))


def redis_pages(url: str, topic: str) -> Pages:
    """All entries of the topic's streams, by XRANGE."""
    import redis

    with redis.Redis.from_url(url.replace("tcp", "redis", 1)) as client:
        for number in range(PARTITIONS):
            place = b"-"
            while entries := _entries(client, f"{topic}:{number}", place):
                place = b"(" + entries[-1][0]
                yield [
                    Record(fields[b"value"], fields[b"key"], NO_HEADERS, int(name.rpartition(b"-")[2]), 0, number)
                    for name, fields in entries
                ]


def _entries(client: Any, stream: str, place: bytes) -> list[tuple[bytes, dict[bytes, bytes]]]:
    return client.xrange(stream, place, "+", count=MOST)


class _Message(msgspec.Struct):
    value: str
    offset: int
    key: str


class _Messages(msgspec.Struct):
    messages: list[_Message]


def http_pages(url: str, topic: str) -> Pages:
    """All messages of the topic's partitions, by GET."""
    decode = msgspec.json.Decoder(_Messages).decode
    for number in range(PARTITIONS):
        offset = 0
        while messages := decode(_get(_address(url, topic, number, offset, MOST))).messages:
            offset = messages[-1].offset + 1
            yield [
                Record(each.value.encode(), each.key.encode(), NO_HEADERS, each.offset, 0, number) for each in messages
            ]


def _address(url: str, topic: str, partition: int, offset: int, most: int) -> str:
    asked = f"partition={partition}&offset={offset}&max_messages={most}"
    return f"{url.replace('tcp', 'http', 1)}/api/v1/queues/{topic}/messages?{asked}"


def http_client() -> str:
    """The name of the client that asks over HTTP."""
    return "curl" if shutil.which("curl") else "urllib"


def _get(address: str) -> bytes:
    if http_client() == "curl":
        return subprocess.run(["curl", "-sS", "--fail", address], stdout=subprocess.PIPE, check=True).stdout
    with urlopen(address) as answer:
        return answer.read()
