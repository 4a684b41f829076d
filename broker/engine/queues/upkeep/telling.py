"""Telling: says to barriers how their members ended, each end until the barrier has it.

Idea: an end stands in the log of the member's partition beside whatever ended it (tables/ties.py), and a barrier in the
log of its own. The word is logged there first, and after its commit the telling is removed here. A crash between the
two repeats the word, which changes nothing.

Contract: the tellings of a partition reach a place (one partition of one topic) in the order of their numbers, by
portions. What cannot be told (a full disk) is retried after a pause and holds up no other place. Tellings for a topic
that is deleted are removed. `stats` says what waits, and why. Members in a topic that is deleted are told of once, from
memory: a crash right then leaves their barriers waiting until their time is over.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .....storage.errors import Error
from ....errors import UnknownTopic
from ...tables import effects as fx
from ...tables.barriers import DELETED
from ...tables.ties import MemberEnd
from ...turns.replies import Gather
from ..requests.dead_letters import ranges
from ..topic_queues import check_serves, serves
from .resting import Rests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...logs.clock import LogTime
    from ...logs.log_registry import LogRegistry
    from ...logs.partition import Partition
    from ...logs.topics import Topic
    from ...turns.alarms import Alarms
    from .barriers import Barriers

PORTION = 200
PORTION_BYTES = 1 << 20
"""Tellings of one look, and the bytes of their results; at least one."""

Place = tuple[bytes, int]
"""Topic and partition of a barrier."""


class Source:
    """A partition that has something to tell."""

    def __init__(self) -> None:
        self.busy: set[Place] = set()  # to which something is on its way
        self.rests: Rests[Place] = Rests()
        self.looked = 0  # the last number when there was nothing but what is on its way, or rests


class Teller:
    """Tells the barriers of all partitions of a node."""

    def __init__(self, registry: LogRegistry, barriers: Barriers, alarms: Alarms[int], time: LogTime) -> None:
        """Looks at what the logs say as soon as time passes."""
        self._registry = registry
        self._barriers = barriers
        self._alarms = alarms
        self._time = time
        self._sources: dict[Partition, Source] = {}
        for partition in registry.partitions.values():
            if partition.committed.ties.tellings:
                self._look_at(partition, 0)

    def look(self, partition: Partition) -> None:
        """Tell what is not on its way yet."""
        ties = partition.committed.ties
        source = self._sources.setdefault(partition, Source())
        if not ties.tellings and not source.busy:
            del self._sources[partition]
        elif source.looked != ties.last and serves(partition):
            blocked = source.busy | source.rests.at(self._time.last_us)
            some = _portion(ties.tellings.values(), blocked)
            if not some:
                source.looked = ties.last
            for place, tellings in _by_place(some).items():
                source.busy.add(place)
                self._tell(partition, source, place, tellings)

    def _tell(self, partition: Partition, source: Source, place: Place, tellings: list[MemberEnd]) -> None:
        topic, number = place

        def told() -> None:
            source.rests.succeeded(place)
            self._remove(partition, source, place, tellings)

        def failed(error: Error) -> None:
            self._rest(partition, source, place, error)

        waiter = Gather(told, failed)
        try:
            target = self._registry.topics.get(topic).partition(number)
            check_serves(target)
            origin = self._registry.topics.by_name[partition.topic].id, partition.number
            self._barriers.tell(target, origin, tellings, waiter)
        except UnknownTopic:
            pass  # the barrier is gone with its topic
        except Error as error:
            waiter.failed(error)
            return
        waiter.ready()

    def _remove(self, partition: Partition, source: Source, place: Place, tellings: list[MemberEnd]) -> None:
        """The barriers have the words: log that."""
        if not self._holds(partition):
            return
        waiter = Gather(
            lambda: self._go_on(partition, source, place),
            lambda error: self._rest(partition, source, place, error),
        )
        partition.propose(fx.MembersTold(ranges([telling.number for telling in tellings])), waiter)

    def _rest(self, partition: Partition, source: Source, place: Place, error: Error) -> None:
        until_us = source.rests.failed(place, error, self._time.last_us)
        self._look_at(partition, until_us)
        self._go_on(partition, source, place)

    def _go_on(self, partition: Partition, source: Source, place: Place) -> None:
        """Something that was on its way has arrived, or failed."""
        source.busy.discard(place)
        source.looked = 0
        if self._holds(partition):
            self.look(partition)

    def _look_at(self, partition: Partition, time_us: int) -> None:
        self._alarms.set((self, partition), time_us, lambda now_us: self._ring(partition, now_us))

    def _ring(self, partition: Partition, now_us: int) -> None:
        source = self._sources.setdefault(partition, Source())
        later_us = source.rests.next_us(now_us)
        if later_us is not None:
            self._look_at(partition, later_us)
        source.looked = 0
        if self._holds(partition):
            self.look(partition)

    def _holds(self, partition: Partition) -> bool:
        """Whether the partition can still log something; it is forgotten when not."""
        holds = self._registry.holds(partition) and partition.log.poisoned is None
        if not holds:
            self._sources.pop(partition, None)
        return holds

    def topic_deleted(self, topic: Topic) -> None:
        """A topic is about to go, and its partitions will log nothing any more: what is open there is over."""
        for partition in topic.readable:
            ties = partition.committed.ties
            gone = [
                MemberEnd(0, tie.topic, tie.partition, tie.barrier, tie.member, DELETED, b"", "")
                for tie in ties.open.values()
            ]
            for (target, number), tellings in _by_place([*ties.tellings.values(), *gone]).items():
                home = self._registry.topics.by_id.get(target)
                if home is not None:
                    with suppress(Error):
                        nothing = Gather(lambda: None, lambda error: None)
                        self._barriers.tell(home.partition(number), (topic.id, partition.number), tellings, nothing)
            self._sources.pop(partition, None)

    def stats(self) -> dict[str, Any]:
        """Numbers for people, and why a barrier is not told."""
        rests = [rest for source in self._sources.values() for rest in source.rests.by_target.values()]
        return {
            "barriers.untold": sum(len(partition.committed.ties.tellings) for partition in self._sources),
            "barriers.stuck": len(rests),
            "barriers.stuck_because": rests[0].error.message if rests else "",
        }


def _portion(tellings: Iterable[MemberEnd], blocked: set[Place]) -> list[MemberEnd]:
    """The next tellings for places that are not blocked."""
    found: list[MemberEnd] = []
    size = 0
    for telling in tellings:
        if (telling.topic, telling.partition) in blocked:
            continue
        size += len(telling.result)
        if len(found) == PORTION or (found and size > PORTION_BYTES):
            break
        found.append(telling)
    return found


def _by_place(tellings: Iterable[MemberEnd]) -> dict[Place, list[MemberEnd]]:
    found: dict[Place, list[MemberEnd]] = {}
    for telling in tellings:
        found.setdefault((telling.topic, telling.partition), []).append(telling)
    return found
