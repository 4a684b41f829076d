"""Lines: waiting requests for records, first come first served, by topic and group.

A request that finds records as it comes stands in no line: of those that came in the same turn, it may have the first.

Contract: a request stands in one line until it leaves. Memory: one entry per waiting request, up to a limit, and one
per worker that asked, up to another. Reads no records and sends no answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import GroupActive
from ..turns.parked import Parked

if TYPE_CHECKING:
    from ....transport.messages import Lease, Refusal
    from ..logs.clock import LogTime
    from ..logs.partition import Partition
    from ..logs.topics import Topic, Topics
    from ..ports import Peer
    from ..turns.alarms import Alarms
    from ..turns.replies import Gather
    from .choosing.lease_reading import LeaseReading
    from .verbs import Granted


ASKERS_MAX = 1000
"""Workers of a line of which it is known when they asked last: as many as a partition remembers."""


class Demand:
    """One Lease that was not answered yet."""

    __slots__ = (
        "deadline_s",
        "gather",
        "granted",
        "message",
        "number",
        "partition",
        "peer",
        "reading",
        "refused",
        "topic",
    )

    def __init__(self, number: int, peer: Peer, topic: Topic, message: Lease, deadline_s: float) -> None:
        self.number = number
        self.peer = peer
        self.topic = topic
        self.message = message
        self.deadline_s = deadline_s
        self.gather: Gather
        self.refused: list[Refusal] = []
        self.partition: Partition | None = None  # that of the lease
        self.granted: Granted | None = None
        self.reading: LeaseReading | None = None


class Line:
    """The requests that wait for records of one group of a topic."""

    __slots__ = ("asked_us", "askers", "demands", "prepared", "turn")

    def __init__(self) -> None:
        self.asked_us = 0  # when a request came last
        self.askers: dict[str, int] = {}  # when one of each worker came, or ceased to wait; the latest last
        self.demands: dict[int, Demand] = {}  # by number, the first come first
        self.prepared = 0  # partitions of which it is known that they have the group
        self.turn = 0  # the partition that is looked at next

    def asks(self, worker: str, now_us: int) -> None:
        """A request came, or waits no longer."""
        self.asked_us = now_us
        self.askers.pop(worker, None)
        self.askers[worker] = now_us
        if len(self.askers) > ASKERS_MAX:
            del self.askers[next(iter(self.askers))]


class Lines:
    """The lines of all groups of a node. `parked` has the same requests by connection and by deadline."""

    def __init__(self, topics: Topics, deadlines: Alarms[float], time: LogTime) -> None:
        self.parked = Parked[Demand]("requests for leases", deadlines, self.give_up)
        self._topics = topics
        self._time = time
        self._by_topic: dict[Topic, dict[str, Line]] = {}

    def of(self, topic: Topic, group: str) -> Line:
        """The line of a group."""
        lines = self._by_topic.get(topic)
        if lines is None:
            lines = self._by_topic[topic] = {}
        line = lines.get(group)
        if line is None:
            line = lines[group] = Line()
        return line

    def at(self, partition: Partition) -> list[Line]:
        """The lines in which requests may wait for records of a partition."""
        topic = self._topics.by_name.get(partition.topic)
        return list(self._by_topic.get(topic, {}).values()) if topic is not None else []

    def stand(self, demand: Demand) -> None:
        """A request waits from now on."""
        self.of(demand.topic, demand.message.group).demands[demand.number] = demand
        self.parked.add(demand)

    def leave(self, demand: Demand) -> None:
        """A request is answered, or its peer is gone."""
        self.parked.remove(demand)
        line = self._by_topic[demand.topic][demand.message.group]
        del line.demands[demand.number]
        line.asks(demand.message.worker, self._time.last_us)

    def give_up(self, demand: Demand) -> None:
        """Answer a request that waits no longer: without records, or with the error of its settles."""
        self.leave(demand)
        demand.gather.ready()

    def wanted(self, partition: Partition, group: str) -> bool:
        """Whether a request waits for records of a group."""
        topic = self._topics.by_name.get(partition.topic)
        line = None if topic is None else self._by_topic.get(topic, {}).get(group)
        return line is not None and bool(line.demands)

    def asked_us(self, topic: Topic, group: str, now_us: int) -> int:
        """When records of a group were asked for last: now, while a request waits; 0: not since the node opened."""
        line = self._by_topic.get(topic, {}).get(group)
        if line is None:
            return 0
        return now_us if line.demands else line.asked_us

    def askers(self, topic: Topic, group: str, now_us: int) -> dict[str, tuple[int, bool]]:
        """When each worker asked for records of a group last, which is now while a request of it waits; and whether."""
        line = self._by_topic.get(topic, {}).get(group)
        if line is None:
            return {}
        asked = {worker: (asked_us, False) for worker, asked_us in line.askers.items()}
        return asked | {each.message.worker: (now_us, True) for each in line.demands.values()}

    def unprepared(self, topic: Topic, group: str) -> None:
        """Forget which partitions have a group."""
        line = self._by_topic.get(topic, {}).get(group)
        if line is not None:
            line.prepared = 0

    def close(self, topic: Topic, group: str) -> None:
        """A group is about to be deleted. Raises GroupActive while a request waits for its records."""
        line = self._by_topic.get(topic, {}).get(group)
        if line is not None and line.demands:
            workers = ", ".join(sorted({demand.message.worker or "unnamed" for demand in line.demands.values()}))
            raise GroupActive(
                f"workers of group {group} of topic {topic.name} wait for records ({workers}): stop them first"
            )
        self.forget(topic, group)

    def forget(self, topic: Topic, group: str) -> None:
        """A group is not there: neither is its line, unless a request waits in it."""
        line = self._by_topic.get(topic, {}).get(group)
        if line is not None and not line.demands:
            del self._by_topic[topic][group]

    def drop(self, topic: Topic) -> list[Demand]:
        """Forget the lines of a topic that is gone. Returns the requests that stood in them."""
        dropped = [demand for line in self._by_topic.pop(topic, {}).values() for demand in line.demands.values()]
        for demand in dropped:
            self.parked.remove(demand)
        return dropped
