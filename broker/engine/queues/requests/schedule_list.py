"""Schedules as they are committed, listed by topic and name.

Contract: decides nothing, and is done in steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....transport.messages import ListSchedules, Schedule, Schedules

if TYPE_CHECKING:
    from ...guard import Guard, Sees
    from ...logs.partition import Partition
    from ...logs.topics import Topic, Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Work
    from ...tables.timetable import ScheduleBody

LISTED = 32
"""Partitions or schedules examined in one step."""


class ScheduleList:
    """Handler of ListSchedules."""

    def __init__(self, topics: Topics, port: Port, guard: Guard) -> None:
        self.handlers: Handlers = {ListSchedules: self.list}
        self._topics = topics
        self._port = port
        self._guard = guard

    def list(self, peer: Peer, message: ListSchedules, payload: Payload, now: Now) -> Work:
        """Schedules as they are committed, by topic and name."""
        return self._list(peer, message, self._guard.viewer())

    def _list(self, peer: Peer, message: ListSchedules, sees: Sees) -> Work:
        topics = self._topics
        found = [topics.get(message.topic)] if message.topic else [topics.by_name[n] for n in sorted(topics.by_name)]
        listed: list[Schedule] = []
        places = [(topic, partition) for topic in found for partition in topic.readable]
        for looks, (topic, partition) in enumerate(places, 1):
            schedules_there = list(partition.committed.schedules.by_name.values())
            for at in range(0, len(schedules_there), LISTED):
                some = schedules_there[at : at + LISTED]
                listed += [
                    describe(topic, partition, each) for each in some if sees(f"schedule:{topic.name}/{each.name}")
                ]
                yield
            if looks % LISTED == 0:
                yield
        listed.sort(key=lambda each: (each.topic_name, each.name))
        self._port.reply(peer, Schedules(message.request, listed))


def describe(topic: Topic, partition: Partition, schedule: ScheduleBody) -> Schedule:
    """A schedule of a partition."""
    return Schedule(
        topic.id, topic.name, schedule.name, schedule.spec, schedule.zone, schedule.value, schedule.key,
        schedule.next_us, schedule.last_us, partition.number, schedule.coalesce,
    )  # fmt: skip
