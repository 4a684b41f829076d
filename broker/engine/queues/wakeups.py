"""Wake-ups: when each queue group must be looked at again.

Idea: a group is due when a lease expires and, while a request waits for records, when a retry or a delayed record is
due, or a pause ends. One alarm per group and partition is set at the earliest of these. For a lease that a grace keeps,
one on the monotonic clock is set at the end of the grace.

Contract: `watch` may be called at any time and sets the alarm from the state. After a failed write it is called again,
because the proposals failed. Must not know peers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .choosing.choosing import next_timer_us
from .topic_queues import find, serves
from .verbs import expire, log_time

if TYPE_CHECKING:
    from ....storage.errors import Error
    from ..logs.clock import LogTime
    from ..logs.grace import Grace
    from ..logs.log_registry import LogRegistry
    from ..logs.partition import Partition
    from ..tables.producers import Place
    from ..tables.queues.queue import Queue
    from ..turns.alarms import Alarms
    from .lines import Lines

RETRY_US = 1_000_000
"""Delay before failed proposals are repeated."""

ENDLESS_S = 30.0
"""Workers renew leases without an end as often as those of so long. In such a group others may ask for an end."""

USUAL_MOST_S = 180.0
"""Workers with longer leases are back as soon as others, so longer ones have the grace of these: a minute."""


class Watching:
    """The alarms of all queue groups."""

    def __init__(
        self,
        registry: LogRegistry,
        alarms: Alarms[int],
        deadlines: Alarms[float],
        time: LogTime,
        grace: Grace,
        lines: Lines,
    ) -> None:
        self._registry = registry
        self._alarms = alarms
        self._deadlines = deadlines
        self._grace = grace
        self._time = time
        self._lines = lines
        self.rung: list[tuple[Partition, str]] = []
        self._ending: set[tuple[Partition, str]] = set()  # more leases end once those that ended are committed

    def watch(self, partition: Partition, group: str) -> None:
        """Set the alarm of a group."""
        queue = find(partition, group)
        if queue is None or not serves(partition) or not self._registry.holds(partition):
            return
        lease, usual_s = queue.leases.next_end(), _usual_s(queue)
        if lease is not None and self._grace.keeps(lease.until_us, usual_s):
            key, look = (Watching, partition, group), lambda _: self._ring(partition, group, self._time.last_us)
            self._deadlines.set(key, self._grace.end_s(usual_s), look)
        elif lease is not None and (partition, group) not in self._ending:
            self._set(partition, group, lease.until_us)
        if self._lines.wanted(partition, group):
            now_us = log_time(partition, self._time.last_us)
            timer_us = next_timer_us(queue, partition.committed.shelves, now_us)
            for chance_us in (next_chance(queue, now_us), timer_us):
                if chance_us is not None:
                    self._set(partition, group, chance_us)

    def watch_all(self, partition: Partition) -> None:
        """Set the alarms of all groups of a partition."""
        for group in list(partition.latest.queues.by_name):
            self.watch(partition, group)

    def ring_at(self, partition: Partition, group: str, time_us: int) -> None:
        """Look at a group at a time that does not follow from the state."""
        self._set(partition, group, time_us)

    def forget(self, partition: Partition) -> None:
        """The partition is gone."""
        for group in list(partition.latest.queues.by_name):
            self._ending.discard((partition, group))
            self._alarms.cancel((partition, group))
            self._deadlines.cancel((Watching, partition, group))

    def _set(self, partition: Partition, group: str, time_us: int) -> None:
        self._alarms.set((partition, group), time_us, partial(self._ring, partition, group))

    def _ring(self, partition: Partition, group: str, now_us: int) -> None:
        queue = find(partition, group)
        if queue is not None:
            over_us = self._grace.over_us(_usual_s(queue))
            if expire(partition, group, over_us, Revisit(self, partition, group, now_us)):
                self._ending.add((partition, group))
        self.rung.append((partition, group))

    def take_rung(self) -> list[tuple[Partition, str]]:
        """The groups whose alarm rang: offer their records to the requests that wait, and watch them again."""
        rung, self.rung = self.rung, []
        return rung

    def go_on(self, partition: Partition, group: str, time_us: int) -> None:
        """Leases that ended are committed: end more, if there are any."""
        if (partition, group) in self._ending:
            self._ending.remove((partition, group))
            self._set(partition, group, time_us)

    def again(self, partition: Partition, group: str, time_us: int) -> None:
        """Look at a group in a while: something of it could not be written."""
        self._ending.discard((partition, group))
        self._set(partition, group, time_us + RETRY_US)


def _usual_s(queue: Queue) -> float:
    """How long leases of a group are, as far as their grace goes."""
    return ENDLESS_S if queue.settings.lease_s is None else min(queue.settings.lease_s, USUAL_MOST_S)


def next_chance(queue: Queue, now_us: int) -> int | None:
    """When a group may have something that it does not have at `now_us`, because time passed alone."""
    if queue.paused_until_us > now_us:
        return queue.paused_until_us
    return queue.retrying.next_us(now_us)


class Revisit:
    """Waits for expired leases to be taken back, has more of them taken back then, and failures retried."""

    __slots__ = ("_group", "_partition", "_time_us", "_watching")

    def __init__(self, watching: Watching, partition: Partition, group: str, time_us: int) -> None:
        self._watching = watching
        self._partition = partition
        self._group = group
        self._time_us = time_us

    def committed(self, place: Place) -> None:
        self._watching.go_on(self._partition, self._group, self._time_us)

    def failed(self, error: Error) -> None:
        self._watching.again(self._partition, self._group, self._time_us)
