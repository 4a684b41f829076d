"""Connections before the handshake of TLS is over: bounded, and handed to the door with whatever came with its end."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from penstock.gateway import handshakes as module
from penstock.gateway.connections import AllConnections, Connections
from penstock.gateway.handshakes import Handshakes, SecureListener
from penstock.gateway.listening import Listeners
from penstock.gateway.tls import server_context
from penstock.transport.url import parse

from .conftest import NEEDS

WAIT_S = 20.0


class Echo(asyncio.Protocol):
    """Says what it hears."""

    def __init__(self, connections: Connections[Any]) -> None:
        self._connections = connections

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.closed(self)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Door:
    """A door over TLS in this process, and peers of it."""

    def __init__(self, certificate: tuple[str, str], most: int) -> None:
        self.every = AllConnections(1000)
        self.connections: Connections[Any] = Connections(1000, self.every, b"full")
        self._listeners = Listeners(
            lambda: self.connections.accept(lambda: Echo(self.connections)), self.every, server_context(*certificate),
            handshakes=most,
        )  # fmt: skip
        self._client = ssl.create_default_context(cafile=certificate[0])
        self.port = 0

    async def open(self) -> None:
        bound = await self._listeners.open([parse("tls://127.0.0.1:0", schemes=("tls",))])
        self.port = int(bound[0].rpartition(":")[2])

    def close(self) -> None:
        self._listeners.close()

    async def silent(self) -> socket.socket:
        """A peer that begins no handshake."""
        peer = socket.create_connection(("127.0.0.1", self.port))
        peer.setblocking(False)
        before = self.counts()
        while self.counts() == before:
            await asyncio.sleep(0)
        return peer

    async def empty(self) -> None:
        """Wait until none is left, neither in its handshake nor open."""
        while self.every.count:
            await asyncio.sleep(0)

    def counts(self) -> tuple[int, int]:
        return self.every.count, self.every.refused.by_reason()["connections"]

    async def echoed(self, said: bytes) -> bytes:
        """What comes back to a peer that sends something together with the end of its handshake."""
        to_us, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._client.wrap_bio(to_us, to_server, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(to_server.read())
                to_us.write(await reader.read(1 << 16))
        tls.write(said)
        writer.write(to_server.read())
        found = b""
        while len(found) < len(said):
            try:
                found += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                to_us.write(await reader.read(1 << 16))
        writer.close()
        return found


@pytest.fixture(params=["asyncio", "uvloop"])
def running(request: pytest.FixtureRequest, certificate: tuple[str, str]) -> Callable[..., None]:
    """Runs a test at a door, on each loop that doors have."""
    factory = None if request.param == "asyncio" else pytest.importorskip("uvloop", reason=NEEDS).new_event_loop

    def run(test: Callable[[Door], Awaitable[None]], most: int = 100) -> None:
        async def with_door() -> None:
            door = Door(certificate, most)
            await door.open()
            try:
                async with asyncio.timeout(WAIT_S):
                    await test(door)
            finally:
                door.close()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(with_door())

    return run


async def ended(peer: socket.socket) -> bool:
    """Whether a peer was cut off, once it was."""
    try:
        found = await asyncio.get_running_loop().sock_recv(peer, 100)
    except ConnectionResetError:
        found = b""
    peer.close()
    return found == b""


def stays(peer: socket.socket) -> bool:
    with pytest.raises(BlockingIOError):
        peer.recv(100)
    return True


def test_what_comes_with_the_end_of_the_handshake_is_heard(running):
    async def test(door: Door) -> None:
        assert await door.echoed(b"early") == b"early"
        assert await door.echoed(b"x" * 100_000) == b"x" * 100_000

    running(test)


def test_one_too_many_takes_the_place_of_the_oldest_and_others_get_through(running):
    async def test(door: Door) -> None:
        peers = [await door.silent() for _ in range(3)]
        assert await ended(peers[0])
        assert [stays(peer) for peer in peers[1:]] == [True, True]
        assert door.counts() == (2, 1)
        assert await door.echoed(b"served") == b"served"
        assert await ended(peers[1])
        assert stays(peers[2])
        peers[2].close()

    running(test, 2)


def test_those_in_a_handshake_have_as_many_places_as_there_are_descriptors_for(running):
    async def test(door: Door) -> None:
        door.every.most = 2
        peers = [await door.silent() for _ in range(3)]
        assert await ended(peers[0])
        assert door.counts()[0] <= 2
        for peer in peers[1:]:
            peer.close()
        await door.empty()

    running(test)


def test_what_is_no_handshake_and_what_takes_too_long_counts(running, monkeypatch):
    async def test(door: Door) -> None:
        noise = await door.silent()
        noise.send(b"no hello at all")
        while await asyncio.get_running_loop().sock_recv(noise, 100):
            pass
        noise.close()
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.05)
        assert await ended(await door.silent())
        counted = door.every.refused.by_reason()
        assert (counted["slow"], counted["protocol"], counted["connections"]) == (1, 1, 0)
        await door.empty()

    running(test)


def test_a_door_that_closes_drops_them(running):
    async def test(door: Door) -> None:
        peer = await door.silent()
        door.close()
        assert await ended(peer)

    running(test)


def test_one_that_is_dropped_before_it_began_is_closed(certificate):
    async def run() -> None:
        context = server_context(*certificate)
        assert context is not None
        waiting = Handshakes(context, asyncio.Protocol, AllConnections(9), 1)
        pairs = [socket.socketpair() for _ in range(2)]
        for _, ours in pairs:
            waiting.begin(ours)
        assert len(waiting) == 1
        assert pairs[0][0].recv(100) == b""
        waiting.close()
        assert len(waiting) == 0
        await asyncio.sleep(0)
        for theirs, ours in pairs:
            theirs.close()
            ours.close()

    asyncio.run(run())


class Short:
    """A listening socket for whose first connection there is no descriptor."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.tried = 0
        for name in ("fileno", "setblocking", "close", "getsockname"):
            setattr(self, name, getattr(self._socket, name))

    def accept(self) -> tuple[socket.socket, Any]:
        self.tried += 1
        if self.tried == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._socket.accept()


def test_without_a_descriptor_it_is_tried_again_after_a_while(certificate, monkeypatch, caplog):
    monkeypatch.setattr(module, "PAUSE_S", 0.01)

    async def run() -> None:
        context = server_context(*certificate)
        assert context is not None
        waiting = Handshakes(context, asyncio.Protocol, AllConnections(9))
        short: Any = Short()
        listener = SecureListener(short, waiting)
        with socket.create_connection(short.getsockname()):
            async with asyncio.timeout(WAIT_S):
                while not len(waiting):
                    await asyncio.sleep(0)
        waiting.close()
        listener.close()
        listener.close()
        await asyncio.sleep(0)
        assert short.tried == 3, "none, one, and no other"

    asyncio.run(run())
    assert caplog.messages == ["no connection can be accepted: Too many open files"]
