"""Producers that do not wait, over syncs that come late, disks that fill up and answers that get lost.

Every producer keeps a window of batches in flight, sends again whatever was refused or not answered, and goes on.
Whatever happens in between: at the end each record is stored once, in its producer's order, where its ack says.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig

WINDOW, BATCHES = 6, 25


class Producer:
    """One producer of one partition. `acked` counts its batches from the first one."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.batches: list[tuple[bytes, list[bytes]]] = []
        self.offsets: list[int] = []
        self.requests: dict[int, int] = {}
        first = 0
        for index in range(BATCHES):
            values = [b"%d/%d/%d" % (number, index, each) for each in range(chance.randint(1, 3))]
            self.batches.append((bytes(encode(values, producer_id=number, first_sequence=first)), values))
            first += len(values)

    @property
    def done(self) -> bool:
        return len(self.offsets) == len(self.batches)

    def send(self, rig: Rig, topic: bytes, chance: random.Random) -> None:
        """Send the window, or a part of it, again or for the first time."""
        start = len(self.offsets)
        for index in range(start, min(start + chance.randint(1, WINDOW), len(self.batches))):
            request = rig.next_request()
            self.requests[request] = index
            rig.send(m.Produce(request, topic, 0), self.batches[index][0])

    def take(self, answers: list[Any]) -> None:
        """Acks count in order; a failure is sent again sooner or later."""
        placed: dict[int, int] = {}
        for answer in answers:
            index = self.requests.get(answer.request)
            if index is None:
                continue
            if isinstance(answer, m.Produced):
                assert placed.setdefault(index, answer.offset) == answer.offset
            else:
                assert answer.code in ("storage_full", "sequence_gap", "unknown_producer"), answer
        while len(self.offsets) in placed:
            self.offsets.append(placed[len(self.offsets)])


@pytest.mark.parametrize("seed", range(15))
def test_what_is_acknowledged_is_stored_once_in_order_and_where_it_was_said(seed: int):
    chance = random.Random(seed)
    rig = Rig(seed=seed, snapshot_batches=30)
    topic = rig.topic(commit="written" if seed % 4 == 0 else "durable", segment_bytes=64 << 10)
    producers = [Producer(number, chance) for number in range(1, 4)]
    for _ in range(2000):
        if all(producer.done for producer in producers):
            break
        rig.store.hold = chance.random() < 0.5
        for producer in chance.sample(producers, chance.randint(1, 3)):
            producer.send(rig, topic, chance)
        if chance.random() < 0.2:
            turn_on_full_disk(rig)
        elif chance.random() < 0.1:
            rig.restart(clean=chance.random() < 0.5)
            continue
        rig.turn(1)
        lost = chance.random() < 0.1
        for producer in producers:
            if not lost:
                producer.take(
                    [message for _, message, _ in rig.port.sent if isinstance(message, m.Produced | m.Failure)]
                )
        rig.port.sent.clear()
    rig.store.hold = False
    rig.sync()
    assert all(producer.done for producer in producers)
    stored = rig.read(topic)
    for number, producer in enumerate(producers, 1):
        values = [value for _, batch in producer.batches for value in batch]
        assert [value for value in stored if value.startswith(b"%d/" % number)] == values
        for offset, (_, batch) in zip(producer.offsets, producer.batches, strict=True):
            assert stored[offset : offset + len(batch)] == batch


def turn_on_full_disk(rig: Rig) -> None:
    """One turn in which nothing can be appended."""
    log = rig.node.logs[1]
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        raise StorageFull("no space")

    log.append = full
    rig.turn(1)
    log.append = append
