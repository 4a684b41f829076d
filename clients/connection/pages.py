"""What a broker says of all topics, which comes in pages.

Contract: what was there throughout is there; what came or went meanwhile may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from ...transport.messages import ListTopics, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.messages import Message, Topic
    from .connection import Connection
    from .steps import Steps


class PageAnswer(Protocol):
    """An answer. `next` is the name of a topic to go on behind; "" when that was all."""

    @property
    def next(self) -> str: ...


P = TypeVar("P", bound=PageAnswer)


def all_pages(
    connection: Connection, make: Callable[[int, str], Message], kind: type[P], *, deadline: float, what: str
) -> Steps[list[P]]:
    """All pages. `make` asks for one by a request's number and the name to go on behind.

    `what` completes "timed out: ...".
    """
    found, after = list[P](), ""
    while not found or after:
        page = yield from connection.ask(
            lambda request, after=after: make(request, after), kind, deadline=deadline, what=what
        )
        found.append(page)
        after = page.next
    return found


def all_topics(connection: Connection, deadline: float, what: str) -> Steps[list[Topic]]:
    """All topics, by name."""
    pages = yield from all_pages(
        connection, lambda request, after: ListTopics(request, [], after), Topics, deadline=deadline, what=what
    )
    return [topic for page in pages for topic in page.topics]
