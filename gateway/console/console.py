"""The console as a whole: its pages as operations of the HTTP door.

Contract: `pages` are rows like those of the API, beside it. A page whose request fails is a page that says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ..http.operation import HttpCall, HttpOperation, NoQuery, Reply
from ..link import BrokerLink
from .actions import ACTIONS
from .browser import MessagesQuery, OneQuery, message, messages
from .forms import FORM, Forms
from .making import ListQuery, PageMaker
from .overview import overview
from .queues import queue, queues
from .rendering import Renderer, StaticFiles, static_page
from .sampler import Sampler
from .topics import TopicQuery, group, groups, topic, topics

View = Callable[[PageMaker, HttpCall], Awaitable[Reply]]

VIEWS: list[tuple[str, str, View, Any]] = [
    ("/", "consoleOverview", overview, NoQuery),
    ("/console/topics", "consoleTopics", topics, TopicQuery),
    ("/console/topics/{topic}", "consoleTopic", topic, NoQuery),
    ("/console/topics/{topic}/messages", "consoleMessages", messages, MessagesQuery),
    ("/console/topics/{topic}/messages/{partition}/{offset}", "consoleMessage", message, OneQuery),
    ("/console/groups", "consoleGroups", groups, ListQuery),
    ("/console/groups/{topic}/{group}", "consoleGroup", group, NoQuery),
    ("/console/queues", "consoleQueues", queues, ListQuery),
    ("/console/queues/{topic}/{group}", "consoleQueue", queue, NoQuery),
]
"""Path, name, what makes the page, and its query."""


class Console:
    """See the module."""

    def __init__(self, link: BrokerLink, supervisor: int = 0) -> None:
        self._files = StaticFiles()
        self._renderer = Renderer(self._files)
        self.maker = PageMaker(link, Sampler(link, supervisor), Forms(), self._renderer)

    def pages(self) -> list[HttpOperation]:
        """The rows of the console."""
        views = [self._row("GET", path, name, view, query=query) for path, name, view, query in VIEWS]
        posts = [
            self._row("POST", f"/console/{kind}/{{topic}}/{{group}}/{name}", f"console_{name}", action, takes=(FORM,))
            for name, (kind, action) in ACTIONS.items()
        ]
        return [*views, *posts, static_page(self._files)]

    def _row(self, method: str, path: str, name: str, view: View, **more: Any) -> HttpOperation:
        return HttpOperation(
            method=method, path=path, name=name, tag="gateway", summary="A page of the console",
            handler=partial(view, self.maker), fails=self._renderer.problem, also_gives=("text/html",), **more,
        )  # fmt: skip
