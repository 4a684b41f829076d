"""The queues of an app: what they are called, and what has to be so at the broker.

Idea: senders and workers both see to it that a queue is there, whichever comes first; only workers change the settings
of one that exists: they are the ones who have to live with them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...broker.errors import TopicExists, UnknownGroup, UnknownTopic
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from ..aio import AsyncClient
    from ..client import Client


class Queue(Struct, frozen=True):
    """One topic and the group on it."""

    topic: str
    group: str
    partitions: int
    settings: dict[str, Any]

    def merged(self, other: Queue, function: str) -> Queue:
        """The settings of both. Raises InvalidArgument where they contradict each other."""
        for name, value in other.settings.items():
            if self.settings.get(name, value) != value:
                raise InvalidArgument(
                    f"{function} wants {name}={value} of queue {self.topic}, where an earlier function wants "
                    f"{self.settings[name]}: functions of one queue share its Retry, or have queues of their own"
                )
        return Queue(self.topic, self.group, self.partitions, {**self.settings, **other.settings})

    def changes(self, known: dict[str, Any]) -> dict[str, Any]:
        """What is not so yet."""
        return {name: value for name, value in self.settings.items() if known.get(name) != value}


def ensure(client: Client, queue: Queue) -> dict[str, Any]:
    """Create what is missing of a queue. Returns the settings of its group."""
    try:
        return dict(client.queue(queue.topic, queue.group).settings)
    except UnknownTopic:
        with contextlib.suppress(TopicExists):  # somebody else was faster
            client.create_topic(queue.topic, partitions=queue.partitions)
    except UnknownGroup:
        pass
    return dict(client.set_queue(queue.topic, queue.group, **queue.settings).settings)


async def ensure_async(client: AsyncClient, queue: Queue) -> dict[str, Any]:
    """As `ensure`."""
    try:
        return dict((await client.queue(queue.topic, queue.group)).settings)
    except UnknownTopic:
        with contextlib.suppress(TopicExists):  # somebody else was faster
            await client.create_topic(queue.topic, partitions=queue.partitions)
    except UnknownGroup:
        pass
    return dict((await client.set_queue(queue.topic, queue.group, **queue.settings)).settings)


async def configure(client: AsyncClient, queue: Queue) -> dict[str, Any]:
    """Have a queue be what the app says. Returns the settings of its group."""
    settings = await ensure_async(client, queue)
    changes = queue.changes(settings)
    if changes:
        settings = dict((await client.set_queue(queue.topic, queue.group, **changes)).settings)
    return settings
