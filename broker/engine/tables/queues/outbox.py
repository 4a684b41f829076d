"""The outbox: copies that have yet to be appended to another topic.

Idea: each dead-lettered record of a group with a dead-letter topic gets an entry. The destination is logged before the
copy is sent, and its arrival after; the target deduplicates by the entry's number. A crash between two steps repeats a
step, never a copy.

Contract: applies logged effects and decides nothing. Numbers rise and are never reused. An entry's record stays
readable until the entry is moved. Must not know other partitions, or how copies are sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from .. import effects as fx

if TYPE_CHECKING:
    from .queue import Queue


class OutboxEntry(Struct, array_like=True, frozen=True):
    """One copy to be made. `topic` is empty until it is decided which topic of that name, and which partition."""

    number: int
    target: str
    group: str
    offset: int
    attempt: int
    time_us: int
    reason: str
    topic: bytes = b""
    partition: int = 0


class Outbox:
    """The copies of one partition that are not known to have arrived."""

    def __init__(self) -> None:
        self.last = 0  # the highest number given out
        self.entries: dict[int, OutboxEntry] = {}  # by number, ascending

    def died(self, effect: fx.TasksDied, queue: Queue | None, time_us: int) -> None:
        """Records of a group were dead-lettered; the effect is applied already."""
        if queue is None or not queue.settings.dead_topic:
            return
        for first, count, attempt in effect.runs:
            for offset in range(first, first + count):
                if offset in queue.dead_letters:  # not if it was cancelled
                    self.last += 1
                    self.entries[self.last] = OutboxEntry(
                        self.last, queue.settings.dead_topic, queue.group, offset, attempt, time_us, effect.reason
                    )

    def routed(self, effect: fx.OutboxRouted) -> None:
        """The destinations of some copies were chosen."""
        for first, count in effect.ranges:
            for number in range(first, first + count):
                entry = self.entries.get(number)
                if entry is not None:
                    self.entries[number] = structs.replace(entry, topic=effect.topic, partition=effect.partition)

    def moved(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Remove entries whose copies have arrived."""
        for first, count in ranges:
            for number in range(first, first + count):
                self.entries.pop(number, None)

    def drop_below(self, first: int) -> None:
        """Forget copies of records before `first`, which the log was asked to give up."""
        self.entries = {number: entry for number, entry in self.entries.items() if entry.offset >= first}

    def dump(self) -> list[OutboxEntry]:
        """Dump for a snapshot, in a fixed order."""
        return list(self.entries.values())

    @classmethod
    def load(cls, entries: list[OutboxEntry], last: int) -> Outbox:
        """Restore from a snapshot."""
        outbox = cls()
        outbox.last = last
        outbox.entries = {entry.number: entry for entry in entries}
        return outbox
