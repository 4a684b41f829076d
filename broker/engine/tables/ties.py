"""The ties of a partition: which of its open records are members of a barrier, and ends that barriers have to be told.

Idea: whatever ends a record as a task of its group is an effect, so applying effects finds every end, whatever caused
it: an ack, the last failed attempt, a cancellation, a discard, a trim. The end becomes a telling, with the result of
the task, which stays until the barrier is known to have it. A dead-lettered record is told of and stays tied: it may be
redriven, and end again.

Contract: applies logged effects and decides nothing. Only committed effects are applied: a state that is ahead shares
the ties of the one that is committed. Numbers of tellings rise and are never reused. Results and reasons that wait have
TELLINGS_BYTES_MAX; an end beyond that is told without them. Must not know other partitions. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from . import effects as fx
from .barriers import DELETED, Word
from .queues.status import CANCELLED, COMPLETED, DEAD, DISCARDED, FINAL, standing

if TYPE_CHECKING:
    from .queues.queue import Queue
    from .queues.status import HasTasks
    from .queues.table import QueueTable

TELLINGS_BYTES_MAX = 256 << 20
"""Results and reasons of a partition that wait to be told. Part of what effects mean, so no setting (STATE.md)."""

Range = tuple[int, int]
"""First offset, how many."""


class TieBody(Struct, array_like=True, frozen=True):
    """One record that is a member of a barrier."""

    offset: int
    group: str
    topic: bytes
    partition: int
    barrier: bytes
    member: int


class MemberEnd(Struct, array_like=True, frozen=True):
    """How one member ended, which its barrier is to be told."""

    number: int
    topic: bytes
    partition: int
    barrier: bytes
    member: int
    state: str
    result: bytes
    reason: str
    offset: int = -1  # of its record; -1 in snapshots of before

    @property
    def word(self) -> Word:
        """What the barrier is told."""
        return Word(self.state, self.result, self.reason)


class Ties:
    """The ties of one partition.

    *Invariant*: `bytes` is the sum of the sizes of the words that wait.
    """

    def __init__(self) -> None:
        self.open: dict[int, TieBody] = {}  # by offset
        self.tellings: dict[int, MemberEnd] = {}  # by number, ascending
        self.last = 0  # the highest number given out
        self.bytes = 0

    # -- applying -----------------------------------------------------------------------------------

    def apply(self, effect: fx.MembersTied | fx.MembersTold) -> None:
        """Records are members of a barrier, or barriers have been told."""
        if isinstance(effect, fx.MembersTied):
            where = (effect.group, effect.topic, effect.partition, effect.barrier)
            members = enumerate(effect.members, effect.offset)
            self.open.update((offset, TieBody(offset, *where, member)) for offset, member in members)
            return
        for first, count in effect.ranges:
            for number in range(first, first + count):
                told = self.tellings.pop(number, None)
                self.bytes -= 0 if told is None else told.word.size

    def concerned(self, effect: fx.AnyEffect, queues: QueueTable) -> list[TieBody]:
        """The ties of records that an effect may end. To be asked before it is applied: a lease may be over then."""
        match effect:
            case fx.FirstOffset(offset) | fx.Trimmed(offset):
                return [tie for tie in self.open.values() if tie.offset < offset]
            case fx.RecordsDeleted(ranges):
                return [self.open[each] for each in self._among(ranges)]
            case fx.QueueDeleted() | fx.QueueMoved():
                found: Iterable[int] = self.open
            case fx.QueueEffect():
                found = self._among(_named(effect, queues.by_name.get(effect.group)))
            case _:
                return []
        return [tie for tie in map(self.open.__getitem__, found) if tie.group == effect.group]

    def _among(self, ranges: Iterable[Range]) -> list[int]:
        """The tied records of ranges, looked for in whichever is shorter."""
        found: list[int] = []
        for first, count in ranges:
            several = range(first, first + count)
            found += [each for each in (several if count <= len(self.open) else self.open) if each in several]
        return [each for each in found if each in self.open]

    def applied(self, effect: fx.AnyEffect, ties: Iterable[TieBody], state: HasTasks) -> None:
        """An effect was applied, which may have ended the records of these ties."""
        results = dict(effect.results) if isinstance(effect, fx.TasksFinished) else {}
        for tie in ties:
            how = _end(tie, effect, state)
            if how is None:
                continue
            outcome, reason = how
            word = Word(outcome, results.get(tie.offset, b""), reason)
            if self.bytes + word.size > TELLINGS_BYTES_MAX:
                word = word.silent
            self.last += 1
            self.bytes += word.size
            self.tellings[self.last] = MemberEnd(
                self.last, tie.topic, tie.partition, tie.barrier, tie.member, word.state, word.result, word.reason,
                tie.offset,
            )  # fmt: skip
            if outcome != DEAD:
                del self.open[tie.offset]

    # -- snapshots ----------------------------------------------------------------------------------

    def dump(self) -> TiesBody:
        """Dump for a snapshot, in a fixed order."""
        return TiesBody([self.open[offset] for offset in sorted(self.open)], list(self.tellings.values()), self.last)

    @classmethod
    def load(cls, body: TiesBody) -> Ties:
        """Restore from a snapshot."""
        ties = cls()
        ties.open = {tie.offset: tie for tie in body.open}
        ties.tellings = {telling.number: telling for telling in body.tellings}
        ties.last = body.last
        ties.bytes = sum(telling.word.size for telling in body.tellings)
        return ties


class TiesBody(Struct, array_like=True, frozen=True):
    """The ties of a snapshot."""

    open: list[TieBody] = []
    tellings: list[MemberEnd] = []
    last: int = 0


NO_TIES = TiesBody()


def _named(effect: fx.QueueEffect, queue: Queue | None) -> Iterable[Range]:
    """Records that an effect takes from where they were in their group."""
    match effect:
        case fx.TasksFinished(ranges=[]):
            lease = None if queue is None else queue.leases.get(effect.token)
            return [] if lease is None else [(first, count) for first, count, _ in lease.runs()]
        case fx.TasksFinished() | fx.TasksTaken() | fx.TasksDiscarded():
            return effect.ranges
        case fx.TasksReturned() | fx.TasksDied():
            return [(run[0], run[1]) for run in effect.runs]
        case fx.TasksCancelled():
            return [(offset, 1) for offset in effect.offsets]
        case _:
            return []


def _end(tie: TieBody, effect: fx.AnyEffect, state: HasTasks) -> tuple[str, str] | None:
    """How a record ended by an effect that was applied, and why; None if it did not."""
    if tie.offset in state.voids:
        return DELETED, ""
    queue = state.queues.by_name.get(tie.group)
    if queue is None:
        return DELETED, ""
    found = standing(queue, state.shelves, tie.offset, 0)
    if found.state not in FINAL:
        return None
    if found.state == DEAD:
        return (DEAD, found.reason) if isinstance(effect, fx.TasksDied) else None  # else it was told of already
    if found.state == CANCELLED:
        return CANCELLED, ""
    match effect:
        case fx.TasksFinished() | fx.TasksTaken():
            return COMPLETED, ""
        case fx.TasksDiscarded():
            return DISCARDED, ""
        case _:
            return DELETED, ""
