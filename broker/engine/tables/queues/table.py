"""All queue groups of one partition: applies the effects of queues.

Contract: decides nothing and fails on nothing. An effect on a deleted group changes nothing. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .....storage.finals import Outcome
from .. import effects as fx
from .queue import Queue, QueueBody
from .settings import parse
from .voids import Voids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .kept import Kept
    from .shelves import Shelves

Ended = tuple[Outcome, int, int]
"""How, first offset, how many."""


class EndListener(Protocol):
    """Receives records that end with a result or reason."""

    def noted(self, group: str, found: Iterable[Ended]) -> None:
        """Records ended."""
        ...

    def batch_applied(self, seq: int) -> None:
        """The noted records ended in batch `seq`."""
        ...

    def dropped(self, group: str) -> None:
        """Delete a group."""
        ...


class QueueTable:
    """Queue groups by name. `finals`, where what is applied is committed, is told of records that end."""

    def __init__(self, voids: Voids | None = None) -> None:
        self.voids = Voids() if voids is None else voids  # skipped by every group
        self.by_name: dict[str, Queue] = {}
        self.first = 0  # where the log begins
        self.finals: EndListener | None = None

    def apply(self, effect: fx.QueueEffect, time_us: int) -> None:
        """One effect."""
        if isinstance(effect, fx.QueueSet):
            self._set(effect, time_us)
        elif isinstance(effect, fx.QueueDeleted):
            self._deleted(effect.group)
        queue = self.by_name.get(effect.group)
        if queue is not None:
            queue.last_us = time_us
            _apply(queue, effect, time_us)
            if self.voids:
                self._leave_out(queue, effect)
            self._ended(queue, effect)

    def _ended(self, queue: Queue, effect: fx.QueueEffect) -> None:
        found = ended(effect)
        if found:
            queue.finals += sum(count for _, _, count in found)
            if self.finals is not None:
                self.finals.noted(queue.group, found)

    def _deleted(self, group: str) -> None:
        if self.by_name.pop(group, None) is not None and self.finals is not None:
            self.finals.dropped(group)

    def _set(self, effect: fx.QueueSet, time_us: int) -> None:
        settings = parse(effect.settings)
        known = self.by_name.get(effect.group)
        if known is None:
            self.by_name[effect.group] = Queue(effect.group, settings, effect.start, self.first)
        else:
            known.set(settings, time_us)

    def passed_over(self, offset: int) -> None:
        """A record is void."""
        for queue in self.by_name.values():
            queue.passed_over(offset)

    def drop_below(self, first: int) -> None:
        """The log was asked to give up records before `first`."""
        for queue in self.by_name.values():
            queue.drop_below(first)

    def forget_below(self, first: int, kept: Kept) -> None:
        """The log begins at `first`."""
        self.first = first
        for queue in self.by_name.values():
            queue.forget_below(first, kept)

    def delete(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Records (first offset, how many) are deleted."""
        for queue in self.by_name.values():
            for first, count in ranges:
                for offset in range(first, first + count):
                    queue.delete(offset)

    def begun(self, offset: int, shelves: Shelves) -> bool:
        """Whether a group has, or had, a record as its work."""
        return any(queue.begun(offset, shelves) for queue in self.by_name.values())

    def _leave_out(self, queue: Queue, effect: fx.QueueEffect) -> None:
        """Remove void records that an effect returns to a group: it was decided before they were void."""
        for first, count in _coming(effect):
            for offset in self.voids.between(first, first + count):
                queue.passed_over(offset)

    def dump(self) -> list[QueueBody]:
        """Dump for a snapshot, in a fixed order."""
        return [self.by_name[name].dump() for name in sorted(self.by_name)]

    @classmethod
    def load(cls, bodies: list[QueueBody], voids: Voids, first: int) -> QueueTable:
        """Restore from a snapshot of a log that begins at `first`."""
        table = cls(voids)
        table.first = first
        table.by_name = {body.group: Queue.load(body, first) for body in bodies}
        return table


def ended(effect: fx.Effect) -> list[Ended]:
    """The records that an effect ends with a result or reason."""
    match effect:
        case fx.TasksFinished():
            return [(Outcome.RESULT, offset, 1) for offset, _ in effect.results]
        case fx.TasksDiscarded():
            return [(Outcome.DISCARDED, first, count) for first, count in effect.ranges]
        case fx.TasksCancelled():
            return [(Outcome.CANCELLED, offset, 1) for offset in effect.offsets]
        case _:
            return []


def _coming(effect: fx.QueueEffect) -> list[tuple[int, int]]:
    """(first offset, how many) of records that an effect makes retry."""
    match effect:
        case fx.LeaseGranted() | fx.TasksTaken():
            return [(offset, 1) for offset, _ in effect.held]
        case fx.TasksReturned() | fx.TasksRedriven():
            return [(run[0], run[1]) for run in effect.runs]
        case _:
            return []


def _apply(queue: Queue, effect: fx.QueueEffect, time_us: int) -> None:
    match effect:
        case fx.LeaseGranted():
            queue.granted(effect, time_us)
        case fx.TasksTaken():
            queue.taken(effect, time_us)
        case fx.TasksFinished():
            queue.finished(effect.token, effect.ranges, time_us)
        case fx.LeasesExtended():
            queue.extended(effect, time_us)
        case fx.TasksReturned():
            queue.returned(effect, time_us)
        case fx.TasksDied():
            queue.died(effect, time_us)
        case fx.TasksRedriven():
            queue.redriven(effect.runs)
        case fx.TasksDiscarded():
            queue.discarded(effect.ranges, time_us)
        case fx.TasksCancelled():
            queue.cancel(effect.offsets, time_us)
        case fx.FrontierMoved():
            queue.moved(effect)
        case fx.QueueMoved(offset=offset):
            queue.begin_at(offset)
        case fx.WorkerMade(worker=worker):
            queue.workers.made(worker, time_us, queue.leases.by_worker)
        case fx.WorkerForgotten(worker=worker):
            queue.forget_worker(worker)
        case fx.QueuePaused():
            queue.paused_until_us = effect.until_us
        case _:
            pass  # QueueSet and QueueDeleted concern the table
