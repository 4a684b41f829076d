"""Choosing among priorities, delays and plain records, against a naive list of everything."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from penstock.broker.engine.queues.choosing import choosing
from penstock.broker.engine.queues.choosing.choosing import Choice, RecordSource, choose, next_timer_us, on_shelves
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues import offsets, shelves, timers
from penstock.broker.engine.tables.queues.placing import Placed
from penstock.broker.engine.tables.queues.queue import Queue
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.engine.tables.queues.shelves import Shelves


@dataclass
class Record:
    offset: int
    level: int
    time_us: int  # 0: no delay


@dataclass
class Model:
    """Every record, in a dictionary, and what one group has taken of them."""

    start: int
    records: dict[int, Record] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    void: set[int] = field(default_factory=set)
    again: dict[int, tuple[int, int]] = field(default_factory=dict)  # attempt and ready time by offset

    def left(self) -> list[Record]:
        gone = self.taken | self.void
        return [each for each in self.records.values() if each.offset >= self.start and each.offset not in gone]

    def next(self, now_us: int, limit: int) -> list[tuple[int, int]]:
        """Offset and attempt of what a lease takes, in order."""
        order = []
        for offset, (attempt, ready_us) in self.again.items():
            if ready_us <= now_us:
                order.append((-self.records[offset].level, 0, 0, offset, attempt + 1))
        for each in self.left():
            if each.time_us <= now_us:
                order.append((-each.level, 1 if each.time_us else 2, each.time_us, each.offset, 1))
        return [(offset, attempt) for *_, offset, attempt in sorted(order)[:limit]]


def flat(choice: Choice) -> list[tuple[int, int]]:
    return [(offset, attempt) for first, count, attempt in choice.runs for offset in range(first, first + count)]


@pytest.mark.parametrize("seed", range(60))
def test_a_lease_takes_what_a_naive_list_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "BLOCK", 16)
    monkeypatch.setattr(timers, "TAIL", 4)
    monkeypatch.setattr(timers, "SEALED", 16)
    monkeypatch.setattr(shelves, "WINDOW", 4)
    rng = random.Random(seed)
    found, model, end, now_us = Shelves(), Model(rng.choice([0, 0, 30])), 0, 1000
    queue, token = Queue("g", QueueSettings(), model.start), 0
    for _ in range(120):
        now_us += rng.choice([0, 1, 5, 40])
        if rng.random() < 0.5:
            end = produced(rng, found, model, end, now_us)
        if rng.random() < 0.1 and model.records:
            model.void.add(rng.choice(list(model.records)))
        source = RecordSource(0, end, lambda low, high: sorted(x for x in model.void if low <= x < high), found)
        limit = rng.choice([1, 3, 20])
        choice = choose(queue, source, limit, now_us)
        taken = flat(choice)
        assert taken == model.next(now_us, limit)
        looked(queue, found, model, now_us)
        if taken:
            token += 1
            granted(queue, model, choice, token)
            settled(rng, queue, model, token, now_us)


def produced(rng: random.Random, found: Shelves, model: Model, end: int, now_us: int) -> int:
    special = rng.choice([0, 0.3, 1])
    rows = []
    for offset in range(end, end + rng.choice([1, 4, 25])):
        level, time_us = 0, 0
        if rng.random() < special:
            level, time_us = rng.choice([0, 0, 2, 255]), rng.choice([0, now_us + rng.randrange(1, 200)])
        model.records[offset] = Record(offset, level, time_us)
        if level or time_us:
            rows.append((offset, level, time_us))
    if rows:
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        found.add(Placed(columns[0], columns[1].astype(np.uint8), columns[2]))
    return max(model.records) + 1


def granted(queue: Queue, model: Model, choice: Choice, token: int) -> None:
    queue.granted(fx.LeaseGranted("g", token, "w", 0, *choice), 0)
    for offset, _ in flat(choice):
        model.taken.add(offset)
        model.again.pop(offset, None)


def settled(rng: random.Random, queue: Queue, model: Model, token: int, now_us: int) -> None:
    """Ack all of a lease, or have all of it retried."""
    runs = list(queue.leases[token].runs())
    if rng.random() < 0.7:
        queue.finished(token, [], 0)
        return
    ready_us = now_us + rng.choice([0, 30])
    timed = [(first, count, attempt, ready_us) for first, count, attempt in runs]
    queue.returned(fx.TasksReturned("g", token, timed), now_us)
    for first, count, attempt in runs:
        for offset in range(first, first + count):
            model.again[offset] = attempt, ready_us


def looked(queue: Queue, found: Shelves, model: Model, now_us: int) -> None:
    """What is counted, and when to look again; a void record is counted until a cursor passes it."""
    later = [each.time_us for each in model.left() if each.time_us > now_us]
    void_later = [r.time_us for o, r in model.records.items() if o in model.void and r.time_us > now_us]
    expected = min(later, default=None)
    if not void_later:
        assert next_timer_us(queue, found, now_us) == expected
    if not model.void:
        special = [each for each in model.left() if each.level or each.time_us]
        ready = [each for each in special if each.time_us <= now_us]
        assert on_shelves(queue, found, now_us) == (len(ready), len(special) - len(ready))


def test_no_timer_is_taken_that_one_on_its_way_to_the_shelves_could_come_before() -> None:
    found = Shelves()
    found.add(Placed(np.array([5]), np.zeros(1, np.uint8), np.array([100])))
    queue = Queue("g", QueueSettings(), 0)
    assert choose(queue, RecordSource(0, 0, shelves=found, shelved_us=99), 10, 200).runs == []
    assert choose(queue, RecordSource(0, 0, shelves=found, shelved_us=100), 10, 200).runs == [(5, 1, 1)]


def test_a_partition_without_special_records_never_looks_at_shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(choosing, "_by_level")
    queue = Queue("g", QueueSettings(), 0)
    assert choose(queue, RecordSource(0, 50, shelves=Shelves()), 10, 1).runs == [(0, 10, 1)]
