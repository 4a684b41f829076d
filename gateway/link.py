"""What doors do at the broker: one connection, the topics they know, and a producer for each principal and topic.

Idea: reading asks the broker where a topic is, each time. Appending remembers it, so that a record costs no question;
what is remembered is dropped when a batch is refused, or a lookup finds another topic under the name.

Contract: everything on the loop that connected. Bounded: `PLACES_MAX` names of each kind and `APPENDERS_MAX` producers
are remembered, the oldest go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..broker.errors import UnknownTopic
from ..broker.rights import Principal
from ..clients.aio.client import AsyncClient
from ..clients.aio.driver import AsyncDriver
from ..clients.queues.verbs import QueueVerbs
from ..clients.verbs import FetchQuestion, Verbs
from ..storage.errors import Error
from ..transport.messages import Fetched, Topic
from .append_times import AppendTimes, EntriesRead
from .appending import Appender
from .refused import RefusedCounts
from .telling import ToldRefusals
from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

log = logging.getLogger("penstock.gateway")

PLACES_MAX = 10_000
APPENDERS_MAX = 1_000

FRESH_S = 10.0
"""How long `topic_to_append` trusts what it knows: after so long it sees partitions that were added."""

TOPIC_GONE = ("unknown_topic", "unknown_partition")
"""Codes of errors after which what is remembered of a topic is wrong."""


class TopicPlace(NamedTuple):
    """One partition of a topic, as the broker described it last."""

    topic: Topic
    partition: int

    @property
    def first(self) -> int:
        """The first offset that could be read then."""
        return self.topic.partitions[self.partition].first

    @property
    def end(self) -> int:
        """The offset after the last record then."""
        return self.topic.partitions[self.partition].end


class BrokerLink:
    """See the module."""

    def __init__(self, driver: AsyncDriver, refused: RefusedCounts | None = None) -> None:
        self.driver = driver
        self.client = AsyncClient(driver)
        self.verbs = Verbs(driver.connection)
        self.queue_verbs = QueueVerbs(driver.connection)
        self.turns = Turns()
        self.append_times = AppendTimes()
        self.entries_read = EntriesRead()
        self.deleting = asyncio.Lock()  # one deletion at a time, so that one client alone hears that it deleted a topic
        self._places: OrderedDict[bytes, TopicPlace] = OrderedDict()
        self._topics: OrderedDict[str, tuple[Topic, float]] = OrderedDict()  # and until when they are trusted
        self._appenders: OrderedDict[tuple[str, bytes], Appender] = OrderedDict()  # by principal and topic id
        self._refused = refused or RefusedCounts()
        self._refusals = ToldRefusals("batches of records that were not appended", log.warning)

    # -- topics -----------------------------------------------------------------------------------------

    async def topic(self, name: str) -> Topic | None:
        """The topic `name` as it is now, None if there is none."""
        try:
            return (await self.driver.run(self.verbs.topics([name])))[0]
        except UnknownTopic:
            return None

    async def create(self, name: str) -> Topic:
        """The topic `name`, made with one partition unless it is there."""
        return await self.driver.run(self.verbs.create_topic(name, 1, True, {}))

    def known_topic(self, name: str) -> Topic | None:
        """The topic `name` if it was looked up in the last `FRESH_S`."""
        known = self._topics.get(name)
        return known[0] if known is not None and self.driver.connection.clock() < known[1] else None

    async def topic_to_append(self, name: str, *, create: bool) -> Topic:
        """The topic `name`, which is made if `create`; `known_topic` has it then. Raises UnknownTopic."""
        topic = await self.topic(name)
        if topic is None and not create:
            raise UnknownTopic(f"there is no topic {name}, and this gateway makes none: create it")
        topic = topic or await self.create(name)
        self._topics[name] = topic, self.driver.connection.clock() + FRESH_S
        if len(self._topics) > PLACES_MAX:
            self._topics.popitem(last=False)
        return topic

    def remembered(self, key: bytes) -> TopicPlace | None:
        """The place that a door remembered under its own name for it."""
        return self._places.get(key)

    def remember(self, key: bytes, place: TopicPlace) -> TopicPlace:
        """Have `remembered` know a place."""
        self._places[key] = place
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        return place

    def forget(self, topic: bytes) -> None:
        """Drop what is remembered of a topic id."""
        for key in [key for key, place in self._places.items() if place.topic.topic == topic]:
            del self._places[key]
        for name in [name for name, (found, _) in self._topics.items() if found.topic == topic]:
            del self._topics[name]

    # -- records ----------------------------------------------------------------------------------------

    def appender(self, principal: Principal, topic: Topic) -> Appender:
        """The producer of a principal for a topic."""
        found = self._appenders.get((principal.name, topic.topic))
        if found is None or found.partitions < len(topic.partitions):  # a door may remember fewer than there are
            found = Appender(self.driver, topic, self._on_refused(principal, topic))
            self._appenders[principal.name, topic.topic] = found
            self._drop_idle()
        return found

    @property
    def lacks_room(self) -> bool:
        """Whether records of this gateway wait because the broker's disk is full."""
        return any(appender.lacks_room for appender in self._appenders.values())

    def _on_refused(self, principal: Principal, topic: Topic) -> Callable[[Error], None]:
        def refused(error: Error) -> None:
            self._refused.add("records")
            self._refusals.note(f"{topic.name} of user {principal.name}: {error.code}: {error.message}")
            if error.code in TOPIC_GONE:
                self.forget(topic.topic)
                self._appenders.pop((principal.name, topic.topic), None)

        return refused

    def _drop_idle(self) -> None:
        """Forget the oldest producers with nothing on its way: the broker forgets them by itself."""
        excess = len(self._appenders) - APPENDERS_MAX
        if excess > 0:
            idle = [each for each, appender in self._appenders.items() if appender.idle]
            for each in idle[:excess]:
                del self._appenders[each]

    async def fetch(self, place: TopicPlace, offset: int, max_bytes: int) -> tuple[Buffer, Fetched]:
        """Batches from `offset` on, at least one if there is any, and the answer that came with them."""
        connection = self.driver.connection
        question = FetchQuestion(connection, place.topic.topic, place.partition, offset, 0, max_bytes)
        steps = connection.wait_for(
            question, Fetched, deadline=connection.deadline(), what=f"reading topic {place.topic.name}"
        )
        answer = await self.driver.run(steps)
        return question.batches, answer

    async def close(self) -> None:
        """Wait for what is on its way, for one time-out over all producers, and disconnect."""
        self.driver.connection.ends_at = self.driver.connection.deadline()
        try:
            for appender in list(self._appenders.values()):
                await appender.close()
        finally:
            await self.client.close()
