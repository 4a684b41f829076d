"""NATS JetStream with three servers and streams of three replicas: nats-server 2.15, nats-py, over TCP.

Durability: `durable`. With `sync_interval: always` each message is synced before it is acknowledged. Debian's server
(2.9) has no such setting, so perf/install-peers builds this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..lab.installed import peers_directory
from . import servers
from .cluster import Cluster, Puts, in_window

SERVER = str(peers_directory() / "nats-2.15.2" / "nats-server")
SERVERS = 3
SUBJECT = "values"
WINDOW = 500
CONFIGURATION = """
server_name: n{number}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{directory}/n{number}", sync_interval: always }}
cluster {{ name: lab, listen: "127.0.0.1:{peer}", routes: [{routes}] }}
"""


class NatsCluster(Cluster):
    """See the module."""

    name = "NATS JetStream, 3 replicas"
    durability = "durable"
    chunk = 5_000

    def absent(self) -> str:
        return servers.absence(SERVER, "nats")

    @contextmanager
    def serve(self, directory: Path) -> Iterator[str]:
        ports = [servers.free_port() for _ in range(2 * SERVERS)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[SERVERS:])
        with ExitStack() as stack:
            for number in range(SERVERS):
                path = directory / f"nats-{number}.conf"
                path.write_text(
                    CONFIGURATION.format(
                        number=number, port=ports[number], peer=ports[SERVERS + number], routes=routes,
                        directory=directory,
                    )
                )  # fmt: skip
                command = [SERVER, "--config", str(path)]
                stack.enter_context(servers.running(command, directory / f"nats-{number}.log", [ports[number]]))
            address = f"nats://{servers.LOOPBACK}:{ports[0]}"
            with _connected(address) as (runner, client):
                servers.wait_until(lambda: runner.run(_has_stream(client)), "NATS has made a stream")
            yield address

    @contextmanager
    def client(self, address: str) -> Iterator[Puts]:
        with _connected(address) as (runner, client):
            loop, stream = runner.get_loop(), client.jetstream()

            def many(values: Sequence[bytes], window: int) -> None:
                publish = partial(stream.publish, SUBJECT, timeout=servers.PATIENCE_S)
                loop.run_until_complete(in_window(publish, values, window))

            yield Puts(
                lambda value: loop.run_until_complete(stream.publish(SUBJECT, value)), many,
                lambda values: many(values, WINDOW),
            )  # fmt: skip


@contextmanager
def _connected(address: str) -> Iterator[tuple[asyncio.Runner, Any]]:
    import nats

    with asyncio.Runner() as runner:
        client = runner.run(nats.connect(address))
        try:
            yield runner, client
        finally:
            runner.run(client.close())


async def _has_stream(client: Any) -> bool:
    from nats.js.api import StorageType, StreamConfig
    from nats.js.errors import APIError

    configuration = StreamConfig(name=SUBJECT, subjects=[SUBJECT], storage=StorageType.FILE, num_replicas=SERVERS)
    try:
        await client.jetstream(timeout=1.0).add_stream(configuration)
    except (APIError, TimeoutError):
        return False  # until its servers have met
    return True


REPLICATED = NatsCluster()
