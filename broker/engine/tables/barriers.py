"""The barriers of a partition: callbacks that wait until tasks elsewhere have ended.

Idea: a barrier counts words, one for each of its members. The word of a member is how its task ended, with the result.
Once every member has a word that counts, the barrier is ready, and its record is appended with BarrierFired beside it.

Contract: applies logged effects and decides nothing. Of a barrier that waits for every end the first word of a member
counts; of one that waits for completion, "dead" gives way to a later word, as the task may be redriven. A word that is
told again changes nothing, and neither does one to a barrier that is over. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs

from ....transport.queue_messages import FOREVER_US
from . import effects as fx
from .queues.status import COMPLETED, DEAD

DELETED: Final = "deleted"
"""The state of a member that left its queue without an end: it was trimmed, deleted, skipped, or its queue was."""

TOO_LARGE: Final = "too_large"
"""The state of a member that completed with a result for which the record of the callback has no room."""

MEMBER_BYTES: Final = 64
"""Of a member beside the result and the reason of its word, known or not."""

COUNTING = frozenset({COMPLETED, TOO_LARGE})
"""States that count where a barrier waits for completion."""

TaskPlace = tuple[bytes, int, int]
"""Topic, partition and offset of a member's record."""

UNKNOWN_TASK: Final[TaskPlace] = (b"", 0, -1)
"""In logs and snapshots of before, a word does not say of which record it is."""


class Word(Struct, array_like=True, frozen=True):
    """How one member ended."""

    state: str
    result: bytes
    reason: str
    task: TaskPlace = UNKNOWN_TASK

    @property
    def size(self) -> int:
        """The bytes that it has as long as it likes."""
        return len(self.result) + len(self.reason.encode())

    @property
    def silent(self) -> Word:
        """What is left of it where there is no room for its result and reason."""
        return Word(TOO_LARGE if self.state == COMPLETED else self.state, b"", "", self.task)


class BarrierBody(Struct, array_like=True):
    """One barrier, as it stands and in a snapshot."""

    barrier: bytes
    members: int
    ended: bool
    headers: dict[str, bytes]
    priority: int
    until_us: int
    owner: str
    words: dict[int, Word]  # by member

    @property
    def is_ready(self) -> bool:
        """Whether every member has a word that counts."""
        return len(self.words) == self.members and not any(map(self.holds_up, self.words.values()))

    def holds_up(self, word: Word) -> bool:
        """Whether a member with this word keeps the barrier waiting."""
        return not self.ended and word.state not in COUNTING

    @property
    def size(self) -> int:
        """The bytes that it counts for."""
        return silent_size(self.members, self.headers) + sum(word.size for word in self.words.values())

    def hear(self, member: int, word: Word) -> int:
        """A member has ended. Returns by how much that changes the size."""
        known = self.words.get(member)
        if member >= self.members or (known is not None and (known.state != DEAD or self.ended)):
            return 0
        self.words[member] = word
        return word.size - (0 if known is None else known.size)


def silent_size(members: int, headers: Mapping[str, bytes]) -> int:
    """The size of a barrier that has heard nothing."""
    return members * MEMBER_BYTES + sum(len(name.encode()) + len(value) for name, value in headers.items())


class BarrierTable:
    """The barriers of one partition, by id.

    *Invariant*: `bytes` is the sum of their sizes.
    """

    def __init__(self) -> None:
        self.by_id: dict[bytes, BarrierBody] = {}
        self.bytes = 0
        self.ready: dict[bytes, None] = {}  # in the order in which they became so
        self.due_us = FOREVER_US  # none is to be forgotten before

    def apply(self, effect: fx.BarrierSet | fx.BarrierTold | fx.BarrierFired | fx.BarriersForgotten) -> None:
        """One effect. A barrier that stands already is not set again."""
        match effect:
            case fx.BarrierSet():
                self._set(effect)
            case fx.BarrierTold():
                self._told(effect)
            case fx.BarrierFired():
                self._over(effect.barrier)
            case fx.BarriersForgotten():
                for barrier in effect.barriers:
                    self._over(barrier)

    def _set(self, effect: fx.BarrierSet) -> None:
        barrier = BarrierBody(
            effect.barrier, effect.members, effect.ended, effect.headers, effect.priority, effect.until_us,
            effect.owner, {},
        )  # fmt: skip
        if self.by_id.setdefault(effect.barrier, barrier) is barrier:
            self.bytes += barrier.size
        self.due_us = min(self.due_us, effect.until_us)

    def _told(self, effect: fx.BarrierTold) -> None:
        barrier = self.by_id.get(effect.barrier)
        if barrier is None:
            return
        for (member, state, result, reason), task in zip(effect.words, _tasks(effect), strict=True):
            self.bytes += barrier.hear(member, Word(state, result, reason, task))
        if barrier.is_ready:
            self.ready[effect.barrier] = None

    def _over(self, barrier: bytes) -> None:
        gone = self.by_id.pop(barrier, None)
        if gone is not None:
            self.bytes -= gone.size
        self.ready.pop(barrier, None)

    def expired(self, time_us: int) -> list[bytes]:
        """The barriers that are to be forgotten at a time."""
        if time_us < self.due_us:
            return []
        self.due_us = min((each.until_us for each in self.by_id.values()), default=FOREVER_US)
        return [each.barrier for each in self.by_id.values() if each.until_us <= time_us]

    def copy(self) -> BarrierTable:
        """A copy. Words are immutable, and shared."""
        table = BarrierTable()
        table.by_id = {id_: structs.replace(each, words=each.words.copy()) for id_, each in self.by_id.items()}
        table.ready, table.bytes, table.due_us = self.ready.copy(), self.bytes, self.due_us
        return table

    def dump(self) -> list[BarrierBody]:
        """Dump for a snapshot, by id."""
        return [_sorted(self.by_id[barrier]) for barrier in sorted(self.by_id)]

    @classmethod
    def load(cls, barriers: list[BarrierBody]) -> BarrierTable:
        """Restore from a snapshot."""
        table = cls()
        table.by_id = {each.barrier: each for each in barriers}
        table.bytes = sum(each.size for each in barriers)
        table.ready = {each.barrier: None for each in barriers if each.is_ready}
        table.due_us = min((each.until_us for each in barriers), default=FOREVER_US)
        return table


def _tasks(effect: fx.BarrierTold) -> list[TaskPlace]:
    """The record of each word."""
    return effect.tasks or [UNKNOWN_TASK] * len(effect.words)


def _sorted(barrier: BarrierBody) -> BarrierBody:
    """With its words by member."""
    return structs.replace(barrier, words=dict(sorted(barrier.words.items())))
