"""Upkeep: expiry of dead letters and of abandoned queue groups.

Idea: dead letters are discarded after `dead_retention_s`. A group without leases, settles or requests for a long time
is abandoned and deleted, as stream groups are, but only once its topic has no records any more: what waits for a worker
would be lost with the group, and what is done would be done again by a group of that name that is made later.
Requests that get no records renew the group in the log now and then, so that a group with idle workers survives a
restart.

Contract: every decision is an effect, in bounded portions, and goes back on nothing that is proposed. Time is log time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tables import effects as fx
from ...tables.queues.unfinished import unfinished
from ..requests.dead_letters import PORTION, ranges

if TYPE_CHECKING:
    from ...logs.grace import Grace
    from ...logs.partition import Partition
    from ...logs.topics import Topic
    from ...tables.queues.queue import Queue
    from ..lines import Lines
    from ..requests.leasing import LeaseRequests


class Upkeep:
    """Upkeep of all queue groups of a node."""

    def __init__(self, leasing: LeaseRequests, lines: Lines, grace: Grace, expiry_s: float) -> None:
        self._leasing = leasing
        self._lines = lines
        self._grace = grace
        self._expiry_s = expiry_s
        self._due: dict[Partition, dict[str, tuple[float, int]]] = {}  # by group: of what retention, when to look again

    def look(self, topic: Topic, partition: Partition, time_us: int) -> None:
        """Look at every group of a partition."""
        if partition.state_damaged:
            return
        standing = partition.committed.queues.by_name  # only there are times for certain
        if not standing:
            self.forget(partition)
            return
        self._due[partition] = {name: due for name, due in self._due.get(partition, {}).items() if name in standing}
        for queue in list(standing.values()):
            ahead = partition.latest.queues.by_name.get(queue.group)
            if ahead is not None:
                self._discard(partition, queue, ahead, time_us)
                self._renew_or_delete(topic, partition, queue, ahead, time_us)

    def _discard(self, partition: Partition, queue: Queue, ahead: Queue, time_us: int) -> None:
        """Discard old dead letters that nothing is proposed for. Log time never goes back: later ones are not older."""
        due, after_s, dead = self._due[partition], queue.settings.dead_retention_s, queue.dead_letters
        retention, due_us = due.get(queue.group, (after_s, 0))
        if not dead or (retention == after_s and time_us < due_us):
            return
        after_us, old = round(after_s * 1e6), list[int]()
        for at, each in dead.items():  # the oldest first
            if each.time_us > time_us - after_us or len(old) == PORTION:
                break
            if at in ahead.dead_letters:
                old.append(at)
        if old:
            partition.propose(fx.TasksDiscarded(queue.group, ranges(sorted(old))))
            due.pop(queue.group, None)
        else:
            due[queue.group] = (after_s, next(iter(dead.values())).time_us + after_us)

    def _renew_or_delete(self, topic: Topic, partition: Partition, queue: Queue, ahead: Queue, time_us: int) -> None:
        everywhere = _everywhere(topic, queue.group)
        last_us = max(each.last_us for each in everywhere)
        asked_us = self._lines.asked_us(topic, queue.group, time_us)
        silent = max(last_us, asked_us, queue.paused_until_us) < self._grace.silent_us(self._expiry_s)
        if silent and not any(map(_has_records, topic.readable)):
            self._leasing.leave(topic, queue.group)
            partition.propose(fx.QueueDeleted(queue.group))
        elif last_us < time_us - round(self._expiry_s / 2 * 1e6) and last_us < asked_us:
            partition.propose(fx.QueueSet(queue.group, ahead.settings.named(), ahead.start))

    def forget(self, partition: Partition) -> None:
        """The partition is gone."""
        self._due.pop(partition, None)


def _has_records(partition: Partition) -> bool:
    """Whether there is something to do, or that was done; what is delayed may be carried behind all records.

    Records that are proposed count.
    """
    state = partition.committed
    return state.first < partition.predicted_end or len(unfinished(state)) > 0


def _everywhere(topic: Topic, group: str) -> list[Queue]:
    """A group on all partitions of its topic."""
    found = (partition.committed.queues.by_name.get(group) for partition in topic.readable)
    return [queue for queue in found if queue is not None]
