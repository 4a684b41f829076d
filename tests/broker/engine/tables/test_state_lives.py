"""Random lives of a partition's state: one that was restored goes on alike, and no record is given twice.

Leases are chosen by the engine itself, everything else at random among what may be logged.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from penstock.broker.engine.queues.choosing.choosing import RecordSource, choose
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.entry import Entry
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.queues.placing import intake_of
from penstock.broker.engine.tables.queues.queue import Queue
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.engine.tables.queues.unfinished import delayed, next_plain, unfinished, untouched
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import encode, parse

SECOND = 1_000_000
MINUTE_US = 60 * SECOND
TOPIC, BARRIER = b"t" * 16, b"b" * 16


class Life:
    """A state, and one that was restored from its snapshot some time ago."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.state = self.twin = PartitionState()
        self.restore()
        self.time_us = 1_000 * MINUTE_US
        self.token = 0

    # -- logging ------------------------------------------------------------------------------------

    def log(self, entry: Entry) -> None:
        """One batch, to both."""
        entry.place.seq, entry.place.term, entry.place.time_us = self.state.seq + 1, 1, self.time_us
        entry.place.offset = self.state.end
        for state in (self.state, self.twin):
            state.apply(entry, self.time_us)
            state.batch_applied(entry.place)

    def effects(self, *effects: fx.AnyEffect) -> None:
        self.log(Entry(Place(0, 0), effects=fx.decode(fx.encode(effects))))

    def restore(self) -> None:
        self.twin = PartitionState.decode(self.state.encode())

    def step(self) -> None:
        self.dice.choice(STEPS)(self)
        assert self.twin.encode() == self.state.encode()
        if self.dice.random() < 0.2:
            self.restore()
            assert self.twin.digest() == self.state.digest()

    # -- steps --------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.time_us += self.dice.choice([1, SECOND, MINUTE_US, 10 * MINUTE_US])

    def append(self) -> None:
        count = self.dice.randint(1, 5)
        times = [self.dice.choice([0, 0, self.time_us + self.dice.randint(1, 20) * MINUTE_US]) for _ in range(count)]
        batch = parse(encode([b""] * count, priorities=[self.dice.choice([0, 0, 3]) for _ in times], not_before=times))
        tied: list[fx.AnyEffect] = []
        if self.dice.random() < 0.3 and self.state.queues.by_name:
            group = self.dice.choice(list(self.state.queues.by_name))
            tied.append(fx.MembersTied(self.state.end, group, TOPIC, 0, BARRIER, list(range(count))))
        self.log(Entry(Place(0, count), effects=tied, intake=intake_of(batch)))

    def set(self) -> None:
        settings = QueueSettings(keep_finished_s=self.dice.choice([None, 60.0]), dead_topic=self.dice.choice(["", "d"]))
        start = self.dice.randint(self.state.first, self.state.end)
        self.effects(fx.QueueSet(self.dice.choice("ab"), settings.named(), start))

    def delete(self) -> None:
        if self.dice.random() < 0.1:
            self.effects(fx.QueueDeleted(self.dice.choice("ab")))

    def queue(self) -> Queue | None:
        return self.state.queues.by_name.get(self.dice.choice("ab"))

    def lease(self) -> None:
        queue, state = self.queue(), self.state
        if queue is None:
            return
        first = next_plain(queue, state.shelves, state.voids, max(queue.frontier, state.first))
        source = RecordSource(first, state.end, state.voids.between, state.shelves, state.time_us)
        choice = choose(queue, source, self.dice.randint(1, 6), self.time_us)
        if not choice.runs:
            return
        for begin, count, attempt in choice.runs:
            for offset in range(begin, begin + count):
                self.may_be_given(queue, offset, attempt)
        if self.dice.random() < 0.2:
            ranges = [(begin, count) for begin, count, _ in choice.runs]
            self.effects(fx.TasksTaken(queue.group, ranges, *choice[1:4], "w"))
            return
        self.token += 1
        until_us = self.dice.choice([1 << 62, self.time_us + MINUTE_US])
        worker = self.dice.choice(["ann", "bob"])
        self.effects(fx.LeaseGranted(queue.group, self.token, worker, until_us, *choice, given_us=self.time_us))

    def may_be_given(self, queue: Queue, offset: int, attempt: int) -> None:
        """It is not leased, dead or cancelled, and the log has it."""
        state = self.state
        assert offset not in state.voids
        assert offset >= state.first or state.kept.seq(offset), f"record {offset} is gone"
        waited = queue.retrying.get(offset)
        assert attempt == (1 if waited is None else waited.attempt + 1)
        assert waited is not None or not queue.has(offset), f"record {offset} is in a table already"

    def settle(self) -> None:
        queue = self.queue()
        if queue is None or not queue.leases:
            return
        lease = self.dice.choice(list(queue.leases.values()))
        runs = list(lease.runs())
        if self.dice.random() < 0.5:
            begin, count, attempt = self.dice.choice(runs)
            runs = [(begin, self.dice.randint(1, count), attempt)]
        ranges, group, ended = [run[:2] for run in runs], queue.group, self.dice.random() < 0.5
        results = [(ranges[0][0], b"r")] if self.dice.random() < 0.5 else []
        ready_us = self.time_us + self.dice.randint(0, 2) * MINUTE_US
        self.effects(
            self.dice.choice([
                fx.TasksFinished(group, lease.token, ranges, results),
                fx.TasksFinished(group, lease.token),
                fx.TasksReturned(group, lease.token, [(*run, ready_us) for run in runs], "no", ended),
                fx.TasksDied(group, lease.token, runs, "no", ended),
                fx.LeasesExtended(group, [lease.token], self.time_us + MINUTE_US, [(ranges[0][0], b"p")]),
            ])
        )  # fmt: skip

    def dead(self) -> None:
        queue = self.queue()
        if queue is not None and queue.dead_letters:
            offset = self.dice.choice(list(queue.dead_letters))
            again = fx.TasksRedriven(queue.group, [(offset, 1, self.time_us)])
            self.effects(self.dice.choice([again, fx.TasksDiscarded(queue.group, [(offset, 1)])]))

    def cancel(self) -> None:
        queue, offset = self.queue(), self.dice.randrange(self.state.end + 1)
        waits = queue is not None and not queue.begun(offset, self.state.shelves) and offset >= queue.start
        if queue is not None and (waits or queue.lease_of(offset)) and offset < self.state.end:
            self.effects(fx.TasksCancelled(queue.group, [offset]))

    def move(self) -> None:
        queue = self.queue()
        if queue is not None and self.dice.random() < 0.3:
            self.effects(fx.QueueMoved(queue.group, self.dice.randint(self.state.first, self.state.end)))

    def forget(self) -> None:
        if self.state.end > self.state.first:
            self.effects(fx.RecordsDeleted([(self.dice.randrange(self.state.first, self.state.end), 1)]))

    def trim(self) -> None:
        if self.dice.random() < 0.3:
            self.effects(fx.Trimmed(self.dice.randint(0, self.state.end)))

    def replace(self) -> None:
        """As dedup="replace" does."""
        state = self.state
        if state.end - state.first > 1:
            old = self.dice.randrange(state.first, state.end - 1)
            if not state.queues.begun(old, state.shelves):
                until_us, new = self.time_us + MINUTE_US, state.end - 1
                self.effects(fx.KeysSeen([new], [b"k" * 16], until_us, [(old, new)]))

    def retain(self) -> None:
        """What is open is carried, and the log begins later."""
        state = self.state
        limit = untouched(state.queues, state.shelves, state.end)
        first = self.dice.randint(state.first, max(limit, state.first))
        waits = [delayed(queue, state.shelves, state.voids, first) for queue in state.queues.by_name.values()]
        pending = np.unique(np.concatenate([unfinished(state), *waits]))
        pending = state.kept.missing(pending[pending < first])
        if len(pending):
            self.log(Entry(Place(0, 0), kept=pending))
        self.effects(fx.FirstOffset(first))

    def tell(self) -> None:
        tellings = list(self.state.ties.tellings)
        if tellings:
            self.effects(fx.MembersTold([(tellings[0], self.dice.randint(1, 3))]))


STEPS: list[Callable[[Life], None]] = [
    Life.wait, Life.append, Life.append, Life.append, Life.set, Life.delete, Life.lease, Life.lease, Life.lease,
    Life.settle, Life.settle, Life.settle, Life.dead, Life.cancel, Life.move, Life.forget, Life.trim, Life.replace,
    Life.retain, Life.tell,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_a_restored_state_goes_on_alike_and_gives_nothing_twice(seed: int):
    life = Life(seed)
    for _ in range(300):
        life.step()
