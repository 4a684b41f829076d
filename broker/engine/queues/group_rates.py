"""Group rates: the rate of each queue group, over all partitions and workers of its topic.

Idea: a token bucket for each group that has a rate. Each lease takes a token for each record and logs when the bucket
is full again, so restarts and failovers go on with the bucket as it was. When it is empty, the group is shut until a
portion of tokens is there: requests that come meanwhile stand behind those that wait, and one alarm serves them all.

Contract: decides by the log time of the node, which is one for all partitions. Must not know requests and peers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..tables.queues.pace import SECOND
from .choosing.rates import Rates

if TYPE_CHECKING:
    from ..logs.log_registry import LogRegistry
    from ..logs.partition import Partition
    from ..tables.queues.pace import LeasePace
    from ..tables.queues.queue import Queue
    from ..turns.alarms import Alarms

UNLIMITED = 1 << 62

PORTION = SECOND // 100
"""A shut group waits for the tokens of 10 ms at a high rate, so that a lease is not of one record each."""

Name = tuple[str, str]
"""A topic and a group."""


class GroupRates:
    """The buckets of a node."""

    def __init__(self, registry: LogRegistry, alarms: Alarms[int], now_us: int) -> None:
        """`alarms` are of log time. Goes on with the buckets that the logs tell of."""
        self._alarms = alarms
        self._rates = Rates[Name]()
        self._shut: dict[Name, LeasePace] = {}  # until an alarm rings, or the pace is another
        self.refilled: dict[Name, None] = {}
        """Groups that open again: their requests are to be served."""
        for partition in registry.partitions.values():
            for queue in partition.committed.queues.by_name.values():
                pace = queue.settings.pace
                if pace is not None and queue.full_us:
                    self._rates.recall((partition.topic, queue.group), pace, now_us, queue.full_us)

    def room(self, partition: Partition, queue: Queue, now_us: int) -> int:
        """How many records of a group may be leased now."""
        pace = queue.settings.pace
        if pace is None:
            return UNLIMITED
        name = (partition.topic, queue.group)
        return 0 if self._shut.get(name) == pace else self._rates.room(name, pace, now_us)

    def spend(self, partition: Partition, queue: Queue, now_us: int, count: int) -> int:
        """So many records are leased. Returns what the lease is to log: when the bucket is full again; 0: no rate."""
        pace = queue.settings.pace
        return 0 if pace is None else self._rates.spend((partition.topic, queue.group), pace, now_us, count)

    def again_us(self, partition: Partition, queue: Queue, now_us: int) -> int:
        """When the next record may be leased; 0: now."""
        pace = queue.settings.pace
        return 0 if pace is None else self._rates.again_us((partition.topic, queue.group), pace, now_us)

    def wait(self, partition: Partition, queue: Queue, now_us: int) -> None:
        """A request found nothing: if the bucket is empty, shut the group until there is a portion of tokens."""
        pace, name = queue.settings.pace, (partition.topic, queue.group)
        if pace is None or self._shut.get(name) == pace or self._rates.room(name, pace, now_us):
            return
        self._shut[name] = pace
        portion = max(min(PORTION // pace.interval, pace.burst), 1)
        again_us = self._rates.again_us(name, pace, now_us, portion)
        self._alarms.set((GroupRates, name), again_us, partial(self._refill, name))

    def _refill(self, name: Name, now_us: int) -> None:
        self._shut.pop(name, None)
        self.refilled[name] = None

    def forget(self, topic: str) -> None:
        """A topic is deleted."""
        for name in [name for name in self._rates if name[0] == topic]:
            self.leave(*name)

    def leave(self, topic: str, group: str) -> None:
        """A group is deleted."""
        name = (topic, group)
        self._rates.drop(name)
        self._shut.pop(name, None)
        self._alarms.cancel((GroupRates, name))
