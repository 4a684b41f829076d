"""Barriers as they are committed, with the members that they wait for.

Contract: decides nothing, and is done in steps.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from .....transport.barrier_messages import LISTED_MAX, Barrier, Barriers, ListBarriers

if TYPE_CHECKING:
    from ...guard import Guard, Sees
    from ...logs.partition import Partition
    from ...logs.topics import Topic, Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Work
    from ...tables import barriers as tables

NOT_NAMED = ("", 0, -1)

LISTED = 16
"""Partitions or barriers examined in one step."""

ANSWERED_MAX = 10_000
"""Barriers of one answer."""


class BarrierList:
    """Handler of ListBarriers."""

    def __init__(self, topics: Topics, port: Port, guard: Guard) -> None:
        self.handlers: Handlers = {ListBarriers: self.list}
        self._topics = topics
        self._port = port
        self._guard = guard

    def list(self, peer: Peer, message: ListBarriers, payload: Payload, now: Now) -> Work:
        """Barriers as they are committed, by topic, those that were set first in front."""
        return self._list(peer, message, self._guard.viewer())

    def _list(self, peer: Peer, message: ListBarriers, sees: Sees) -> Work:
        topics = self._topics
        found = [topics.get(message.topic)] if message.topic else [topics.by_name[n] for n in sorted(topics.by_name)]
        listed: list[Barrier] = []
        most = min(message.most, ANSWERED_MAX)
        places = [(topic, each) for topic in found if sees(f"topic:{topic.name}") for each in topic.readable]
        for looks, (topic, partition) in enumerate(places, 1):
            there = list(islice(partition.committed.barriers.by_id.values(), most - len(listed)))
            for at in range(0, len(there), LISTED):
                listed += [describe(topics, topic, partition, each, sees) for each in there[at : at + LISTED]]
                yield
            if looks % LISTED == 0:
                yield
        self._port.reply(peer, Barriers(message.request, listed))


def describe(
    topics: Topics, topic: Topic, partition: Partition, barrier: tables.BarrierBody, sees: Sees
) -> Barrier:  # fmt: skip
    """A barrier of a partition. Members are named as far as their topics may be seen."""
    waiting = (member for member in range(barrier.members) if member not in barrier.words)
    holding = ((member, word) for member, word in sorted(barrier.words.items()) if barrier.holds_up(word))
    named = list(islice(holding, LISTED_MAX))
    return Barrier(
        topic.id, topic.name, partition.number, barrier.barrier, barrier.members, barrier.ended, barrier.headers,
        barrier.until_us, barrier.members - len(barrier.words), list(islice(waiting, LISTED_MAX)),
        [(member, word.state, word.reason) for member, word in named], [_task(topics, word, sees) for _, word in named],
    )  # fmt: skip


def _task(topics: Topics, word: tables.Word, sees: Sees) -> tuple[str, int, int]:
    """The record of a member, by the name of its topic: NOT_NAMED where that is gone, or not to be told."""
    topic_id, number, offset = word.task
    home = topics.by_id.get(topic_id)
    return NOT_NAMED if home is None or offset < 0 or not sees(f"topic:{home.name}") else (home.name, number, offset)
