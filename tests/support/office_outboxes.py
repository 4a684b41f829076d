"""The life of leases, dead letters and schedules under offices that come and go.

Idea: workers lease records and ack or reject them. When all is at rest a record that was answered stands once, one that
was rejected has one copy in the dead topic, none that was settled was leased again, and each schedule has fired once
at each of its times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.storage.batch import Batch, batches, encode
from penstock.transport import messages as m
from support.office_life import OfficeLife
from support.queue_model import ACK, REJECT

SCHEDULES = [b"0", b"1", b"2"]
EVERY_US = 1_000_000


class Held(NamedTuple):
    """A lease as its worker has it."""

    partition: int
    token: int
    offsets: list[int]


class OutboxLife(OfficeLife):
    """A node, and what the workers know that lease from it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rig = self.rig
        self.topic, self.dead_topic, self.scheduled = (
            rig.topic(name, 2, commit=self.commit()) for name in ("t", "graves", "s")
        )
        rig.ask(m.SetQueue, self.topic, "g", {"dead_topic": "graves"})
        for value in SCHEDULES:
            rig.ask(m.SetSchedule, self.scheduled, value.decode(), "every 1s", "UTC", value)
        self.leases: list[Held] = []
        self.above = [0, 0]  # by partition: the highest token that an earlier office gave
        self.tokens = [0, 0]  # and the highest of all
        self.producing: dict[int, set[tuple[int, bytes]]] = {}  # by request
        self.settling: dict[int, tuple[Held, int]] = {}
        self.produced: set[tuple[int, bytes]] = set()
        self.settled: dict[tuple[int, int], int] = {}  # how, by partition and offset
        self.made = 0

    def step(self) -> None:
        chance = self.dice.random()
        if chance < 0.2:
            self._produce()
        elif chance < 0.5:
            most = self.dice.randint(1, 4)
            self.rig.send(m.Lease(self.rig.next_request(), self.topic, "g", "w", most, lease_ms=3000))
        elif chance < 0.85 and self.leases:
            self._settle()
        elif chance < 0.95:
            self.wait(0.7)

    def _produce(self) -> None:
        self.made += 1
        values = [b"%d.%d" % (self.made, number) for number in range(self.dice.randint(1, 3))]
        request, partition = self.rig.next_request(), self.dice.randrange(2)
        self.producing[request] = {(partition, value) for value in values}
        self.rig.send(m.Produce(request, self.topic, partition), bytes(encode(values)))

    def _settle(self) -> None:
        held = self.leases.pop(self.dice.randrange(len(self.leases)))
        request, verb = self.rig.next_request(), self.dice.choice([ACK, REJECT, REJECT])
        self.settling[request] = held, verb
        self.rig.send(m.SettleTasks(request, self.topic, "g", [m.Settle(held.partition, held.token, verb)]))

    def heard(self, answer: Any) -> None:
        if isinstance(answer, m.Produced):
            self.produced.update(self.producing.pop(answer.request))
        elif isinstance(answer, m.Leased) and answer.runs:
            self._leased(answer)
        elif isinstance(answer, m.Settled) and not answer.refused:
            held, verb = self.settling.pop(answer.request)
            self.settled.update(((held.partition, offset), verb) for offset in held.offsets)

    def _leased(self, answer: m.Leased) -> None:
        partition = answer.partition
        assert answer.token > self.above[partition], "an earlier office gave this token or a higher one"
        self.tokens[partition] = max(self.tokens[partition], answer.token)
        offsets = [first + number for first, count, _ in answer.runs for number in range(count)]
        again = [offset for offset in offsets if (partition, offset) in self.settled]
        assert not again, f"records {again} of partition {partition} were settled"
        self.leases.append(Held(partition, answer.token, offsets))

    def lost(self) -> None:
        self.above = list(self.tokens)
        self.producing.clear()
        self.settling.clear()

    def look(self) -> None:
        self._look_at_records()
        self._look_at_dead_letters()
        self._look_at_schedules()

    def _look_at_records(self) -> None:
        found = Counter((partition, value) for partition in range(2) for value in self.rig.read(self.topic, partition))
        assert max(found.values(), default=1) == 1, f"twice: {found}"
        assert self.produced <= set(found), f"lost: {self.produced - set(found)}"

    def _look_at_dead_letters(self) -> None:
        found: Counter[tuple[int, int]] = Counter()
        for batch in self._batches(self.dead_topic):
            for headers in batch.headers_of_each():
                found[int(headers["penstock-dead-partition"]), int(headers["penstock-dead-offset"])] += 1
        rejected = {place for place, verb in self.settled.items() if verb == REJECT}
        assert max(found.values(), default=1) == 1, f"copied twice: {found}"
        assert rejected <= set(found), f"lost: {rejected - set(found)}"
        left = [
            entry for each in self.rig.node._registry.partitions.values() for entry in each.committed.outbox.entries
        ]
        assert not left, f"never copied: {left}"

    def _look_at_schedules(self) -> None:
        fired: dict[bytes, list[int]] = {value: [] for value in SCHEDULES}
        for batch in self._batches(self.scheduled):
            times = batch.event_times()
            assert times is not None
            for value, time_us in zip(batch.values(), times.tolist(), strict=True):
                fired[value].append(time_us)
        for value, times_us in fired.items():
            gaps_us = [later - earlier for earlier, later in pairwise(times_us)]
            assert min(gaps_us) >= EVERY_US, f"schedule {value!r} fired twice: {times_us}"
            assert self.rig.now.wall_us - times_us[-1] <= 2 * EVERY_US, f"schedule {value!r} stands still: {times_us}"

    def _batches(self, topic: bytes) -> Iterator[Batch]:
        """What a partition after the other holds."""
        rig = self.rig
        for partition in range(2):
            offset, end = rig.partition(topic, partition).first, -1
            while offset != end:
                request = rig.next_request()
                rig.send(m.Fetch(request, topic, partition, offset, -1, 1 << 16, 0))
                (answer,) = rig.answers(request)
                yield from batches(rig.port.sent[-1][2])
                end, offset = offset, answer.next_offset
