"""The life of commits under offices that come and go.

Idea: clients stage and commit, and ask again what was not answered. When all is at rest every value can be read once
or not at all, epochs are whole, and what was answered is there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from penstock.transport import messages as m
from support.office_life import OfficeLife
from support.staging import staged
from support.transactions import commit

NAMES = "abcdef"


class Put(NamedTuple):
    """One stage that is whole."""

    number: int
    partition: int
    values: list[bytes]


class CommitLife(OfficeLife):
    """A node, and what the clients know that publish by it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.topic = self.rig.topic("t", 2, commit=self.commit())
        self.epochs = dict.fromkeys(NAMES, -1)
        self.wanted: dict[tuple[str, int], list[Put]] = {}
        self.done: set[tuple[str, int]] = set()
        self.ready: list[Put] = []
        self.staging: dict[int, Put] = {}  # by request
        self.asking: dict[int, tuple[str, int]] = {}
        self.made = 0

    def step(self) -> None:
        chance = self.dice.random()
        if chance < 0.4:
            self._stage()
        elif chance < 0.7:
            self._commit()
        elif chance < 0.85:
            self.wait(0.3)

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

    def heard(self, answer: Any) -> None:
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

    def lost(self) -> None:
        self.asking.clear()
        self.staging.clear()

    def look(self) -> None:
        rig = self.rig
        for name, epoch in sorted(set(self.wanted) - self.done):
            self._heard((name, epoch), commit(rig, name, epoch, *self._stages(name, epoch)))
        rig.pass_time(5.0, step=0.5)
        found = Counter((partition, value) for partition in range(2) for value in rig.read(self.topic, partition))
        wanted = {(put.partition, value) for puts in self.wanted.values() for put in puts for value in put.values}
        assert found == Counter(wanted), f"twice, lost, or never committed: {found - Counter(wanted)}"
        stats = rig.node.stats()
        assert (stats["stages.stuck"], stats["transactions.unfinished"]) == (0, 0), stats
