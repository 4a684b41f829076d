"""All topics of a broker, which come in pages.

Contract: those that were there throughout are there; one that came or went meanwhile may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...transport.messages import ListTopics, Topics

if TYPE_CHECKING:
    from ...transport.messages import Topic
    from .connection import Connection
    from .steps import Steps


def all_topics(connection: Connection, deadline: float, what: str) -> Steps[list[Topic]]:
    """All topics, by name; `what` completes "timed out: ..."."""
    found, after = list["Topic"](), ""
    while True:
        page = yield from connection.ask(
            lambda request, after=after: ListTopics(request, [], after), Topics, deadline=deadline, what=what
        )
        found += page.topics
        if not page.next:
            return found
        after = page.next
