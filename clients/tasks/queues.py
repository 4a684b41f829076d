"""The queues of an app: their names and settings, and their creation at the broker.

A topic that an app makes holds only tasks, so finished tasks expire after KEEP_S unless the app says otherwise; other
applications may read the records of a topic that existed before, so they stay.

Idea: senders and workers both create a missing queue; only workers change the settings of an existing one, because the
settings concern them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from ...broker.errors import Forbidden, TopicExists, UnknownGroup, UnknownTopic
from ..errors import InvalidArgument
from .retry import Retry

if TYPE_CHECKING:
    from ..aio.client import AsyncClient
    from ..client import Client


KEEP_S = 86400.0
"""How long finished tasks and their results are kept in a queue that an app creates."""


class TaskQueue(Struct, frozen=True):
    """One topic and the group on it."""

    topic: str
    group: str
    partitions: int
    settings: dict[str, Any]  # that its functions want
    defaults: dict[str, Any] = {}  # that the app wants where no function says otherwise
    retries: tuple[Retry, ...] = ()  # the different ones of its functions

    def merged(self, other: TaskQueue, function: str) -> TaskQueue:
        """The settings of both. Raises InvalidArgument where they contradict each other."""
        for name, value in other.settings.items():
            if self.settings.get(name, value) != value:
                raise InvalidArgument(
                    f"{function} wants {name}={value} of queue {self.topic}, where an earlier function wants "
                    f"{self.settings[name]}: functions of one queue share its keep, or have others"
                )
        retries = (*self.retries, *(each for each in other.retries if each not in self.retries))
        return structs.replace(self, settings={**self.settings, **other.settings}, retries=retries)

    @property
    def wanted(self) -> dict[str, Any]:
        """The settings that the app asks for."""
        return {**self.defaults, **self.settings, **self._limits()}

    def _limits(self) -> dict[str, Any]:
        """The broker's rule: the Retry of the functions, or of several different ones the loosest limit."""
        if len(self.retries) <= 1:
            return {} if not self.retries else self.retries[0].settings()
        limits = [retry.max_attempts for retry in self.retries]
        return {"max_attempts": None if None in limits else max(limit for limit in limits if limit is not None)}

    def changes(self, known: dict[str, Any]) -> dict[str, Any]:
        """The wanted settings that differ from the `known` ones."""
        return {name: value for name, value in self.wanted.items() if known.get(name) != value}


def check_attempts(queue: str, settings: dict[str, Any], attempts: int | None) -> None:
    """Raise InvalidArgument for calls that want more attempts than their queue gives; 0 wants none of their own."""
    most = settings["max_attempts"]
    if most is not None and (attempts is None or attempts > most):
        wanted = "any number of" if attempts is None else attempts
        raise InvalidArgument(
            f"retry= wants {wanted} attempts, and queue {queue} gives {most} at most: raise the max_attempts of the "
            "Retry of one of its functions"
        )


class QueueApp(Protocol):
    """The app of queues: how it connects, and its queues."""

    timeout_s: float
    zone: str
    group: str
    queues: dict[str, TaskQueue]

    @property
    def url(self) -> str:
        """The broker's address."""
        ...


@contextlib.contextmanager
def _enough_said(queue: TaskQueue) -> Iterator[None]:
    """A queue that a sender may not see looks as if it were missing, and the sender need not make it."""
    try:
        yield
    except Forbidden as error:
        enough = f"where the queue is made already, `see` on group:{queue.topic}/{queue.group} is enough to send"
        raise Forbidden(f"{error.message}; {enough}") from error


def ensure(client: Client, queue: TaskQueue) -> dict[str, Any]:
    """Create the queue's topic and group if missing. Returns the settings of the group."""
    settings = queue.wanted
    try:
        return dict(client.queue(queue.topic, queue.group).settings)
    except UnknownTopic:
        with contextlib.suppress(TopicExists):  # another process was faster
            client.create_topic(queue.topic, partitions=queue.partitions)
            settings = {"keep_finished_s": KEEP_S, **settings}
    except UnknownGroup:
        pass
    with _enough_said(queue):
        return dict(client.set_queue(queue.topic, queue.group, **settings).settings)


async def ensure_async(client: AsyncClient, queue: TaskQueue) -> dict[str, Any]:
    """As `ensure`."""
    settings = queue.wanted
    try:
        return dict((await client.queue(queue.topic, queue.group)).settings)
    except UnknownTopic:
        with contextlib.suppress(TopicExists):  # another process was faster
            await client.create_topic(queue.topic, partitions=queue.partitions)
            settings = {"keep_finished_s": KEEP_S, **settings}
    except UnknownGroup:
        pass
    with _enough_said(queue):
        return dict((await client.set_queue(queue.topic, queue.group, **settings)).settings)


def configure_now(client: Client, queue: TaskQueue) -> dict[str, Any]:
    """As `configure`."""
    settings = ensure(client, queue)
    changes = queue.changes(settings)
    if changes:
        settings = dict(client.set_queue(queue.topic, queue.group, **changes).settings)
    return settings


async def configure(client: AsyncClient, queue: TaskQueue) -> dict[str, Any]:
    """Give a queue the app's settings. Returns the settings of its group."""
    settings = await ensure_async(client, queue)
    changes = queue.changes(settings)
    if changes:
        settings = dict((await client.set_queue(queue.topic, queue.group, **changes)).settings)
    return settings
