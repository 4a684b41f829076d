"""The life of commits under offices that come and go at any phase of a turn, each log synced and cut by itself.

Idea: clients stage and commit, and ask again what was not answered. When all is at rest every value can be read once
or not at all, epochs are whole, and what was answered is there. `met` counts what was in flight when an office went.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

from penstock.broker.engine import Now
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import staged
from support.transactions import commit

NAMES = "abcdef"


class Put(NamedTuple):
    """One stage that is whole."""

    number: int
    partition: int
    values: list[bytes]


class OfficeLife:
    """A node whose leader changes, and what its clients know."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rig = Rig(seed=seed, snapshot_batches=self.dice.choice([3, 50]), housekeeping_s=2.0)
        self.met: Counter[str] = Counter()
        self.topic = self.rig.topic("t", 2, commit=self.dice.choice(["durable", "written"]))
        self.epochs = dict.fromkeys(NAMES, -1)
        self.wanted: dict[tuple[str, int], list[Put]] = {}
        self.done: set[tuple[str, int]] = set()
        self.ready: list[Put] = []
        self.staging: dict[int, Put] = {}  # by request
        self.asking: dict[int, tuple[str, int]] = {}
        self.made = 0

    def run(self, steps: int) -> None:
        """So many random steps, and then all is looked at."""
        for _ in range(steps):
            chance = self.dice.random()
            if chance < 0.4:
                self._stage()
            elif chance < 0.7:
                self._commit()
            elif chance < 0.85:
                self.rig.now = Now(self.rig.now.wall_us + 300_000, self.rig.now.monotonic_s + 0.3)
            for _ in range(self.dice.randint(1, 4)):
                self._turn()
            self._hear()
        self._rest()

    def _stage(self) -> None:
        self.made += 1
        values = [b"%d.%d" % (self.made, number) for number in range(self.dice.randint(1, 2))]
        put, request = Put(self.made, self.dice.randrange(2), values), self.rig.next_request()
        self.staging[request] = put
        self.rig.send(m.Produce(request, self.topic, put.partition), bytes(staged(values, put.number)))

    def _commit(self) -> None:
        name = self.dice.choice(NAMES)
        epoch = self.epochs[name]
        if epoch < 0 or (name, epoch) in self.done:
            some = self.dice.sample(self.ready, min(len(self.ready), self.dice.randint(1, 2)))
            self.ready = [put for put in self.ready if put not in some]
            epoch = self.epochs[name] = epoch + 1
            self.wanted[name, epoch] = some
        request = self.rig.next_request()
        self.asking[request] = (name, epoch)
        self.rig.send(m.CommitTransaction(request, name, epoch, self._stages(name, epoch)))

    def _stages(self, name: str, epoch: int) -> list[m.Stage]:
        return [m.Stage(self.topic, put.partition, put.number, len(put.values)) for put in self.wanted[name, epoch]]

    def _turn(self) -> None:
        rig = self.rig
        for phase in (rig.node.flush, self._sync_some, rig.node.advance, rig.node.tick):
            if self.dice.random() < 0.04:
                self._resign()
            phase(rig.now)

    def _sync_some(self, now: Now) -> None:
        for log in self.rig.node.logs:
            if log.durable < log.written and self.dice.random() < 0.25:
                log.sync()

    def _resign(self) -> None:
        self._hear()
        registry = self.rig.node._registry
        for history in registry.histories():
            for entry in history.in_flight:
                self.met["publication"] += bool(entry.producer_id and entry.place.count)
                self.met.update(type(effect).__name__ for effect in entry.effects)
            least = max(history.log.safe, history.log.committed)
            if least < history.log.written and self.dice.random() < 0.25:
                history.cut(self.dice.randint(least, history.log.written))
                self.met["cut"] += 1
        self.rig.node.resign()
        self.rig.node.disconnect("c")
        self.asking.clear()
        self.staging.clear()

    def _hear(self) -> None:
        sent, self.rig.port.sent = self.rig.port.sent, []
        for _, answer, _ in sent:
            put, asked = self.staging.pop(answer.request, None), self.asking.pop(answer.request, None)
            if put is not None and isinstance(answer, m.Produced):
                self.ready.append(put)
            if asked is not None:
                self._heard(asked, answer)

    def _heard(self, asked: tuple[str, int], answer: Any) -> None:
        if isinstance(answer, m.TransactionCommitted):
            self.done.add(asked)
        else:
            assert answer.retry, f"{asked} was refused for good: {answer}"
            self.met[answer.code] += 1

    def _rest(self) -> None:
        rig = self.rig
        for _ in range(15):
            rig.sync()
            rig.pass_time(1.0, step=0.5)
        for name, epoch in sorted(set(self.wanted) - self.done):
            self._heard((name, epoch), commit(rig, name, epoch, *self._stages(name, epoch)))
        rig.pass_time(5.0, step=0.5)
        found = Counter((partition, value) for partition in range(2) for value in rig.read(self.topic, partition))
        wanted = {(put.partition, value) for puts in self.wanted.values() for put in puts for value in put.values}
        assert found == Counter(wanted), f"twice, lost, or never committed: {found - Counter(wanted)}"
        stats = rig.node.stats()
        assert (stats["stages.stuck"], stats["transactions.unfinished"]) == (0, 0), stats
