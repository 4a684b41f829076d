"""Watching: which queue group has to be looked at when.

Idea: a queue group is looked at when a lease ends, when a record may be tried again, and when a pause is over; for the
latter two only while somebody waits for records. One alarm per group and partition is set at the earliest of these.

Contract: `watch` may be called at any time and sets what follows from the state. After a failed write it is called
again, because what was proposed does not stand. Must not know peers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....storage.errors import Error
    from ..house import House
    from ..partition import Partition
    from ..producers import Place
    from .alarms import Alarms

RETRY_US = 1_000_000
"""How soon what could not be written is proposed again."""


class Watching:
    """The alarms of all queue groups. `wanted` says whether somebody waits for records of a group here, `offer` that
    there may be some."""

    def __init__(
        self,
        house: House,
        alarms: Alarms,
        wanted: Callable[[Partition, str], bool],
        offer: Callable[[Partition, int], None],
    ) -> None:
        self._house = house
        self._alarms = alarms
        self._wanted = wanted
        self._offer = offer

    def watch(self, partition: Partition, group: str) -> None:
        """Set the alarm of a group."""
        queue = partition.work.find(group)
        if queue is None or partition.ledger.damaged or not self._house.holds(partition.ledger):
            return
        lease = queue.leases.next_end()
        times = [] if lease is None else [lease.until_us]
        if self._wanted(partition, group):
            ready_us = queue.waiting.next_us()
            if queue.paused_until_us:
                times.append(queue.paused_until_us)
            elif ready_us is not None:
                times.append(ready_us)
        if times:
            self._set(partition, group, min(times))

    def watch_all(self, partition: Partition) -> None:
        """Set the alarms of all groups of a partition."""
        for group in list(partition.ledger.head.queues.by_name):
            self.watch(partition, group)

    def forget(self, partition: Partition) -> None:
        """The partition is gone."""
        for group in list(partition.ledger.head.queues.by_name):
            self._alarms.cancel((partition, group))

    def _set(self, partition: Partition, group: str, time_us: int) -> None:
        self._alarms.set((partition, group), time_us, partial(self._ring, partition, group))

    def _ring(self, partition: Partition, group: str, now_us: int) -> None:
        partition.work.expire(group, now_us, Again(self, partition, group, now_us))
        self._offer(partition, now_us)
        self.watch(partition, group)

    def again(self, partition: Partition, group: str, time_us: int) -> None:
        """Look at a group in a while: something of it could not be written."""
        self._set(partition, group, time_us + RETRY_US)


class Again:
    """Waits for leases that ran out to be taken back, and sees that it is tried again."""

    __slots__ = ("_group", "_partition", "_time_us", "_watching")

    def __init__(self, watching: Watching, partition: Partition, group: str, time_us: int) -> None:
        self._watching = watching
        self._partition = partition
        self._group = group
        self._time_us = time_us

    def committed(self, place: Place) -> None:
        """It stands."""

    def failed(self, error: Error) -> None:
        self._watching.again(self._partition, self._group, self._time_us)
