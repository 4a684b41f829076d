"""Settling: requests that say what became of leased records, and that keep leases.

Contract: one Settle that is refused does not touch the others. An answer leaves when all the others are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import Refusal, Settle, Settled, SettleTasks
from ..names import check_name
from ..replies import Gather, failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..clock import LogTime
    from ..ports import Handlers, Now, Payload, Peer, Port, Randomness
    from ..topics import Topic, Topics
    from .watching import Watching


class Settling:
    """Handlers of SettleTasks and ExtendLeases."""

    def __init__(self, topics: Topics, port: Port, time: LogTime, randomness: Randomness, watching: Watching) -> None:
        self.handlers: Handlers = {SettleTasks: self.settle}
        self._topics = topics
        self._port = port
        self._time = time
        self._randomness = randomness
        self._watching = watching

    def settle(self, peer: Peer, message: SettleTasks, payload: Payload, now: Now) -> None:
        """Settle what can be, refuse the rest."""
        topic = self._topics.get(message.topic)
        check_name("group", message.group)
        refused: list[Refusal] = []

        def finish() -> None:
            self._port.reply(peer, Settled(message.request, refused))

        def refuse(error: Error) -> None:
            self.failed(topic, message.group, message.settles)
            self._port.reply(peer, failure(message.request, error))

        gather = Gather(finish, refuse)
        refused += self.propose(topic, message.group, message.settles, now, gather)
        gather.ready()

    def propose(self, topic: Topic, group: str, settles: Sequence[Settle], now: Now, gather: Gather) -> list[Refusal]:
        """Propose each; `gather` waits for them. Returns what was refused."""
        now_us, refused = self._time.read(now), list[Refusal]()
        for index, settle in enumerate(settles):
            try:
                partition = topic.partition(settle.partition)
                partition.work.settle(group, settle, now_us, self._chance)
            except Error as error:
                refused.append(Refusal(index, error.code, error.message))
                continue
            partition.ledger.barrier(gather.one())
            self._watching.watch(partition, group)
        return refused

    def failed(self, topic: Topic, group: str, settles: Sequence[Settle]) -> None:
        """What was proposed does not stand: the leases are as they were."""
        numbers = {settle.partition for settle in settles}
        for partition in topic.readable:
            if partition.number in numbers:
                self._watching.watch(partition, group)

    def _chance(self) -> float:
        return int.from_bytes(self._randomness(4), "little") / 2**32
