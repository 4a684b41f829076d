"""etcd: three servers of Debian's package (3.4), and aetcd over TCP. Each put is fsynced by a majority: `durable`.

Its client puts one value a request. Requests of a window are coroutines of one loop, which is its fastest way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from . import servers
from .cluster import Cluster, Puts, in_window

SERVERS = 3
WINDOW = 200


class Etcd(Cluster):
    """See the module."""

    name = "etcd"
    durability = "durable"
    chunk = 2_000

    def absent(self) -> str:
        return servers.absence("etcd", "aetcd")

    @contextmanager
    def serve(self, directory: Path) -> Iterator[str]:
        ports = [servers.free_port() for _ in range(2 * SERVERS)]
        clients = [f"http://{servers.LOOPBACK}:{port}" for port in ports[:SERVERS]]
        peers = [f"http://{servers.LOOPBACK}:{port}" for port in ports[SERVERS:]]
        members = ",".join(f"n{number}={peer}" for number, peer in enumerate(peers))
        with ExitStack() as stack:
            for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
                command = [
                    servers.program("etcd"), "--name", f"n{number}", "--data-dir", str(directory / f"n{number}"),
                    "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                    "--initial-advertise-peer-urls", peer, "--initial-cluster", members, "--logger", "zap",
                ]  # fmt: skip
                stack.enter_context(servers.running(command, directory / f"etcd-{number}.log", [ports[number]]))
            with _connected(ports[0]) as (runner, client):
                servers.wait_until(lambda: runner.run(_is_led(client)), "etcd has a leader")
            yield str(ports[0])

    @contextmanager
    def client(self, address: str) -> Iterator[Puts]:
        with _connected(int(address)) as (runner, client):
            loop = runner.get_loop()

            def many(values: Sequence[bytes], window: int) -> None:
                loop.run_until_complete(in_window(partial(client.put, b"key"), values, window))

            yield Puts(
                lambda value: loop.run_until_complete(client.put(b"key", value)), many,
                lambda values: many(values, WINDOW),
            )  # fmt: skip


@contextmanager
def _connected(port: int) -> Iterator[tuple[asyncio.Runner, Any]]:
    import aetcd

    with asyncio.Runner() as runner:

        async def connect() -> Any:
            return aetcd.Client(servers.LOOPBACK, port, timeout=int(servers.PATIENCE_S))

        client = runner.run(connect())
        try:
            yield runner, client
        finally:
            runner.run(client.close())


async def _is_led(client: Any) -> bool:
    import aetcd

    try:
        await client.put(b"ready", b"")
    except aetcd.ClientError:
        return False
    return True


REPLICATED = Etcd()
