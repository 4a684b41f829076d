"""Partitions of a topic that the broker cannot serve: reported once to a reader of the others.

Idea: the broker opens its logs once, when it starts, so it lists them anew on every connection.
Contract: `raise_next` raises PartitionUnavailable once per partition, with the broker's sentence, and again only after
the partition was served in between.
"""

from __future__ import annotations

from collections.abc import Callable

from ...broker.errors import PartitionUnavailable
from ...transport.messages import Answer, ListTopics, Partition, Topic, Topics
from .connection import Connection
from .question import Question


def is_closed(partition: Partition) -> bool:
    """Whether the broker could not open the partition, so that it cannot be read."""
    return bool(partition.unavailable) and not partition.log_id


def is_not_worked_on(partition: Partition) -> bool:
    """Whether queue groups do not work on it. A damaged partition that is open is still read as a stream."""
    return bool(partition.unavailable)


class UnavailablePartitions:
    """See the module. `concerns` chooses the partitions that a reader misses."""

    def __init__(self, connection: Connection, topic: Topic, concerns: Callable[[Partition], bool]) -> None:
        self._connection = connection
        self._id = topic.topic
        self._name = topic.name
        self._concerns = concerns
        self._found: dict[int, str] = {}
        self.untold: dict[int, str] = {}
        """Why, by number, of those that the reader has yet to hear of."""
        self._note(topic)

    def restored(self) -> None:
        """Ask again over a new connection: the broker may have restarted."""
        self._connection.post(Question(self._connection, lambda request: ListTopics(request, [self._name]), self._told))

    def raise_next(self) -> None:
        """Raise PartitionUnavailable for the next partition not reported yet."""
        if self.untold:
            number = next(iter(self.untold))
            error = PartitionUnavailable(self.untold.pop(number))
            error.partition = number
            raise error

    def _told(self, answer: Answer) -> None:
        if isinstance(answer, Topics) and answer.topics[0].topic == self._id:
            self._note(answer.topics[0])

    def _note(self, topic: Topic) -> None:
        before = self._found
        self._found = {each.partition: each.unavailable for each in topic.partitions if self._concerns(each)}
        self.untold = {
            number: why for number, why in self._found.items() if number not in before or number in self.untold
        }
