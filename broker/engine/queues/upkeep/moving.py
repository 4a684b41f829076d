"""Moving: appends the records in a partition's outbox to their target topics, each exactly once.

Idea: entries are moved in rounds (rounds.py). Every commit to a log checks its outbox; entries that could not be moved
are retried after a pause.

Contract: one round of a partition at a time, and copies reach a partition of the target in the order of their numbers;
so the highest number there is enough to know which copies arrived. Entries that cannot be moved (no such topic, a full
disk) stay and are retried, no later entry for the same topic passes them, and `stats` says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from .resting import Rests
from .rounds import Round, producer_of

if TYPE_CHECKING:
    from .....storage.errors import Error
    from ...logs.clock import LogTime
    from ...logs.log_registry import LogRegistry
    from ...logs.partition import Partition
    from ...turns.alarms import Alarms
    from ..choosing.picking import Picker

PORTION = 200
"""Entries of one round."""


class Mover:
    """Moves the outboxes of all partitions of a node."""

    def __init__(self, registry: LogRegistry, picker: Picker, alarms: Alarms[int], time: LogTime) -> None:
        """Looks at what the logs say as soon as time passes."""
        self.registry = registry
        self.picker = picker
        self.producers: dict[Partition, int] = {}  # of the partitions that have something to move
        self._alarms = alarms
        self._time = time
        self._busy: set[Partition] = set()
        self._resting: dict[Partition, Rests[str]] = {}  # by topic, of the entries of a partition
        self._looked: dict[Partition, int] = {}  # the last number when there was nothing but what rests
        for partition in registry.partitions.values():
            if partition.committed.outbox.entries:
                self.producers[partition] = producer_of(partition.log.log_id)
                self._look_at(partition, 0)

    def look(self, source: Partition) -> None:
        """Begin a round when there is something to move and none is under way."""
        outbox = source.committed.outbox
        if not outbox.entries:
            self._forget(source)
            return
        self.producers[source] = producer_of(source.log.log_id)
        if source in self._busy or source.state_damaged or self._looked.get(source) == outbox.last:
            return
        rests = self._resting.get(source)
        resting = set[str]() if rests is None else rests.at(self._time.last_us)
        some = list(islice((each for each in outbox.entries.values() if each.target not in resting), PORTION))
        if some:
            self._busy.add(source)
            Round(self, source, some).begin()
        else:
            self._looked[source] = outbox.last

    def over(self, source: Partition, moved: Iterable[str] = ()) -> None:
        """A round is over; entries for these topics were moved."""
        self._busy.discard(source)
        rests = self._resting.get(source)
        if rests is not None:
            for target in moved:
                rests.succeeded(target)
        self._look_again(source)

    def rest(self, source: Partition, target: str, error: Error) -> None:
        """Entries for a topic cannot be moved for now."""
        rests = self._resting.setdefault(source, Rests())
        self._look_at(source, rests.failed(target, error, self._time.last_us))

    def _look_at(self, source: Partition, time_us: int) -> None:
        self._alarms.set((self, source), time_us, lambda now_us: self._ring(source, now_us))

    def _ring(self, source: Partition, now_us: int) -> None:
        self._look_again(source)
        rests = self._resting.get(source)
        later_us = None if rests is None else rests.next_us(now_us)
        if later_us is not None:
            self._look_at(source, later_us)

    def _look_again(self, source: Partition) -> None:
        self._looked.pop(source, None)
        if self.registry.holds(source) and source.log.poisoned is None:
            self.look(source)
        else:
            self._forget(source)

    def _forget(self, source: Partition) -> None:
        self.producers.pop(source, None)
        self._resting.pop(source, None)
        self._looked.pop(source, None)

    def stats(self) -> dict[str, Any]:
        """Numbers for people, and why something does not move."""
        rests = [rest for found in self._resting.values() for rest in found.by_target.values()]
        return {
            "outbox.waiting": sum(len(source.committed.outbox.entries) for source in self.producers),
            "outbox.stuck": len(rests),
            "outbox.stuck_because": rests[0].error.message if rests else "",
        }
