"""The exporter's connections: a new peer always has a place, and takes it from the address that holds most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from penstock import scrape_door
from penstock.scrape_door import ANSWERS, CONNECTIONS, REQUEST_BYTES, Scrape, ScrapeDoor, ScrapeRequest, answer_of

ASK = b"GET /metrics HTTP/1.1\r\n\r\n"


class Socket:
    """Of a peer that reads nothing."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.written = b""
        self.cut = False

    def get_extra_info(self, name: str) -> Any:
        assert name == "peername"
        return self.peer

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self.cut = True


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture
def door(loop: asyncio.AbstractEventLoop) -> ScrapeDoor:
    async def answer(request: ScrapeRequest) -> bytes:
        return b"metrics"

    return ScrapeDoor(answer)


def connect(loop: asyncio.AbstractEventLoop, door: ScrapeDoor, address: str, data: bytes = b"") -> Socket:
    """A connection that has sent this, and reads nothing."""
    socket = Socket((address, 5) if address else "")

    async def begin() -> None:
        scrape: Scrape = door.accept()
        scrape.connection_made(socket)
        if data and not socket.cut:
            scrape.data_received(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    return socket


def cut(sockets: list[Socket]) -> list[int]:
    return [number for number, each in enumerate(sockets) if each.cut]


def test_a_flood_of_one_address_loses_its_own_oldest(loop, door):
    other = connect(loop, door, "10.0.0.2")
    flood = [connect(loop, door, "10.0.0.1") for _ in range(CONNECTIONS + 4)]
    assert cut(flood) == [0, 1, 2, 3, 4]
    scraper = connect(loop, door, "10.0.0.3", ASK)
    assert (other.cut, scraper.cut, scraper.written) == (False, False, b"metrics")
    assert cut(flood) == [0, 1, 2, 3, 4, 5]


def test_peers_of_unix_sockets_count_as_one_address(loop, door):
    local = [connect(loop, door, "") for _ in range(CONNECTIONS)]
    assert connect(loop, door, "10.0.0.3", ASK).written == b"metrics"
    assert cut(local) == [0]


def test_where_each_address_holds_one_the_oldest_goes(loop, door):
    many = [connect(loop, door, f"10.0.{number >> 8}.{number & 255}") for number in range(CONNECTIONS)]
    assert cut(many) == []
    connect(loop, door, "10.9.9.9")
    assert cut(many) == [0]


def test_answers_that_are_not_read_have_a_bound_of_their_own(loop, door):
    slow = [connect(loop, door, "10.0.0.1", ASK) for _ in range(ANSWERS)]
    assert cut(slow) == []
    scraper = connect(loop, door, "10.0.0.2", ASK)
    assert (cut(slow), scraper.written) == ([0], b"metrics")


def test_what_was_cut_or_closed_holds_no_place(loop, door, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scrape_door, "CONNECTIONS", 2)
    made = [door.accept() for _ in range(3)]

    async def life() -> None:
        for scrape in made[:2]:
            scrape.connection_made(Socket(("10.0.0.1", 5)))
        made[0].connection_lost(None)
        made[2].connection_made(Socket(("10.0.0.1", 6)))
        assert not made[1]._transport.cut
        for scrape in made[1:]:
            scrape.connection_lost(None)

    loop.run_until_complete(life())
    assert not door._open
    assert not door._answering


def test_a_request_without_an_end_is_refused(loop, door):
    long = connect(loop, door, "10.0.0.1", b"GET /" + b"x" * REQUEST_BYTES)
    assert long.written.startswith(b"HTTP/1.1 431 ")
    assert connect(loop, door, "10.0.0.1", b"GET /" + b"x" * 100).written == b""


def test_a_request_is_read_whatever_it_is(loop, monkeypatch: pytest.MonkeyPatch):
    asked: list[ScrapeRequest] = []

    async def answer(request: ScrapeRequest) -> bytes:
        asked.append(request)
        return b""

    door = ScrapeDoor(answer)
    for data in (
        b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAUTHORIZATION:  Bearer a:b \r\n\r\nbody: no",
        b"\r\n\r\n", b"nonsense\r\n:\r\n\xff\r\n\r\n",
    ):  # fmt: skip
        connect(loop, door, "10.0.0.1", data)
    connect(loop, door, "", ASK)
    assert asked == [
        ScrapeRequest(b"GET", b"/metrics?x=1", {b"host": b"a", b"authorization": b"Bearer a:b"}, "10.0.0.1"),
        ScrapeRequest(b"", b"", {}, "10.0.0.1"),
        ScrapeRequest(b"nonsense", b"", {b"": b"", b"\xff": b""}, "10.0.0.1"),
        ScrapeRequest(b"GET", b"/metrics", {}, ""),
    ]


def test_an_answer_has_its_headers_and_its_body_if_it_is_to_be_whole():
    head = "HTTP/1.1 401 No\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n"
    assert answer_of("401 No", b"no", header=("A", "b")) == f"{head}A: b\r\n\r\nno".encode()
    assert answer_of("401 No", b"no", whole=False) == f"{head}\r\n".encode()
