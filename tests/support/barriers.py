"""Barriers at a rig: a callback's topic, members in a queue, and what came of them."""

from __future__ import annotations

from typing import Any

import msgspec
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables.state import PartitionState
from penstock.broker.engine.tables.ties import TELLINGS_BYTES_MAX
from penstock.storage.batch import batches, encode
from penstock.transport import messages as m
from penstock.transport.queue_messages import Settle, Verb
from support.engine import Rig

GROUP = "g"


def code(answer: Any) -> str:
    """Of a refusal."""
    assert isinstance(answer, m.Failure), answer
    return answer.code


class Scene:
    """A rig with a queue `work` and a topic `then` for callbacks. Members are numbered by barrier."""

    def __init__(self, rig: Rig | None = None, *, partitions: int = 1, **queue: Any) -> None:
        self.rig = rig or Rig()
        self.work = self.rig.topic("work", partitions)
        self.then = self.rig.topic("then")
        settings = {"lease_s": 60.0, "max_attempts": 2, "backoff_s": 0.01, "backoff_max_s": 0.01, "jitter": 0.0}
        self.rig.ask(m.SetQueue, self.work, GROUP, {**settings, **queue})
        self.producers = 100

    def set(self, barrier: bytes = b"b", members: int = 1, *, ended: bool = False, number: int = 0, **how: Any) -> Any:
        """Set a barrier, in partition `number`; returns the answer."""
        request = self.rig.next_request()
        self.rig.send(m.SetBarrier(request, self.then, number, named(barrier), members, ended, **how))
        self.rig.turn()
        (answer,) = self.rig.answers(request)
        return answer

    def delete(self, barrier: bytes = b"b", topic: bytes | None = None) -> Any:
        """Delete a barrier; returns the answer."""
        return self.rig.ask(m.DeleteBarrier, topic or self.then, named(barrier))

    def ask(self, offset: int) -> Any:
        """What is known of a task of `work`."""
        return self.rig.ask(m.AskTask, self.work, GROUP, 0, offset)

    def send(self, members: list[int], barrier: bytes = b"b", *, partition: int = 0, **how: Any) -> Any:
        """Send members; returns the answer."""
        self.producers += 1
        batch = encode([b"%d" % each for each in members], producer_id=how.pop("producer", self.producers), **how)
        return self.produce(bytes(batch), members, barrier, partition)

    def produce(self, batch: bytes, members: list[int], barrier: bytes = b"b", partition: int = 0) -> Any:
        tie = m.Tie(GROUP, self.then, 0, named(barrier), members)
        return self.rig.ask(m.Produce, self.work, partition, tie, payload=batch)

    def lease(self, most: int = 1) -> Any:
        return self.rig.lease(self.work, GROUP, most)

    def settle(self, leased: Any, verb: Verb = Verb.ACK, result: bytes = b"", reason: str = "") -> None:
        """Settle all of a lease; a result is that of each record."""
        offsets = [first + at for first, count, _ in leased.runs for at in range(count)]
        results = [(offset, result) for offset in offsets] if verb == Verb.ACK else []
        refused = self.rig.settle(
            self.work, Settle(leased.partition, leased.token, verb, [], 0, reason, results), group=GROUP
        )
        assert not refused, refused

    def work_off(self, result: bytes = b"r") -> None:
        """Complete the next task."""
        self.settle(self.lease(), result=result)

    def fired(self) -> list[list[tuple[str, bytes, str]]]:
        """The words of each callback's record, in order."""
        self.rig.turn(12)
        return [msgspec.msgpack.decode(value, type=list[tuple[str, bytes, str]]) for value in self.rig.read(self.then)]

    def listed(self) -> list[m.Barrier]:
        return self.rig.ask(m.ListBarriers).barriers

    def first_batch(self) -> Any:
        self.rig.fetch(self.then, 0)
        return next(batches(self.rig.port.sent[-1][2]))

    def replays(self) -> None:
        """The logs, with and without snapshots, give the states that the node has."""
        self.counts()
        for partition in self.rig.node._registry.partitions.values():
            live, again = partition.committed, replay(partition.log, PartitionState, self.rig.store).committed
            assert again.encode() == live.encode()
            assert again.barriers.bytes == live.barriers.bytes
            assert again.ties.bytes == live.ties.bytes

    def counts(self) -> None:
        """The bytes of barriers are the sum of what each has, in what is committed and in what is ahead."""
        for partition in self.rig.node._registry.partitions.values():
            for state in (partition.committed, partition.proposed):
                table = state.barriers
                assert table.bytes == sum(each.size for each in table.by_id.values())
                assert table.bytes <= self.rig.config.max_barrier_bytes
            ties = partition.committed.ties
            assert ties.bytes == sum(each.word.size for each in ties.tellings.values()) <= TELLINGS_BYTES_MAX

    def state(self, topic: bytes, partition: int = 0) -> PartitionState:
        return self.rig.node._registry.topics.get(topic).partition(partition).committed


def named(barrier: bytes) -> bytes:
    return barrier.ljust(16, b".")
