"""Dead letters of one partition, listed with their records.

Contract: as committed; decides nothing. What cannot be read is left out.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from .....transport.queue_messages import DeadTask, DeadTasks, ListDead
from ....errors import InvalidRequest
from ..choosing.picking import Pick, Picker
from ..topic_queues import committed
from .dead_letters import LOOKS

if TYPE_CHECKING:
    from ...logs.topics import Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Work
    from ...tables.queues.queue import DeadLetter

LIST_MAX = 100
LIST_BYTES = 1 << 20
"""Limit of one answer; at least one record."""


class DeadLetterList:
    """Handler of ListDead."""

    def __init__(self, topics: Topics, port: Port) -> None:
        self.handlers: Handlers = {ListDead: self.list}
        self._topics = topics
        self._port = port
        self._picker = Picker(port)

    def list(self, peer: Peer, message: ListDead, payload: Payload, now: Now) -> Work:
        """One page of the dead letters of a partition, with their records. Raises UnknownGroup, InvalidRequest."""
        if message.max_records == 0:
            raise InvalidRequest("max_records=0 lists nothing: ask for one at least")
        topic = self._topics.get(message.topic)
        partition = topic.partition(message.partition)
        dead = committed(partition, message.group).dead_letters
        most = min(message.max_records, LIST_MAX)
        found: list[int] = []
        for looks, at in enumerate(list(dead), 1):
            each = dead.get(at)
            if each is not None and at >= message.offset and message.reason in each.reason:
                found.append(at)
            if looks % LOOKS == 0:
                found = heapq.nsmallest(most + 1, found)
                yield
        found = heapq.nsmallest(most + 1, [at for at in found if at in dead])
        tasks = [_described(at, dead[at]) for at in found]

        def done(pick: Pick) -> None:
            following = found[pick.next] if pick.next < len(found) else -1
            records = b"".join(batch.buffer for batch in pick.batches)
            self._port.reply(peer, DeadTasks(message.request, following, tasks[: pick.next]), records)

        self._picker.pick(Pick(partition, found[:most], LIST_BYTES, done))

    def warmed(self, pick: Pick) -> None:
        """Pages are in memory that a list waited for."""
        self._picker.warmed(pick)


def _described(offset: int, dead: DeadLetter) -> DeadTask:
    return DeadTask(offset, dead.attempt, dead.time_us, dead.reason, list(dead.history))
