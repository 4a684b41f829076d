"""Random lives of a queue on a log that retention shortens: what is open is carried forward, and all of it ends once.

A record that is leased, dead or cancelled is not given to another worker; at the end the queue drains, every task has
ended, and the barrier of every group has fired once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables.queues.queue import Queue
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import FOREVER_US, Settle, Verb
from support.dead import opened, queue
from support.engine import Rig

SECOND = 1_000_000
ENDED = {"completed", "cancelled", "discarded", "task_forgotten", "unknown_task"}


class Life:
    """A queue `g`, and what its workers hold."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rig = Rig(seed=seed, housekeeping_s=2.0, snapshot_batches=self.dice.choice([5, 20, 1000]))
        dedup = self.dice.choice(["drop", "replace"])
        self.topic = self.rig.topic(segment_bytes=64 << 10, retention_s=5.0, dedup=dedup, dedup_window_s=100.0)
        self.then = self.rig.topic("then")
        settings = {
            "carry_after_s": 3.0, "max_attempts": self.dice.choice([2, 4, None]), "jitter": 0.0,
            "lease_s": self.dice.choice([8.0, None]), "keep_finished_s": self.dice.choice([None, None, 30.0]),
            "order": self.dice.choice(["none", "none", "key"]), "rate": self.dice.choice([None, None, "20/s"]),
        }  # fmt: skip
        self.rig.ask(m.SetQueue, self.topic, "g", settings)
        self.held: set[int] = set()  # tokens
        self.groups = 0  # sent, each with a barrier

    @property
    def queue(self) -> Queue:
        return queue(self.rig, self.topic)

    def maybe(self, chance: float) -> bool:
        return self.dice.random() < chance

    def some_offset(self) -> int:
        return self.dice.randrange(max(opened(self.rig, self.topic).end, 1))

    # -- steps --------------------------------------------------------------------------------------

    def produce(self) -> None:
        count, now_us = self.dice.randint(1, 4), self.rig.now.wall_us
        values = [b"x" * self.dice.choice([10, 25_000]) for _ in range(count)]
        delays = [self.dice.choice([0, now_us + self.dice.randint(1, 40) * SECOND]) for _ in values]
        priorities, keys = [self.dice.choice([0, 5]) for _ in values], [b"%d" % self.dice.randrange(3) for _ in values]
        how = {
            "not_before": delays if self.maybe(0.5) else None, "priorities": priorities if self.maybe(0.4) else None,
            "keys": keys if self.maybe(0.5) else None,
        }  # fmt: skip
        if self.maybe(0.3):
            dedup = [b"%d" % self.dice.randrange(6) for _ in values]
            assert isinstance(self.rig.produce(self.topic, values, dedup=dedup, **how), m.Produced)
            return
        self.groups += 1
        barrier = b"%016d" % self.groups
        assert isinstance(self.rig.ask(m.SetBarrier, self.then, 0, barrier, count, True), m.Done)
        tie = m.Tie("g", self.then, 0, barrier, list(range(count)))
        batch = bytes(encode(values, producer_id=1000 + self.groups, **how))
        assert isinstance(self.rig.ask(m.Produce, self.topic, 0, tie, payload=batch), m.Produced)

    def lease(self) -> None:
        before, now_us = self.closed(), self.rig.now.wall_us
        self.got(self.rig.lease(self.topic, most=self.dice.randint(1, 5), takes=self.maybe(0.1)), before, now_us)

    def closed(self) -> dict[int, int]:
        """Records that no other worker may get, and until when."""
        found = dict.fromkeys([*self.queue.dead_letters, *self.queue.cancelled], FOREVER_US)
        for each in self.queue.leases.values():
            for first, count, _ in each.runs():
                found |= dict.fromkeys(range(first, first + count), each.until_us)
        return found

    def got(self, leased: m.Leased | None, closed: dict[int, int], now_us: int) -> None:
        if leased is None:
            return  # its keys are on their way
        assert isinstance(leased, m.Leased), leased
        most = self.queue.settings.max_attempts
        for first, count, attempt in leased.runs:
            assert most is None or attempt <= most
            assert all(closed.get(offset, 0) <= now_us + SECOND for offset in range(first, first + count))
        if leased.runs and leased.token:
            self.held.add(leased.token)

    def lease_slowly(self) -> None:
        """The pages of the records come late."""
        self.rig.port.cold = []
        request = self.rig.next_request()
        takes = self.maybe(0.7)
        self.rig.send(m.Lease(request, self.topic, "g", "w", self.dice.randint(1, 4), takes=takes))
        self.rig.pass_time(self.dice.choice([0.5, 8.0]))
        cold, self.rig.port.cold = self.rig.port.cold, None
        for token in cold:
            self.rig.node.warmed(token)
        self.rig.turn()
        for answer in self.rig.answers(request):
            self.got(answer, {}, 0)

    def claim(self) -> None:
        offsets, force = sorted({self.some_offset() for _ in range(3)}), self.maybe(0.5)
        ended = {*self.queue.dead_letters, *self.queue.cancelled}
        leased = self.rig.ask(lambda request: m.Claim(request, self.topic, "g", "c", 0, offsets=offsets, force=force))
        self.got(leased, dict.fromkeys(ended, FOREVER_US), 0)

    def settle(self) -> None:
        if self.held:
            token, verb = self.dice.choice(sorted(self.held)), self.dice.choice([0, 0, 0, 1, 1, 2, 3])
            self.held.remove(token)
            self.rig.settle(self.topic, Settle(0, token, verb, [], self.dice.choice([0, -1]) if verb == 1 else 0))

    def wait(self) -> None:
        self.rig.pass_time(self.dice.choice([0.5, 2.0, 7.0]))

    def reset(self) -> None:
        if self.maybe(0.2):
            partition = opened(self.rig, self.topic)
            offset = self.dice.randint(partition.first, partition.end)
            self.rig.ask(m.ResetQueue, self.topic, "g", m.EARLIEST, [(0, offset)])

    def cancel(self) -> None:
        self.rig.ask(m.CancelTask, self.topic, "g", 0, self.some_offset())

    def delete(self) -> None:
        if self.maybe(0.4):
            self.rig.ask(m.DeleteRecords, self.topic, [(0, self.some_offset())])

    def trim(self) -> None:
        if self.maybe(0.1):
            self.rig.ask(m.Trim, self.topic, m.TrimRule.OFFSET, self.some_offset())

    def redrive(self) -> None:
        self.rig.ask(m.RedriveDead, self.topic, "g")

    def discard(self) -> None:
        self.rig.ask(m.DiscardDead, self.topic, "g")

    def restart(self) -> None:
        if self.maybe(0.3):
            self.rig.restart(clean=self.maybe(0.5))
            log, live = opened(self.rig, self.topic).log, opened(self.rig, self.topic).committed
            assert replay(log, PartitionState, self.rig.store).committed.encode() == live.encode()

    # -- the end --------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Everything is acked or discarded."""
        for _ in range(400):
            self.discard()
            for token in [*self.held, *self.queue.leases]:
                self.rig.settle(self.topic, Settle(0, token, Verb.ACK))
            self.held.clear()
            self.lease()
            if not self.held:
                stands = self.rig.queue(self.topic)
                if not stands.ready + stands.delayed + stands.in_flight + stands.waiting + stands.dead:
                    return
                self.rig.pass_time(2, step=1)
        raise AssertionError("the queue does not drain")

    def look(self) -> None:
        for offset in range(opened(self.rig, self.topic).end):
            answer = self.rig.ask(m.AskTask, self.topic, "g", 0, offset)
            state = answer.code if isinstance(answer, m.Failure) else answer.state
            assert state in ENDED, f"record {offset}: {answer}"
        self.rig.pass_time(40, step=1)
        assert self.rig.ask(m.ListBarriers).barriers == []
        assert len(self.rig.read(self.then)) == self.groups


STEPS: list[Callable[[Life], None]] = [
    *[Life.produce, Life.lease, Life.settle] * 4, *[Life.wait] * 3, Life.claim, Life.claim, Life.lease_slowly,
    Life.reset, Life.cancel, Life.delete, Life.trim, Life.redrive, Life.discard, Life.restart,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_what_is_open_outlives_the_log_and_ends_once(seed: int):
    life = Life(seed)
    for _ in range(80):
        life.dice.choice(STEPS)(life)
    life.drain()
    life.look()
