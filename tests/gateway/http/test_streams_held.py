"""What streams of events wait to write is within the bound over all that clients make the gateway hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

from penstock.gateway.holding import HeldBytes
from penstock.gateway.http.app import HttpPath
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.operation import CONNECTION, HttpCall, HttpGateway, Streamed
from penstock.gateway.http.streaming import OPERATIONS
from penstock.gateway.refused import RefusedCounts

from .test_connection import Transport, connected

PART = 100_000
MOST = 1 << 20


def streaming(held: HeldBytes) -> Any:
    """An application that streams parts for as long as its client is there."""

    async def parts() -> AsyncGenerator[bytes, None]:
        for _ in range(4):
            yield bytes(PART)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        door = cast("HttpGateway", SimpleNamespace(users=None))
        path = HttpPath(door, held, OPERATIONS[:1], 0, RefusedCounts())
        call = cast("HttpCall", None)
        await path._stream(Streamed(parts(), "text/event-stream"), call, scope[CONNECTION], send, b"1")

    return app


def unread(connection: HttpConnection, transport: Transport) -> None:
    """Have a socket whose peer reads nothing."""
    write = transport.write

    def keep(data: bytes) -> None:
        write(data)
        transport.get_write_buffer_size = lambda: len(transport.out)
        if not connection.flow.write_paused and len(transport.out) > PART:
            connection.pause_writing()

    transport.write = keep


async def waiting_to_write(connection: HttpConnection, held: HeldBytes) -> None:
    """Wait until the stream holds two parts, or ended with an error."""
    await asyncio.sleep(0)
    while held._left > MOST - 2 * PART and connection.tasks:
        await asyncio.sleep(0)


def test_what_a_client_does_not_read_is_held_and_given_back_as_it_reads():
    held = HeldBytes(MOST)

    async def check(connection: HttpConnection, transport: Transport) -> None:
        unread(connection, transport)
        connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await waiting_to_write(connection, held)
        assert held._left == MOST - len(transport.out) - PART  # the second part waits
        transport.get_write_buffer_size = lambda: 0
        held.look()
        assert held._left == MOST - PART
        transport.write = Transport().write
        connection.resume_writing()
        await asyncio.gather(*connection.tasks)
        assert held._left == MOST

    connected(check, streaming(held))


def test_the_stream_that_holds_the_most_is_cut_off_and_the_log_says_why(caplog):
    held = HeldBytes(MOST)

    async def check(connection: HttpConnection, transport: Transport) -> None:
        unread(connection, transport)
        connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await waiting_to_write(connection, held)
        assert held.take(MOST - PART)
        assert transport.aborted
        connection.connection_lost(None)
        await asyncio.gather(*connection.tasks)
        held.give(MOST - PART)
        assert held._left == MOST

    connected(check, streaming(held))
    (line,) = caplog.messages
    assert line.startswith("cut off unix: the gateway holds as many bytes of its clients as it may, and its stream")


def test_a_stream_waits_while_its_user_owes():
    said: list[str] = []
    debts = iter((0.0, 2.5, 0.0))

    class Call:
        async def wait(self, waiting: Any) -> None:
            waiting.close()
            said.append("waits")

    async def parts() -> AsyncGenerator[bytes, None]:
        for number in range(3):
            yield b"%d" % number

    async def send(event: Any) -> None:
        said.append(event.get("body", b"").decode())

    async def run() -> None:
        took = SimpleNamespace(took=lambda call, size: SimpleNamespace(debt_s=lambda now_s: next(debts)))
        door = cast("HttpGateway", SimpleNamespace(users=took))
        path = HttpPath(door, HeldBytes(MOST), OPERATIONS[:1], 0, RefusedCounts())
        connection = cast("HttpConnection", SimpleNamespace(part_bytes=0, held=lambda: 0))
        await path._stream(Streamed(parts(), "text/event-stream"), cast("HttpCall", Call()), connection, send, b"1")

    asyncio.run(run())
    assert said == ["", "0", "1", "waits", "2", ""]
