"""Dispatch: finds the operation of a request, reads it within bounds, and answers it.

Idea: one endpoint per path, which holds the rows of its methods. Starlette routes paths, and everything else is here,
because its requests and responses cost as much as the work itself.

Contract: an answer that is an error has a Problem as its body. Bodies and replies are within the bound of
holding.py. This module alone knows Starlette.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router

from ...broker.errors import NotLeader
from ...broker.rights import ANYONE
from ...storage.errors import Error
from ..holding import TOO_MUCH, HeldBytes
from ..refused import RefusedCounts
from . import request_ids
from .authenticating import CHALLENGE, principal_of
from .openapi import body_fields
from .operation import (
    CONNECTION,
    HEADER,
    JSON,
    ClientLeft,
    HttpCall,
    HttpGateway,
    HttpOperation,
    Reply,
    Streamed,
    StreamHolder,
)
from .origins import check_host, check_origin
from .problems import Problem, Refusal, problem_of, status_of
from .strict_json import StrictDecoder
from .wording import UNKNOWN, malformed, sentence

log = logging.getLogger("penstock.gateway")

PART_BYTES = 256 << 10
"""A reply leaves in such parts, each when the client has read most of the one before."""

QUERY_FIELDS_MAX = 100

SINGLE = frozenset(
    (b"authorization", b"content-encoding", b"content-type", b"host", b"idempotency-key", b"last-event-id", b"origin")
)
"""Headers that count once, beside those of a message (HEADER)."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


class HttpPath:
    """The operations of one path. An ASGI application."""

    def __init__(
        self, door: HttpGateway, held: HeldBytes, rows: Sequence[HttpOperation], body_bytes: int,
        refused: RefusedCounts,
    ) -> None:  # fmt: skip
        self._door = door
        self._refused = refused
        self._held = held
        self._body_bytes = body_bytes
        self._rows = {row.method: (row, _decoder(row)) for row in rows}
        self._fails = rows[0].fails
        if "GET" in self._rows:
            self._rows["HEAD"] = self._rows["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = [0]
        call = HttpCall(self._door, ANYONE, scope["path_params"], dict(scope["headers"]), _leaving(receive))
        given = request_ids.given(call.headers)
        try:
            with request_ids.followed(given):
                found, request_id = await self._found(call, scope, receive, held, given)
                if not isinstance(found, Streamed):
                    await _answer(found, send, request_id)
                elif scope["method"] == "HEAD":
                    await _answer(Reply(b"", found.media_type), send, request_id)
                else:
                    await self._stream(found, call, scope[CONNECTION], send, request_id)
        except ClientLeft:
            pass
        finally:
            self._held.give(held[0])
            call.close()
            if self._door.users is not None:
                self._door.users.meters.lost(call)

    async def _found(
        self, call: HttpCall, scope: Scope, receive: Receive, held: list[int], request_id: bytes
    ) -> tuple[Reply | Streamed, bytes]:
        """The reply to a request, and the error that it ended with as one; and the request's id. Raises ClientLeft."""
        try:
            row, decoder = self._row(scope)
            _check_headers(scope["headers"])
            self._check_page(scope, call)
            if not row.open:
                call.principal = await principal_of(self._door.users, call.headers, _source(scope))
                if CONNECTION in scope:
                    scope[CONNECTION].known()
                self._count(call)
            call.asked = _query(row, scope["query_string"])
            body = await self._body(row, call, receive, held)
            try:
                call.body = body if decoder is None else await decoder.decode_in_turns(body, self._door.link.turns)
                found = await row.handler(call)
            except msgspec.ValidationError as error:
                said = sentence(str(error), "the body")
                raise Refusal(400, "invalid_request", f"{said}{_hint(row, said)}") from None
            if isinstance(found, Streamed):
                return found, request_id
            reply = found if isinstance(found, Reply) else _json(row, found)
            held[0] += self._take(len(reply.body))
            self._count_reply(call, len(reply.body))
            if request_id:
                log.debug("request %s: %s %r: %d", request_id.decode(), scope["method"], scope["path"], reply.status)
            return reply, request_id
        except ClientLeft:
            raise
        except Exception as error:
            request_id = request_id or request_ids.made()
            reply = _failed(error, self._rows, request_id)
            log.info("request %s: %s %r: %d", request_id.decode(), scope["method"], scope["path"], reply.status)
            return (reply if self._fails is None else _shown(reply, self._fails)), request_id

    def _count(self, call: HttpCall) -> None:
        """Count a request of a user with a quota. Raises Overloaded."""
        users = self._door.users
        meter = None if users is None else users.admit(call, call.principal, 1)
        if meter is not None:
            meter.take(0, time.monotonic())

    def _count_reply(self, call: HttpCall, size: int) -> None:
        users = self._door.users
        meter = None if users is None else users.meters.by_peer.get(call)
        if meter is not None:
            meter.answered(call, 1, size, time.monotonic())

    def _check_page(self, scope: Scope, call: HttpCall) -> None:
        check_origin(scope["method"], scope["scheme"], call.headers, self._door.origins)
        if self._door.users is None and scope["server"] is not None:
            check_host(scope["server"][0], call.headers)

    def _row(self, scope: Scope) -> tuple[HttpOperation, StrictDecoder[Any] | None]:
        found = self._rows.get(scope["method"])
        if found is None:
            raise Refusal(405, "no_such_method", f"{scope['path']} takes {', '.join(self._rows)}")
        return found

    async def _body(self, row: HttpOperation, call: HttpCall, receive: Receive, held: list[int]) -> bytes:
        """The body of a request, if its operation takes one. Raises Refusal, ClientLeft."""
        encoding = call.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding != b"identity":
            raise Refusal(
                415, "unsupported_encoding", f"a body is sent as it is, not as {encoding[:32].decode('latin-1')}"
            )
        declared = call.headers.get(b"content-length", b"0")
        if row.takes and call.content_type not in row.takes:
            shown = f", not {call.content_type}" if call.content_type else ": say so in Content-Type"
            raise Refusal(415, "unsupported_media_type", f"{row.name} takes {', '.join(row.takes)}{shown}")
        if int(declared) > self._body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise ClientLeft
            part, more = event.get("body", b""), event.get("more_body", False)
            size += len(part)
            if self._door.users is not None:
                self._door.users.took(call, len(part))
            if size > self._body_bytes:
                raise self._too_large()
            if row.takes:
                held[0] += self._take(len(part))
                parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _stream(
        self, found: Streamed, call: HttpCall, connection: StreamHolder, send: Send, request_id: bytes
    ) -> None:
        """Send the parts, each when the client has read most of the one before, and its user's quota has room.

        What waits for the client is held.
        """
        headers = [(b"content-type", found.media_type.encode()), (b"cache-control", b"no-store")]
        if request_id:
            headers.append((request_ids.HEADER_NAME, request_id))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for part in found.parts:
                connection.part_bytes = len(part)
                self._held.holds(connection, connection.held())
                await send({"type": "http.response.body", "body": part, "more_body": True})
                connection.part_bytes = 0
                self._held.holds(connection, connection.held())
                await self._sit_out(call, len(part))
        finally:
            connection.part_bytes = 0
            self._held.holds(connection, 0)
            await found.parts.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _sit_out(self, call: HttpCall, size: int) -> None:
        """Count what a stream has sent, and wait until its user owes nothing. Raises ClientLeft."""
        users = self._door.users
        meter = None if users is None else users.took(call, size)
        if meter is not None and (debt_s := meter.debt_s(time.monotonic())):
            await call.wait(asyncio.sleep(debt_s))

    def _take(self, size: int) -> int:
        """Hold so much more. Returns it. Raises Refusal."""
        if not self._held.take(size):
            raise Refusal(429, "too_busy", f"{TOO_MUCH}: try again")
        return size

    def _too_large(self) -> Refusal:
        self._refused.add("size")
        return Refusal(413, "body_too_large", f"a body has at most {self._body_bytes} bytes: send it in parts")


def application(
    door: HttpGateway, rows: Sequence[HttpOperation], body_bytes: int, held: HeldBytes,
    refused: RefusedCounts | None = None,
) -> Any:  # fmt: skip
    """The ASGI application of a table of operations."""
    by_path: dict[str, list[HttpOperation]] = {}
    for row in rows:
        by_path.setdefault(row.path, []).append(row)
    counts = refused or RefusedCounts()
    routes = [Route(path, HttpPath(door, held, of_path, body_bytes, counts)) for path, of_path in by_path.items()]
    router = Router(routes, redirect_slashes=False, default=_not_found)
    if not door.origins:
        return router
    return CORSMiddleware(
        router, allow_origins=door.origins, allow_methods=["*"], allow_headers=["*"],
        expose_headers=["Penstock-Leader", "Penstock-Next", "Retry-After", "X-Request-Id"],
    )  # fmt: skip


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    problem = Problem("no_such_path", "there is nothing at this path: see /docs", False)
    request_id = request_ids.given(dict(scope["headers"])) or request_ids.made()
    await _answer(_problem(404, problem), send, request_id)


def _decoder(row: HttpOperation) -> StrictDecoder[Any] | None:
    return None if row.body is None else StrictDecoder(row.body)


def _source(scope: Scope) -> str:
    """The address of a client; that of all those of Unix sockets is empty."""
    return scope["client"][0] if scope.get("client") else ""


def _check_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise Refusal if a header has two values where one counts."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and (name in SINGLE or name.startswith(HEADER)):
            raise Refusal(400, "invalid_request", f"the header {name.decode()} is there twice")
        seen.add(name)


def _query(row: HttpOperation, query: bytes) -> Any:
    if not query:
        return row.query()
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError as error:
        raise Refusal(400, "invalid_request", f"the query cannot be read: {error}") from None
    asked = dict(pairs)
    if len(asked) < len(pairs):
        raise Refusal(400, "invalid_request", "the query has two parameters of one name")
    try:
        return msgspec.convert(asked, row.query, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, "invalid_request", sentence(str(error), "the query")) from None


def _leaving(receive: Receive) -> Callable[[], Awaitable[None]]:
    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return left


# -- replies ----------------------------------------------------------------------------------------------


def _json(row: HttpOperation, found: Any) -> Reply:
    return Reply(b"" if row.gives is None else _encode(found), JSON, row.status)


def _hint(row: HttpOperation, error: str) -> str:
    """What a body may hold, behind an error that it holds something else."""
    if not error.startswith(("the body: " + UNKNOWN, "[")) or UNKNOWN not in error:
        return ""
    return f"; {row.name} takes {', '.join(each['name'] for each in body_fields(row))}"


def _problem(status: int, problem: Problem, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(_encode(problem), JSON, status, headers)


def _failed(error: Exception, methods: Any, request_id: bytes) -> Reply:
    """The answer to a request that failed."""
    if isinstance(error, Refusal):
        extra = {
            401: (CHALLENGE[0].lower().encode(), CHALLENGE[1].encode()),
            405: (b"allow", ", ".join(methods).encode()),
            429: (b"retry-after", b"1"),
        }
        return _problem(error.status, error.problem, *filter(None, [extra.get(error.status)]))
    if isinstance(error, Error):
        again = ((b"retry-after", b"%d" % math.ceil(error.retry_after)),) if error.retry_after else ()
        if isinstance(error, NotLeader):
            again += ((b"penstock-leader", error.where.encode()),)
        return _problem(status_of(error), problem_of(error), *again)
    if isinstance(error, (msgspec.DecodeError, UnicodeError)):
        return _problem(400, Problem("invalid_request", malformed(str(error)), False))
    if isinstance(error, RecursionError):  # of msgspec
        return _problem(400, Problem("invalid_request", "the body is nested too deeply", False))
    log.error("request %s failed inside the gateway", request_id.decode(), exc_info=error)
    return _problem(500, Problem("internal", "the gateway failed: its log says how", False))


def _shown(reply: Reply, fails: Callable[[int, Problem], Reply]) -> Reply:
    """An error as the operation shows it."""
    found = fails(reply.status, msgspec.json.decode(reply.body, type=Problem))
    return msgspec.structs.replace(found, headers=(*found.headers, *reply.headers))


async def _answer(reply: Reply, send: Send, request_id: bytes) -> None:
    body = reply.body
    headers = [*reply.headers]
    if request_id:
        headers.append((request_ids.HEADER_NAME, request_id))
    if reply.status != 204:
        headers += ((b"content-length", b"%d" % len(body)), (b"content-type", reply.media_type.encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if len(body) > PART_BYTES:
        for start in range(0, len(body), PART_BYTES):
            part = body[start : start + PART_BYTES]
            more = start + PART_BYTES < len(body)
            await send({"type": "http.response.body", "body": part, "more_body": more})
    else:
        await send({"type": "http.response.body", "body": body})
