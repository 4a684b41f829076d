"""The bounds of a connection: what a slow, silent or excessive peer may do before it is cut off."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra gateway")
pytest.importorskip("httptools", reason="needs the extra gateway")

from penstock.gateway.connections import AllConnections, Connections
from penstock.gateway.http import connection as bounds
from penstock.gateway.http.connection import HttpConnection
from uvicorn.config import Config
from uvicorn.server import ServerState

from ..fakes import FakeTransport

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\n"


class Transport(FakeTransport):
    """Counts as closed once nothing more is written."""

    def write_eof(self) -> None:
        self.closed = True


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _never(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def connected(check: Callable[[HttpConnection, Transport], Awaitable[None]], app: Any = _answer) -> None:
    """Run a check over a connection to an application."""

    async def run() -> None:
        config = Config(app, http=HttpConnection, ws="none", lifespan="off", log_config=None, access_log=False)
        config.load()
        connection, transport = (
            HttpConnection(config, ServerState(), Connections(1, AllConnections(1), b"")),
            Transport(),
        )
        connection.connection_made(transport)
        await check(connection, transport)
        connection.connection_lost(None)
        await asyncio.gather(*connection.tasks)

    asyncio.run(run())


async def answered(transport: Transport, count: int = 1) -> None:
    while transport.out.count(b"HTTP/1.1") < count:
        await asyncio.sleep(0)


def due_within(connection: HttpConnection, seconds: float) -> bool:
    """Whether the peer has about so long, counted from now."""
    now = time.monotonic()
    return connection.overdue(now + seconds) and not connection.overdue(now + seconds / 2)


@pytest.mark.parametrize("app", [_answer, _never])
@pytest.mark.parametrize("error", [None, ConnectionResetError()])
def test_a_connection_that_is_closed_is_freed_without_the_collector(app: Any, error: Exception | None):
    async def run() -> None:
        config = Config(app, http=HttpConnection, ws="none", lifespan="off", log_config=None, access_log=False)
        config.load()
        connection = HttpConnection(config, ServerState(), Connections(1, AllConnections(1), b""))
        gone = weakref.ref(connection)
        connection.connection_made(Transport())
        connection.data_received((HEAD + b"content-length: 0\r\n\r\n") * 3 + HEAD)
        for _ in range(100):
            await asyncio.sleep(0)
        connection.connection_lost(error)
        tasks = [*connection.tasks]
        del connection
        await asyncio.gather(*tasks)
        del tasks
        for _ in range(3):  # what a loop still has to call
            await asyncio.sleep(0)
        assert gone() is None

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_a_peer_that_says_nothing_is_overdue():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        assert due_within(connection, bounds.HEAD_S)

    connected(check)


def test_the_head_has_a_time_from_its_first_byte():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"content-length: 0\r\n\r\n")
        await answered(transport)
        assert not connection.overdue(time.monotonic() + 1e6)  # idle: that has a time of its own
        connection.data_received(b"G")
        assert due_within(connection, bounds.HEAD_S)

    connected(check)


def test_the_body_has_a_time_and_the_answer_has_none():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"content-length: 2\r\n\r\na")
        assert due_within(connection, bounds.BODY_S)
        connection.data_received(b"b")
        assert not connection.overdue(time.monotonic() + 1e6)

    connected(check, _never)


def test_a_peer_that_does_not_read_is_overdue_until_it_does():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"content-length: 0\r\n\r\n")
        connection.pause_writing()
        assert due_within(connection, bounds.READ_S)
        connection.resume_writing()
        assert not connection.overdue(time.monotonic() + 1e6)

    connected(check, _never)


def test_a_peer_that_reads_late_has_no_more_time_for_its_body():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"content-length: 2\r\n\r\na")
        connection.pause_writing()
        assert due_within(connection, bounds.READ_S)
        connection.resume_writing()
        assert due_within(connection, bounds.BODY_S)
        connection._due = time.monotonic()
        assert connection.overdue(time.monotonic())
        connection.pause_writing()
        assert connection.overdue(time.monotonic())

    connected(check, _never)


def test_the_time_of_a_body_behind_another_request_begins_with_its_turn():
    asked, may_answer = list[None](), asyncio.Event()

    async def answer_later(scope: Any, receive: Any, send: Any) -> None:
        asked.append(None)
        if len(asked) == 1:
            await may_answer.wait()
        await _answer(scope, receive, send)

    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"content-length: 0\r\n\r\n" + HEAD + b"content-length: 2\r\n\r\na")
        assert not connection.overdue(time.monotonic() + 1e6)
        may_answer.set()
        await answered(transport)
        assert due_within(connection, bounds.BODY_S)
        connection.data_received(b"b")
        await answered(transport, 2)
        assert not connection.overdue(time.monotonic() + 1e6)

    connected(check, answer_later)


def refused(transport: Transport) -> tuple[int, str]:
    head, _, body = transport.out.rpartition(b"\r\n\r\n")
    assert transport.closed
    assert b"connection: close" in head
    return int(head.split()[1]), json.loads(body)["code"]


@pytest.mark.parametrize(
    "head",
    [
        [HEAD + b"a: " + b"x" * bounds.HEAD_BYTES_MAX + b"\r\n\r\n"],
        [HEAD] + [b"a: b\r\n" * 100] * 120,
        [b"GET /" + b"x" * 1000] + [b"x" * 1000] * 70,
        [HEAD + b"a: "] + [b"x" * 1000] * 70,
        [HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"] + [b"a: b\r\n" * 100] * 120,
        [HEAD + b"transfer-encoding: chunked\r\n\r\n"] + [b"1;x=" + b"y" * 1000] + [b"y" * 1000] * 70,
    ],
    ids=["one", "many", "path", "slowly", "trailers", "extension"],
)
def test_a_head_and_what_is_like_one_is_bounded(head):
    async def check(connection: HttpConnection, transport: Transport) -> None:
        for data in head:
            if not transport.is_closing():
                connection.data_received(data)
        assert refused(transport) in ((431, "head_too_large"), (400, "invalid_http"))

    connected(check, _never)


def test_a_body_is_no_head():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        size = 40 * bounds.HEAD_BYTES_MAX
        connection.data_received(HEAD + b"content-length: %d\r\n\r\n" % size)
        for _ in range(40):
            connection.data_received(b"x" * bounds.HEAD_BYTES_MAX)
        await answered(transport)
        assert not transport.is_closing()

    connected(check)


def test_small_parts_of_a_body_are_no_head():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(bounds.HEAD_BYTES_MAX // 6 * 2):
            connection.data_received(b"1\r\na\r\n")
        assert not transport.is_closing()

    connected(check)


def test_what_is_no_request_is_answered_once():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(b"*1\r\n$4\r\nPING\r\n")
        assert refused(transport) == (400, "invalid_http")

    connected(check)


def test_requests_that_wait_for_the_one_before_are_bounded():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received((HEAD + b"content-length: 0\r\n\r\n") * (bounds.PIPELINE_MAX + 1))
        assert not transport.aborted
        connection.data_received(HEAD + b"content-length: 0\r\n\r\n")
        assert transport.aborted

    connected(check, _never)


def test_a_request_that_runs_hears_that_its_client_left_also_when_others_wait_behind_it():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received((HEAD + b"content-length: 0\r\n\r\n") * 2)
        connection.connection_lost(None)
        await asyncio.gather(*connection.tasks)

    connected(check, _never)


def test_requests_in_a_row_are_answered_in_a_row():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received((HEAD + b"content-length: 0\r\n\r\n") * 5)
        await answered(transport, 5)
        assert not transport.is_closing()

    connected(check)


# -- strangers -------------------------------------------------------------------------------------------------


def strangers(check: Callable[[HttpConnection, Transport], Awaitable[None]]) -> None:
    """Run a check over a connection whose peer has to authenticate."""

    async def run() -> None:
        config = Config(_answer, http=HttpConnection, ws="none", lifespan="off", log_config=None, access_log=False)
        config.load()
        connections: Connections[HttpConnection] = Connections(5, AllConnections(5), b"", 1)
        connection, transport = HttpConnection(config, ServerState(), connections, stranger=True), Transport()
        connection.connection_made(transport)
        await check(connection, transport)
        connection.connection_lost(None)
        await asyncio.gather(*connection.tasks)

    asyncio.run(run())


def test_a_stranger_rests_for_a_shorter_time_than_one_that_has_authenticated():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connection.data_received(HEAD + b"content-length: 0\r\n\r\n")
        await answered(transport)
        assert due_within(connection, bounds.STRANGER_S)
        connection.data_received(b"POST")
        assert due_within(connection, bounds.HEAD_S)
        connection._due -= 5.0
        connection.data_received(b" /")
        assert due_within(connection, bounds.HEAD_S - 5.0)
        connection.data_received((HEAD + b"content-length: 0\r\n\r\n")[6:])
        connection.known()
        await answered(transport, 2)
        assert connection._due == bounds.NEVER

    strangers(check)


def test_strangers_have_a_number_and_the_oldest_makes_room():
    async def check(connection: HttpConnection, transport: Transport) -> None:
        connections, config, state = connection._connections, connection.config, connection.server_state
        second, other = HttpConnection(config, state, connections, stranger=True), Transport()
        second.connection_made(other)
        assert (transport.aborted, other.aborted) == (True, False)
        second.known()
        third, last = HttpConnection(config, state, connections, stranger=True), Transport()
        third.connection_made(last)
        assert (other.aborted, last.aborted) == (False, False)
        third.connection_lost(None)
        fourth, one_more = HttpConnection(config, state, connections, stranger=True), Transport()
        fourth.connection_made(one_more)
        assert not one_more.aborted
        for each in (second, fourth):
            each.connection_lost(None)
        assert len(connections) == 1

    strangers(check)
