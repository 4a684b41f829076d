"""The HTTP door of the gateway: appending, and requests that wait.

The limit is the same server without penstock: uvicorn with httptools on uvloop, whose application reads the body and
answers. Gateway, broker, keeper and the loop that sends requests share the machine.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import penstock

from ..lab.harness import Lab
from ..lab.rows import Row
from ..load.http_loop import Connection, rate, request
from ..systems.broker import START, serve

CONNECTIONS, BULK_CONNECTIONS = 50, 8
SECONDS = 2.0
LINES = 1_000
WAITING = 1_000
PATH = "/api/v1/queues/http/messages"
ONE = json.dumps({"value": "x" * 100}).encode()
BARE = "uvicorn alone"

_BARE = """
import asyncio, socket, uvicorn
async def app(scope, receive, send):
    while (await receive()).get("more_body"): pass
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"57")]})
    await send({"type": "http.response.body", "body": b"x" * 57})
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
config = uvicorn.Config(app, http="httptools", loop="uvloop", ws="none", lifespan="off", access_log=False)
uvicorn.Server(config).run(sockets=[listening])
"""


def rows(lab: Lab) -> Iterator[Row]:
    with lab.place() as place, serve(place) as broker, _gateway(broker.url) as (port, _), _bare() as bare:
        with penstock.connect(broker.url) as client:
            client.create_topic("http")
        for name, connections, media_type, body, count, goal in (
            ("a message a request", CONNECTIONS, "application/json", ONE, 1, 5_000.0),
            ("NDJSON by the thousand", BULK_CONNECTIONS, "application/x-ndjson", b"\n".join([ONE] * LINES), LINES, 4e5),
            ("lines by the thousand", BULK_CONNECTIONS, "text/plain", b"\n".join([b"x" * 100] * LINES), LINES, None),
        ):

            def sample(at: int, connections=connections, media_type=media_type, body=body, count=count) -> float:
                return count * rate(at, connections, SECONDS, PATH, media_type, body)

            yield Row(
                f"http: {name}, {connections} connections", "messages/s", lambda sample=sample: sample(port), goal=goal,
                limits={BARE: lambda sample=sample: sample(bare)}, durability="durable",
            )  # fmt: skip
        yield Row(
            f"http: memory of the gateway with {WAITING:,} waiting requests", "MiB", lambda: _waiting(broker.url),
            more_is_better=False, goal=100.0,
        )  # fmt: skip


@contextmanager
def _gateway(url: str) -> Iterator[tuple[int, int]]:
    """A gateway of this broker: its port and process."""
    command = [sys.executable, "-c", START, "gateway", "--json", "--url", url, "--http", "tcp://127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            ready = json.loads(process.stdout.readline())
            yield int(ready["http"][0].rpartition(":")[2]), process.pid
        finally:
            process.terminate()


@contextmanager
def _bare() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _waiting(url: str) -> float:
    """Memory of a gateway while requests wait for a message that comes after that."""
    with _gateway(url) as (port, pid), ExitStack() as peers:
        own = Connection(port, request("POST", PATH.replace("http", "waiting", 1), "application/json", ONE))
        own.ask()
        while not own.answered():
            pass
        path = "/api/v1/queues/waiting/messages?timeout_ms=60000&offset="
        end = int(json.loads(own.body)["runs"][0]["offset"]) + 1
        asked = f"GET {path}{end} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        for _ in range(WAITING):
            peers.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(asked)
        time.sleep(2.0)  # all of them wait
        status = Path(f"/proc/{pid}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
