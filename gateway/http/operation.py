"""A row of the table of operations, and the request that its handler sees.

Idea: one row says a method and a path, what it takes and gives, and who may do it; everything about it is made from the
row. A handler is a coroutine of a HttpCall. It returns a struct, which leaves as JSON, or bytes with their media type.

Contract: `asked` and `body` have the types that the row says. A handler raises Refusal or penstock's errors. It knows
no server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from ...broker.rights import NODE, Operation, Principal, authorize
from ..holding import ByteHolder
from ..link import BrokerLink
from ..refused import RefusedCounts
from ..users import Users
from .problems import Problem, Refusal

Tag = Literal["messages", "consumers", "tasks", "groups", "dead letters", "schedules", "barriers", "topics", "gateway"]

JSON = "application/json"

CONNECTION = "penstock.connection"
"""In the scope of a request: the StreamHolder that it came over."""

HEADER = b"penstock-header-"
"""What a header of a request begins with that is a header of the message."""

T = TypeVar("T")


class NoQuery(Struct, forbid_unknown_fields=True):
    """Of an operation without parameters."""


class StatsSource(Protocol):
    """What the broker said lately of itself, asked once for all viewers."""

    async def seen_by(self, principal: Principal, old_s: float) -> Any:
        """The stats as a principal may see them, at most so many seconds old."""
        ...


class HttpGateway(Protocol):
    """What all requests of a door share."""

    link: BrokerLink
    users: Users | None
    may_create: bool
    ending: asyncio.Future[None]  # done when the gateway drains
    document: bytes  # OpenAPI
    page: bytes  # of its operations
    origins: tuple[str, ...]  # whose pages may send requests
    refused: RefusedCounts

    @property
    def stats(self) -> StatsSource:
        """What the broker said lately."""
        ...


class StreamHolder(ByteHolder, Protocol):
    """The connection of a stream. `part_bytes`: of the part that waits until the client has read the one before."""

    part_bytes: int


class ClientLeft(Exception):
    """The client closed its connection while its request waited."""


class HttpCall:
    """One request."""

    __slots__ = ("_leaves", "_left", "_principal", "asked", "body", "content_type", "door", "headers", "path")

    def __init__(
        self, door: HttpGateway, principal: Principal, path: Mapping[str, str], headers: Mapping[bytes, bytes],
        leaves: Callable[[], Awaitable[Any]],
    ) -> None:  # fmt: skip
        self.door = door
        self._principal = principal
        self.path = path
        self.headers = headers
        self.content_type = media_type(headers.get(b"content-type", b""))
        self.asked: Any = None
        self.body: Any = None
        self._leaves = leaves
        self._left: asyncio.Future[Any] | None = None

    @property
    def principal(self) -> Principal:
        """The user that asks, with its grants of now."""
        users = self.door.users
        return self._principal if users is None else users.current(self._principal)

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def link(self) -> BrokerLink:
        """The way to the broker."""
        return self.door.link

    def may(self, operation: Operation, topic: str, kind: str = "topic", name: str = "") -> None:
        """Raise Refusal unless the principal may do this to a topic, or to a thing of a kind that belongs to one.

        "" is the node.
        """
        if not self.allows(operation, topic, kind, name):
            users = self.door.users
            assert users is not None, "without users everything is allowed"
            raise Refusal(403, "forbidden", users.forbid(self._principal, operation, _resource(topic, kind, name)))

    def allows(self, operation: Operation, topic: str, kind: str = "topic", name: str = "") -> bool:
        """Whether `may` raises nothing."""
        return authorize(self.principal, operation, _resource(topic, kind, name))

    def may_work(self, topic: str, group: str) -> None:
        """Raise Refusal unless the principal may take part in a group."""
        self.may("read", topic)
        self.may("read", topic, "group", group)

    def sees(self, topic: str, kind: str = "topic", name: str = "") -> bool:
        """Whether the principal may know of something, as of `may`."""
        return self.allows("see", topic, kind, name)

    @property
    def ends(self) -> bool:
        """Whether the gateway drains: nothing should wait any more."""
        return self.door.ending.done()

    async def wait(self, waiting: Awaitable[T]) -> T | None:
        """Wait for something that may never come; None when the gateway drains meanwhile.

        Raises ClientLeft, and what `waiting` raises.
        """
        left = self._leaving()
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait([task, left, self.door.ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        found = task.result() if task.done() else None
        if left.done():
            raise ClientLeft
        return found

    @property
    def has_left(self) -> bool:
        """Whether the client closed its connection."""
        return self._leaving().done()

    def _leaving(self) -> asyncio.Future[Any]:
        if self._left is None:
            self._left = asyncio.ensure_future(self._leaves())
        return self._left

    def close(self) -> None:
        """End what still listens for the client to leave."""
        if self._left is not None:
            self._left.cancel()

    def accepted(self, *media_types: str) -> str:
        """The first of these that the client prefers; the first one if it names none of them."""
        wanted = self.headers.get(b"accept", b"").decode("latin-1").lower()
        return next((each for each in preferences(wanted) if each in media_types), media_types[0])


class Reply(Struct, frozen=True):
    """Bytes as they leave."""

    body: bytes
    media_type: str = JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Streamed(Struct, frozen=True):
    """A reply that goes on until the client leaves or the parts end."""

    parts: AsyncGenerator[bytes, None]
    media_type: str


Handler = Callable[[HttpCall], Awaitable[Any]]


def _resource(topic: str, kind: str, name: str) -> str:
    return f"{kind}:{topic}/{name}" if kind != "topic" else f"topic:{topic}" if topic else NODE


class HttpOperation(Struct, frozen=True, kw_only=True):
    """One row. `takes` are media types of the body; JSON of them has the shape `body`."""

    method: str
    path: str
    name: str  # in programs: operationId
    tag: Tag
    summary: str
    handler: Handler
    query: type[Struct] = NoQuery
    takes: tuple[str, ...] = ()
    body: Any = None  # the type of a JSON body, decoded before the handler is called; None: the handler sees bytes
    shows: Any = None  # the type of a JSON body that the handler decodes
    gives: Any = None  # the type of the reply; None: no content
    also_gives: tuple[str, ...] = ()  # media types beside JSON
    headers: tuple[tuple[str, str], ...] = ()  # request headers that it reads, each with a sentence
    status: int = 200
    about: str = ""  # more than the summary
    open: bool = False  # without authentication
    fails: Callable[[int, Problem], Reply] | None = None  # how an error leaves that is not JSON

    @property
    def shape(self) -> Any:
        """The type of a JSON body."""
        return self.shows if self.body is None else self.body

    @property
    def gives_what(self) -> str:
        """The media types of the reply."""
        given = () if self.gives is None else (JSON,)
        return ", ".join((*given, *self.also_gives)) or "no content"


def media_type(header: bytes) -> str:
    """A media type without its parameters."""
    return header.partition(b";")[0].strip().lower().decode("latin-1")


def preferences(accept: str) -> list[str]:
    """The media types of an Accept header, the most wanted first."""
    found = []
    for place, each in enumerate(accept.split(",")[:50]):
        name, _, rest = each.partition(";")
        weight = next((part.partition("=")[2] for part in rest.split(";") if part.strip().startswith("q=")), "1")
        try:
            found.append((-float(weight), place, name.strip()))
        except ValueError:
            continue
    return [name for weight, _, name in sorted(found) if weight < 0]
