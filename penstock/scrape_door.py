"""The connections of the exporter: one request and one answer each, and none of them locks out the next.

Idea: a peer that asks for nothing, or does not read its answer, holds a place. Where there is none left, the door takes
one back for the new peer: of the address that holds most of them, the connection that it has had longest. So a scraper
that sends its request at once is served however many others wait, and an address that floods the door loses its own.

Contract: `CONNECTIONS` places of `REQUEST_BYTES`, of which `ANSWERS` hold an answer; each ends after its answer, or
`PATIENCE_S`. Must not know metrics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

REQUEST_BYTES = 8192
CONNECTIONS = 256
ANSWERS = 32
"""Connections whose answers are made, or are being read: each may hold all the text."""

PATIENCE_S = 15.0
"""From connecting to the end of the answer."""


class ScrapeRequest(NamedTuple):
    """What a peer asks for, and from which address; that of a Unix socket has none."""

    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    source: str


Answer = Callable[[ScrapeRequest], Awaitable[bytes]]
"""From a request to all the bytes of an answer."""


class ScrapeDoor:
    """See the module."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._open: dict[Scrape, None] = {}  # the oldest first
        self._answering: dict[Scrape, None] = {}

    def accept(self) -> Scrape:
        """The protocol of a connection that was accepted."""
        return Scrape(self)

    def opened(self, scrape: Scrape) -> None:
        """Take a connection, in place of another if there are too many."""
        self._open[scrape] = None
        _keep(self._open, CONNECTIONS, scrape)

    def answers(self, scrape: Scrape) -> None:
        """Know of one whose request is there."""
        self._answering[scrape] = None
        _keep(self._answering, ANSWERS, scrape)

    def closed(self, scrape: Scrape) -> None:
        """Forget one."""
        self._open.pop(scrape, None)
        self._answering.pop(scrape, None)


def _keep(places: dict[Scrape, None], most: int, newest: Scrape) -> None:
    """Cut off one connection where there are more than `most`."""
    if len(places) > most:
        held = Counter(each.source for each in places)
        held[newest.source] -= 1  # which is not to be its own reason
        most_held = max(held.values())
        oldest = next(each for each in places if held[each.source] == most_held and each is not newest)
        del places[oldest]
        oldest.cut()


class Scrape(asyncio.Protocol):
    """One connection."""

    source = ""
    """The peer's address, without its port; "" for one of a Unix socket."""

    def __init__(self, door: ScrapeDoor) -> None:
        self._door = door
        self._request = b""
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        """Take the connection."""
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, transport.abort)
        peer = transport.get_extra_info("peername")
        self.source = peer[0] if isinstance(peer, tuple) else ""
        self._door.opened(self)

    def data_received(self, data: bytes) -> None:
        """Collect the request up to its empty line."""
        if self._answering is None:
            self._request += data
            if b"\r\n\r\n" in self._request or len(self._request) > REQUEST_BYTES:
                self._answering = asyncio.get_running_loop().create_task(self._answer())
                self._door.answers(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._timer.cancel()
        self._door.closed(self)

    def cut(self) -> None:
        """Close at once."""
        self._transport.abort()

    async def _answer(self) -> None:
        if len(self._request) > REQUEST_BYTES:
            answer = answer_of("431 Request Header Fields Too Large", b"the request is too long\n")
        else:
            answer = await self._door.answer(_parsed(self._request, self.source))
        self._transport.write(answer)
        self._transport.close()


def _parsed(request: bytes, source: str) -> ScrapeRequest:
    """A request of HTTP, whatever it is; names of headers in small letters."""
    first, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    method, path = (*first.split(b" "), b"", b"")[:2]
    fields = (line.partition(b":") for line in lines)
    return ScrapeRequest(method, path, {name.strip().lower(): value.strip() for name, _, value in fields}, source)


def answer_of(
    status: str, body: bytes, kind: str = "text/plain", *, whole: bool = True, header: tuple[str, str] | None = None
) -> bytes:
    """The bytes of an answer, with one header more, and without its body if it is not to be `whole`."""
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close")]
    lines = [f"{name}: {value}" for name, value in (*headers, *([header] if header else []))]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + (body if whole else b"")
