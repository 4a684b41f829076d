"""A random life under offices that come and go at any phase of a turn, each log synced and cut by itself.

Idea: a life says what its clients do, what they hear, and what holds when all is at rest. An office goes with whatever
it was about; `met` counts what was in flight then, so that a test can say what has to have happened.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from penstock.broker.engine import Now
from support.engine import Rig


class OfficeLife:
    """A node whose leader changes."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rig = Rig(seed=seed, snapshot_batches=self.dice.choice([3, 50]), housekeeping_s=2.0)
        self.met: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        """So many random steps, and then all is looked at."""
        for _ in range(steps):
            self.step()
            for _ in range(self.dice.randint(1, 4)):
                self._turn()
            self._hear()
        for _ in range(15):
            self.rig.sync()
            self.rig.pass_time(1.0, step=0.5)
        self._hear()
        self.look()

    def step(self) -> None:
        """One thing that a client does."""
        raise NotImplementedError

    def heard(self, answer: Any) -> None:
        """A client has an answer."""
        raise NotImplementedError

    def lost(self) -> None:
        """Each connection is lost, and with it what was asked and not answered."""
        raise NotImplementedError

    def look(self) -> None:
        """Everything is at rest: see that it holds."""
        raise NotImplementedError

    def commit(self) -> str:
        """When a topic's records count as committed."""
        return self.dice.choice(["durable", "written"])

    def wait(self, seconds: float) -> None:
        """Time passes at once, and nothing else happens."""
        now = self.rig.now
        self.rig.now = Now(now.wall_us + round(seconds * 1e6), now.monotonic_s + seconds)

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
                history.go_back(self.dice.randint(least, history.log.written))
                self.met["cut"] += 1
        self.rig.node.resign()
        self.rig.node.disconnect("c")
        self.lost()

    def _hear(self) -> None:
        sent, self.rig.port.sent = self.rig.port.sent, []
        for _, answer, _ in sent:
            self.heard(answer)
