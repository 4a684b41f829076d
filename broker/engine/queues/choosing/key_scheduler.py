"""Key schedulers: gather the candidates for groups whose choice depends on keys.

Idea: the chooser (keyed.py) is pure; a scheduler gives it records with their keys. Held and most retrying records know
their keys; those of untouched records are read from the log (key_window.py), no further than the chooser looks.

Contract: as `choosing.choose`, for groups where `is_keyed` is true; only committed records are chosen, because only
they can be read. On cold pages it chooses from the keys it has, sets `is_cold`, and the port warms the log. A shelved
record joins the others of its key only when it leaves its shelf, so it may overtake untouched ones. An unreadable
record has no key: it is leased and dead-lettered. A scheduler is local to a node, and new after a restart.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .....storage.errors import Error
from .....transport.queue_messages import FOREVER_US
from ...tables.queues.keys import UNKNOWN
from .choosing import Choice, ShelfPicker, untouched
from .key_window import KeyWindow, NotYet
from .keyed import Candidate, Chooser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...logs.partition import Partition
    from ...ports import Port
    from ...tables.queues.queue import Queue
    from .choosing import RecordSource


class KeyScheduler:
    """One group on one partition."""

    def __init__(self, partition: Partition, port: Port) -> None:
        self.partition = partition
        self.chooser = Chooser()
        self.window = KeyWindow(partition, port)
        self.next_us = FOREVER_US  # when a rate admits a record that it held back at the last choice
        self.cold = False  # whether pages were missing then

    def choose(self, queue: Queue, source: RecordSource, limit: int, now_us: int) -> Choice:
        """Choose up to `limit` records."""
        self.cold, self.next_us = False, FOREVER_US
        try:
            return self._choose(queue, source, limit, now_us)
        except NotYet:
            self.cold = True
        except (Error, OSError):
            self.cold = True  # the disk may answer the next time
        return Choice([], queue.frontier)

    def _choose(self, queue: Queue, source: RecordSource, limit: int, now_us: int) -> Choice:
        source = source._replace(end=min(source.end, self.partition.end))
        room = max(queue.settings.look_ahead - len(queue.held), 0)
        pulled, cursors = self._pulled(queue, source, room, now_us)
        room -= len(pulled)
        found = self.chooser.choose(
            queue.settings, self._busy(queue), [*self._known(queue, source), *pulled],
            self._fresh(queue, source, room + limit), room, limit, now_us,
        )  # fmt: skip
        self.next_us = found.next_us
        frontier = max(queue.frontier, found.frontier)
        self.window.forget(frontier)
        gone = {candidate.offset for candidate in found.taken}
        held = found.held + [(each.offset, each.key) for each in pulled if each.offset not in gone]
        return Choice(found.runs, frontier, cursors, held, found.keys)

    def _pulled(
        self, queue: Queue, source: RecordSource, room: int, now_us: int
    ) -> tuple[list[Candidate], list[tuple[int, int, int, int]]]:
        """Pull due records off the shelves, and their cursors, which move past records not chosen: those are held."""
        pulled: list[Candidate] = []
        cursors: list[tuple[int, int, int, int]] = []
        shelves = source.shelves
        for level, shelf in sorted(shelves.by_level.items(), reverse=True) if shelves else ():
            picker = ShelfPicker(queue, source, level, shelf)
            offsets = picker.take(room - len(pulled), min(now_us, source.shelved_us))
            pulled += [Candidate(offset, self.window.key(offset, self), level=level) for offset in offsets]
            cursors += picker.moved()
        return pulled, cursors

    def _busy(self, queue: Queue) -> Counter[int]:
        """The number of leased records by key."""
        busy: Counter[int] = Counter()
        for lease in queue.leases.values():
            if len(lease.keys) < lease.left:
                busy.update(self._key(at, lease.keys.get(at, 0)) for at in offsets_of(lease.runs()))
            else:
                busy.update(lease.keys.values())
        return busy

    def _known(self, queue: Queue, source: RecordSource) -> Iterator[Candidate]:
        """Candidates below the frontier."""
        level_of = source.shelves.level_of if source.shelves else _plain
        for offset, key in queue.held.items():
            yield Candidate(offset, self._key(offset, key), level=level_of(offset))
        for offset, record in queue.retrying.items():
            key = self._key(offset, record.key)
            yield Candidate(offset, key, record.attempt, record.ready_us, level_of(offset))

    def _fresh(self, queue: Queue, source: RecordSource, limit: int) -> Iterator[Candidate]:
        """Untouched records, as far as their keys can be read now."""
        try:
            for offset in offsets_of(untouched(queue, source, limit)):
                yield Candidate(offset, self.window.key(offset, self))
        except NotYet:
            self.cold = True

    def _key(self, offset: int, key: int) -> int:
        """The key of a record that was met before; the group may not have looked at keys then."""
        return key or self.window.key(offset, self)


def _plain(offset: int) -> int:
    """The priority of a record where none has one."""
    return 0


class KeySchedulers:
    """The schedulers of a node."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._by_group: dict[tuple[Partition, str], KeyScheduler] = {}

    def choose(self, partition: Partition, queue: Queue, source: RecordSource, limit: int, now_us: int) -> Choice:
        """Choose up to `limit` records of a group."""
        scheduler = self._by_group.get((partition, queue.group))
        if scheduler is None:
            scheduler = self._by_group[partition, queue.group] = KeyScheduler(partition, self._port)
        return scheduler.choose(queue, source, limit, now_us)

    def next_us(self, partition: Partition, group: str) -> int:
        """When the rate of a key lets something go that could not go at the last choice; FOREVER_US: none held any."""
        scheduler = self._by_group.get((partition, group))
        return FOREVER_US if scheduler is None else scheduler.next_us

    def again_us(self, partition: Partition, queue: Queue, key: int, now_us: int) -> int:
        """When the rate of a key admits its next record; 0: at once, or not known."""
        scheduler = self._by_group.get((partition, queue.group))
        return 0 if scheduler is None or key == UNKNOWN else scheduler.chooser.again_us(queue.settings, key, now_us)

    def is_cold(self, partition: Partition, group: str) -> bool:
        """Whether pages were missing at the last choice."""
        scheduler = self._by_group.get((partition, group))
        return scheduler is not None and scheduler.cold

    def forget(self, partition: Partition) -> None:
        """Forget a closed partition."""
        for key in [key for key in self._by_group if key[0] is partition]:
            del self._by_group[key]

    def leave(self, partition: Partition, group: str) -> None:
        """Forget a deleted group."""
        self._by_group.pop((partition, group), None)


def offsets_of(runs: Iterator[tuple[int, int, int]]) -> Iterator[int]:
    """Each record of runs."""
    for first, count, _ in runs:
        yield from range(first, first + count)
