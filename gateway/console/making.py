"""What all views share: the latest look, who asks, and how a page is made of both.

Contract: a page shows topics and groups that its viewer may see, by the question that the API asks (rights.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from msgspec import Struct

from ...clients.descriptions import Group, Topic
from ...clients.queues.descriptions import Queue
from ..http.operation import HttpCall, Reply
from ..link import BrokerLink
from .forms import Forms
from .rendering import Renderer
from .sampler import POINTS, Sampler, Seen

VERSION = version("penstock")

ROWS = 100
"""Of one page of a table."""

T = TypeVar("T")


class Notice(Struct, frozen=True):
    """What has become of an action."""

    kind: Literal["done", "failed"]
    text: str


class ListQuery(Struct, forbid_unknown_fields=True):
    """Which rows of a table."""

    find: str = ""
    page: int = 1


class TablePage(Struct, frozen=True):
    """One page of a table's rows."""

    rows: Sequence[Any]
    total: int
    page: int
    pages: int
    find: str


class PageMaker:
    """See the module."""

    def __init__(self, link: BrokerLink, sampler: Sampler, forms: Forms, renderer: Renderer) -> None:
        self.link = link
        self.sampler = sampler
        self.forms = forms
        self.renderer = renderer

    async def page(
        self, call: HttpCall, template: str, here: str, /, seen: Seen | None = None, **context: Any
    ) -> Reply:
        """A page whose address is `here`."""
        seen = seen or await self.sampler.look()
        return self.renderer.page(
            template,
            {
                "notice": None, "here": here, "seen": seen, "sample": seen.sample,
                "user": call.principal.name if call.door.users is not None else "",
                "token": self.forms.token(call.principal), "version": VERSION, "points": POINTS,
                "now": seen.sample.now if seen.sample else datetime.now(UTC), "may_see_node": call.allows("see", ""),
                "broker": self.link.driver.connection.url, **context,
            },
        )  # fmt: skip


def topics_of(seen: Seen, call: HttpCall) -> list[Topic]:
    """The topics that a viewer may see, by name."""
    found = seen.sample.topics if seen.sample else ()
    return sorted((each for each in found if call.sees(each.name)), key=lambda each: each.name)


def groups_of(seen: Seen, call: HttpCall) -> list[Group]:
    """The consumer groups that a viewer may see."""
    return _seen_groups(seen.sample.groups if seen.sample else (), call)


def queues_of(seen: Seen, call: HttpCall) -> list[Queue]:
    """The queue groups that a viewer may see."""
    return _seen_groups(seen.sample.queues if seen.sample else (), call)


Grouped = TypeVar("Grouped", Group, Queue)


def _seen_groups(found: Sequence[Grouped], call: HttpCall) -> list[Grouped]:
    mine = [each for each in found if call.sees(each.topic, "group", each.name)]
    return sorted(mine, key=lambda each: (each.topic, each.name))


def listed(rows: Sequence[T], asked: ListQuery, name: Callable[[T], str]) -> TablePage:
    """The rows whose name has what is looked for, one page of them."""
    found = [row for row in rows if asked.find.strip().lower() in name(row).lower()]
    pages = max(-(-len(found) // ROWS), 1)
    page = min(max(asked.page, 1), pages)
    return TablePage(found[(page - 1) * ROWS : page * ROWS], len(rows), page, pages, asked.find)
