"""A cache of topic descriptions, for callers that read many ranges of one topic.

Idea: describing a thousand partitions takes the broker tens of milliseconds, and the place of a partition (its
directory, its log, its row on the board) is fixed for the life of the broker and the topic.

Contract: a description is from the broker's present incarnation and for that very topic id. It does not say how far a
partition goes. Memory: some descriptions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...transport.messages import Partition, Topic
    from ..connection.connection import Connection

TOPICS_MAX = 64
"""The one that was asked about longest ago is forgotten first."""


class KnownTopics:
    """See the module."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._incarnation = -1
        self._topics: OrderedDict[bytes, Topic] = OrderedDict()

    def partition(self, topic: bytes, number: int) -> Partition | None:
        """One partition of a topic by its id; None if the broker must be asked."""
        self._check()
        found = self._topics.get(topic)
        if found is None or not 0 <= number < len(found.partitions):
            return None
        self._topics.move_to_end(topic)
        return found.partitions[number]

    def remember(self, topic: Topic) -> None:
        """Remember a description."""
        self._check()
        self._topics[topic.topic] = topic
        self._topics.move_to_end(topic.topic)
        if len(self._topics) > TOPICS_MAX:
            self._topics.popitem(last=False)

    def _check(self) -> None:
        """Forget everything after a restart of the broker: its logs may have other rows."""
        welcome = self._connection.welcome
        incarnation = -1 if welcome is None else welcome.incarnation
        if incarnation != self._incarnation:
            self._topics.clear()
            self._incarnation = incarnation
