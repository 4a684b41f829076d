"""A random life of topics that are lent: producers append, borrowings and recalls come between any two of their steps.

Idea: one producer per partition that asks for grants whenever it has none; readers that commit; other writers; the
node is closed, killed or changes its office. A thing that happens while a producer appends happens at a random one of
its steps, where the producer is stopped meanwhile. A model knows what was acknowledged and what was read.
"""

from __future__ import annotations

import random
from collections import Counter

from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.direct import Direct, Scene

STEPS = 18


class LentLife:
    """One node, and what its clients know."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.scene = Scene()
        self.topic = self.scene.topic(partitions=2, segment_bytes=64 << 10)
        self.producers = [Direct(self.scene, self.topic, n, producer=70 + n, peer=f"direct {n}") for n in range(2)]
        self.stopped: set[int] = set()
        self.made = 0
        self.others: list[list[bytes]] = [[], []]
        self.read: list[list[bytes]] = [[], []]
        self.asked: dict[int, tuple[int, bytes]] = {}
        self.commits: dict[int, tuple[int, int]] = {}
        self.asked_for, self.cursors = [0, 0], [0, 0]
        self.met: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.rest()

    def step(self) -> None:
        number = self.dice.randrange(2)
        kinds = ["append"] * 8 + ["turn"] * 6 + ["commit", "other", "wait", "wait", "stop"]
        kinds += ["orphan", "orphan", "gone", "resign", "restart"]
        kind = self.dice.choice(kinds)
        self.met[kind] += 1
        getattr(self, f"_{kind}")(number)

    # -- the producers ------------------------------------------------------------------------------

    def _value(self) -> bytes:
        self.made += 1
        return b"%d" % self.made + b"x" * self.dice.choice([0, 0, 0, 9000])

    def _append(self, number: int) -> None:
        """A record, sent again through the broker while it is in doubt; something may happen in the middle."""
        producer = self.producers[number]
        if number in self.stopped:
            return
        if producer.appender is None or producer.appender.ended:
            self.met[type(producer.ask()).__name__] += 1
        value, sequence, within = self._value(), producer.sequence, self.dice.random() < 0.4
        if within:
            step = producer.steps.count + self.dice.randint(1, STEPS)
            producer.steps.at[step] = lambda: [self._meanwhile(number) for _ in range(self.dice.randint(1, 3))]
        if producer.append(value):
            self.met["direct"] += 1
        else:
            self._resend(producer, value, sequence)
        producer.steps.at.clear()
        if producer.appender is not None and producer.appender.trouble is not None:
            raise producer.appender.trouble

    def _resend(self, producer: Direct, value: bytes, sequence: int) -> None:
        for _ in range(40):
            producer.produce(value, sequence)
            for _ in range(6):
                self.scene.wait(0.1)
            if producer.heard(value):
                self.met["resent"] += 1
                return
            producer.forget()
        raise AssertionError(f"{value[:9]!r} is never answered")

    def _meanwhile(self, number: int) -> None:
        """The producer is stopped between two of its steps."""
        kind = self.dice.choice(["turn", "commit", "other", "wait", "look", "resign", "die"])
        self.met[f"{kind} within"] += 1
        if kind == "die":
            self._restart(number, clean=self.dice.random() < 0.5)
        else:
            getattr(self, f"_{kind}")(number)

    def _stop(self, number: int) -> None:
        """A process is stopped, and never goes on: what it was about is told to no caller."""
        producer = self.producers[number]
        if number in self.stopped or producer.appender is None or producer.appender.ended:
            return
        sequence, value = producer.sequence, self._value()
        if producer.stop_at(value, self.dice.randint(1, STEPS)):
            self.stopped.add(number)
            self.met["stopped"] += 1
        elif value not in producer.acked:
            if producer.appender.ended:
                producer.appender.end()
            self._resend(producer, value, sequence)

    def _orphan(self, number: int) -> None:
        """The connection of a stopped process is gone, or another thread of it has no use for the grant, or asks for
        the next one: the lock stays.
        """
        producer, core = self.producers[number], self.scene.core
        if number not in self.stopped:
            return
        end = self.dice.choice(["orphaned", "asked anew", "given back"])
        self.met[end] += 1
        if end == "orphaned":
            producer.gone()
        elif end == "asked anew":
            identity, sequence = producer._producer, producer.sequence - 1
            core.send(lambda request: m.Lend(request, self.topic, number, identity, 0, sequence), peer=producer._peer)
        elif producer.grant is not None:
            back = m.GiveBack(self.topic, number, producer.grant.number)
            core.node.receive(producer._peer, back, b"", core.now)

    def _gone(self, number: int) -> None:
        """A process is killed; another one goes on under a new identity."""
        producer = self.producers[number]
        if number in self.stopped:
            producer.kill()
            self.stopped.discard(number)
        else:
            producer.end()
        self.made += 1
        heir = self.producers[number] = Direct(
            self.scene, self.topic, number, producer=1000 + self.made, peer=f"heir {self.made}"
        )
        heir.acked = producer.acked
        self._look(number)

    # -- the others ---------------------------------------------------------------------------------

    def _turn(self, number: int) -> None:
        self.scene.core.turn()
        self._hear()

    def _wait(self, number: int) -> None:
        for _ in range(self.dice.randint(1, 8)):
            self.scene.wait(self.dice.choice([0.003, 0.1, 0.6, 3.0]))
        self._hear()

    def _other(self, number: int) -> None:
        """Another writer."""
        value = b"other" + self._value()[:9]
        request = self.scene.core.send(
            lambda request: m.Produce(request, self.topic, number), bytes(encode([value])), peer="other"
        )
        self.asked[request] = (number, value)

    def _commit(self, number: int) -> None:
        self._look(number)
        offset = self.asked_for[number] = self.dice.randint(self.asked_for[number], len(self.read[number]))
        position = m.Position(number, offset, 0)
        request = self.scene.core.send(lambda request: m.Commit(request, 0, self.topic, "g", [position]), peer="reader")
        self.commits[request] = (number, offset)

    def _look(self, number: int) -> None:
        """A reader: it sees what it saw, and at once what was acknowledged."""
        found = self.scene.read(self.topic, number)
        assert found[: len(self.read[number])] == self.read[number], "what was read is gone"
        assert not set(self.producers[number].acked) - set(found), "what was acknowledged is not there"
        self.read[number] = found

    def _hear(self) -> None:
        core = self.scene.core
        for request, (number, value) in list(self.asked.items()):
            if isinstance(core.answer(request), m.Produced):
                self.others[number].append(value)
                del self.asked[request]
        for request, (number, offset) in list(self.commits.items()):
            if isinstance(core.answer(request), m.Done):
                self.cursors[number] = offset
                del self.commits[request]

    # -- the node -----------------------------------------------------------------------------------

    def _resign(self, number: int) -> None:
        self._hear()
        self.scene.core.node.resign()
        self._lost()
        self.scene.core.turn()

    def _restart(self, number: int, clean: bool | None = None) -> None:
        self._hear()
        self.scene.restart(clean=self.dice.random() < 0.5 if clean is None else clean)
        self._lost()
        self.scene.core.turn()

    def _lost(self) -> None:
        for peer in ("other", "reader", *(f"direct {n}" for n in range(2))):
            self.scene.core.node.disconnect(peer)
        self.asked.clear()
        self.commits.clear()

    def rest(self) -> None:
        """Nothing more is done: all stands once, and in its order."""
        for number in sorted(self.stopped):
            self._gone(number)
        for _ in range(30):
            self.scene.wait(0.5)
        self._hear()
        assert not self.asked, f"never answered: {self.asked}"
        assert not self.commits, f"never answered: {self.commits}"
        self.scene.restart(clean=True)
        for number, producer in enumerate(self.producers):
            self._look(number)
            found = self.read[number]
            assert len(found) == len(set(found)), "something stands twice"
            assert [value for value in found if value in set(producer.acked)] == producer.acked
            assert not set(self.others[number]) - set(found)
            groups = self.scene.core.ask(lambda request: m.ListGroups(request, self.topic)).groups
            if groups:
                assert max(groups[0].partitions[number].cursor, 0) >= self.cursors[number]
