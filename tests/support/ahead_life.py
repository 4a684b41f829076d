"""One life of two nodes with queues: one answers before it applies what is committed, the other once it is applied.

Idea: as few_life.py, for what tasks do: both are sent the same in the same turns, and must be equal after each step,
with each attempt at an answer, in order. Some peers take no answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from typing import Any

from penstock.storage.batch import encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.engine import Rig
from support.few_life import all_of, no_room

WORKERS = ("ann", "bob", "cid")
GROUPS = ("g", "h")


class AheadLife:
    """Two nodes, and what is sent to both."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed)
        self.met: Counter[str] = Counter()
        snapshot_batches = dice.choice([3, 1000])
        self.rigs = [Rig(seed=seed, snapshot_batches=snapshot_batches) for _ in range(2)]
        self.tried: list[list[tuple[Hashable, Any, bytes]]] = [_noting(rig) for rig in self.rigs]
        self.partitions = dice.choice([1, 1, 2])
        (self.topic,) = {rig.topic(partitions=self.partitions) for rig in self.rigs}
        order = dice.choice(["none", "none", "key"])
        queue = {"lease_s": dice.choice([1.0, 30.0]), "order": order, "max_attempts": dice.choice([1, 3])}
        for group in GROUPS:
            self.send(m.SetQueue, self.topic, group, queue)
            self.turn()
        self.steps: list[str] = []
        self.leases: list[tuple[str, str, m.Leased]] = []
        self.asked: dict[int, tuple[str, str]] = {}

    def run(self, steps: int) -> None:
        """So many random steps."""
        commands = (
            *[self.record] * 9, self.records, *[self.special] * 2, *[self.ask] * 20, *[self.settle] * 8,
            self.extend, *[self.both] * 3, *[self.deaf] * 2, self.leave, self.read, self.join, self.pause, self.held,
            self.resign, self.full, *[self.pass_time] * 4,
        )  # fmt: skip
        for number in range(steps):
            command = self.poison if number == steps - 4 else self.dice.choice(commands)
            self.steps.append(command.__name__)
            command()
            self.turn()
            self.look()

    # -- both ---------------------------------------------------------------------------------------

    def send(self, type_: Any, *fields: Any, payload: bytes = b"", peer: str = "c", **named: Any) -> int:
        """One message to both."""
        requests = [rig.next_request() for rig in self.rigs]
        for rig, request in zip(self.rigs, requests, strict=True):
            rig.send(type_(request, *fields, **named), payload, peer=peer)
        return requests[0]

    def turn(self) -> None:
        """A turn of both."""
        for rig in self.rigs:
            for log in rig.node.flush(rig.now):
                if not rig.store.hold and log.poisoned is None:
                    log.sync()
            if rig is self.rigs[0]:
                before = len(self.tried[0])
                rig.node.answer_ahead()
                self.met.update(f"{type(message).__name__} ahead" for _, message, _ in self.tried[0][before:])
                self.met.update("refused ahead" for peer, *_ in self.tried[0][before:] if peer in rig.port.gone)
            rig.node.advance(rig.now)
            rig.node.tick(rig.now)
        for peer, message, _ in self.tried[0][self._heard :]:
            if isinstance(message, m.Leased) and message.runs and peer not in self.rigs[0].port.gone:
                self.leases.append((str(peer), self.asked[message.request][1], message))
        self._heard = len(self.tried[0])

    _heard = 0

    def look(self) -> None:
        """Both are equal."""
        one, other = map(all_of, self.rigs)
        one["each attempt to answer"], other["each attempt to answer"] = self.tried
        for what in one:
            assert one[what] == other[what], f"seed {self.seed}, {self.steps[-8:]}: {what} differs"

    # -- what is sent -------------------------------------------------------------------------------

    def produce(self, count: int, **how: Any) -> None:
        values = [self.dice.randbytes(self.dice.choice([0, 5, 30])) for _ in range(count)]
        payload = bytes(
            encode(values, **{name: [self.dice.choice(some) for _ in values] for name, some in how.items()})
        )
        self.send(m.Produce, self.topic, self.dice.randrange(self.partitions), payload=payload)

    def record(self) -> None:
        self.produce(1)

    def records(self) -> None:
        self.produce(self.dice.randint(2, 3))

    def special(self) -> None:
        """With a key, a priority, a delay, a dedup key."""
        now_us = self.rigs[0].now.wall_us
        kinds: list[dict[str, list[Any]]] = [
            {"keys": [b"k", b"l"]}, {"priorities": [1, 200]}, {"not_before": [0, now_us + 300_000]},
            {"dedup": [b"d" * 16, b"e" * 16]},
        ]  # fmt: skip
        self.produce(self.dice.randint(1, 2), **self.dice.choice(kinds))

    def ask(self) -> None:
        """A request for tasks, with outcomes of the last ones or without."""
        worker, group = self.dice.choice(WORKERS), self.dice.choice(GROUPS)
        settles = [self._outcome(lease) for lease in self._some(worker, group)] if self.dice.random() < 0.3 else []
        most = self.dice.choice([1, 2, 3, 9])
        how = {
            "max_bytes": self.dice.choice([1 << 20, 60]) if most == 1 else 1 << 20,  # by the size of earlier ones, else
            "wait_ms": self.dice.choice([0, 5000, 5000, 5000]), "takes": self.dice.random() < 0.1, "settles": settles,
        }  # fmt: skip
        request = self.send(m.Lease, self.topic, group, worker, most, peer=worker, **how)
        self.asked[request] = worker, group

    def settle(self) -> None:
        """Outcomes of leases, once or again."""
        worker, group = self.dice.choice(WORKERS), self.dice.choice(GROUPS)
        if found := self._some(worker, group):
            self.send(m.SettleTasks, self.topic, group, list(map(self._outcome, found)), peer=worker)

    def _some(self, worker: str, group: str) -> list[m.Leased]:
        mine = [lease for *whose, lease in self.leases if whose == [worker, group]]
        return mine[-self.dice.randint(1, 2) :]

    def _outcome(self, lease: m.Leased) -> m.Settle:
        verb, (first, count, _) = self.dice.choice([Verb.ACK, Verb.ACK, *Verb]), self.dice.choice(lease.runs)
        ranges = [] if self.dice.random() < 0.7 else [(first, self.dice.randint(1, count))]
        return m.Settle(lease.partition, lease.token, verb, ranges)

    def extend(self) -> None:
        worker, group = self.dice.choice(WORKERS), self.dice.choice(GROUPS)
        places = [(lease.partition, lease.token) for lease in self._some(worker, group)]
        self.send(m.ExtendLeases, self.topic, group, places, self.dice.choice([100, 5000]), peer=worker)

    def both(self) -> None:
        """Several things in one turn."""
        for _ in range(self.dice.randint(2, 3)):
            self.dice.choice([self.record, self.ask, self.settle, self.special])()

    # -- what happens to both -----------------------------------------------------------------------

    def deaf(self) -> None:
        """A worker takes no answers, or takes them again."""
        worker = self.dice.choice(WORKERS)
        for rig in self.rigs:
            rig.port.gone ^= {worker}

    def leave(self) -> None:
        worker = self.dice.choice(WORKERS)
        for rig in self.rigs:
            rig.node.disconnect(worker)

    def read(self) -> None:
        self.send(m.Fetch, self.topic, 0, 0, -1, 1 << 20, 1000, peer="reader")

    def join(self) -> None:
        """A session reads for a second."""
        self.send(m.Join, self.topic, "", "", "push", m.EARLIEST, [], 1000, 1 << 20, 1 << 20, peer="reader")

    def pause(self) -> None:
        until_us = self.rigs[0].now.wall_us + 300_000
        self.send(m.PauseQueue, self.topic, self.dice.choice(GROUPS), self.dice.choice([0, until_us]))

    def held(self) -> None:
        """The disk takes more than a turn."""
        for is_held in (True, False):
            for rig in self.rigs:
                rig.store.hold = is_held
            self.both()
            self.turn()
        self.sync()

    def sync(self) -> None:
        for rig in self.rigs:
            for log in rig.node.logs:
                if log.poisoned is None:
                    log.sync()

    def poison(self) -> None:
        for rig in self.rigs:
            rig.node.logs[1].poison("a sync failed")

    def resign(self) -> None:
        if any(log.poisoned for log in self.rigs[0].node.logs):
            return
        for rig in self.rigs:
            rig.node.resign()
            for peer in (*WORKERS, "c", "reader"):
                rig.node.disconnect(peer)
        self.sync()
        for rig in self.rigs:
            rig.node.advance(rig.now)

    def full(self) -> None:
        """A record that finds the disk full."""
        self.both()
        for rig in self.rigs:
            for log in rig.node.logs:
                log.append = no_room
            rig.node.flush(rig.now)
            for log in rig.node.logs:
                del log.append

    def pass_time(self) -> None:
        for rig in self.rigs:
            rig.pass_time(0.4, 0.2)


def _noting(rig: Rig) -> list[tuple[Hashable, Any, bytes]]:
    """What a node tries to answer from now on."""
    tried: list[tuple[Hashable, Any, bytes]] = []
    reply = rig.port.reply

    def noted(peer: Hashable, message: Any, payload: Any = b"") -> bool:
        tried.append((peer, message, bytes(payload)))
        return reply(peer, message, payload)

    rig.port.reply = noted  # type: ignore[method-assign]
    return tried
