"""One life of two nodes: one recognises a few plain records, and answers before it applies them; the other judges every
batch, and answers once it is applied. They must always be equal.

Idea: both are sent the same, right and wrong, in the same turns; after each step the bytes of all files, the encoded
states, all answers, in order, and the counters are compared. `met` counts what the first node found in batches.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from penstock.broker.engine.producing import few, producing
from penstock.storage.batch import Codec, encode
from penstock.storage.errors import Error, StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import staged

PRODUCERS = 3
EDGE = bytes(encode([bytes(300)], producer_id=1))
"""As long as a frame may be, or longer by a byte, in some lives."""


class Recognising(Rig):
    """Notes in `met` what came of each batch."""

    def __init__(self, **config: Any) -> None:
        self.met: Counter[str] = Counter()
        super().__init__(**config)

    def send(self, *given: Any, **named: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producing, "propose_few", self._noted)
            super().send(*given, **named)

    def _noted(self, partition: Any, batch: Any, most: int, waiter: Any, owner: str | None) -> int:
        stands = few.recognise_few(batch)
        reasons = {
            "too large": len(batch) > min(partition.settings.max_record_bytes, most),
            "not plain": stands is None,
            "poisoned": partition.log.poisoned is not None,
            "anonymous": stands is not None and not stands[2],
            "below 0": stands is not None and stands[3] < 0,
            "staging": bool(partition.latest.stages.by_id),
        }
        found = [reason for reason, holds in reasons.items() if holds]
        try:
            count = few.propose_few(partition, batch, most, waiter, owner)
        except Error as error:
            self.met[error.code] += 1
            raise
        self.met[found[0] if len(found) == 1 else "proposed" if count else "several" if found else "repeated"] += 1
        return count


class Judging(Rig):
    """Recognises nothing."""

    def send(self, *given: Any, **named: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producing, "propose_few", lambda *_: 0)
            super().send(*given, **named)


class FewLife:
    """Two nodes, and what is sent to both."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed)
        config = {
            "snapshot_batches": dice.choice([3, 1000]), "housekeeping_s": dice.choice([1.0, 1000.0]),
            "max_frame_bytes": dice.choice([len(EDGE) - 1, len(EDGE), 1 << 20]),
        }  # fmt: skip
        settings: dict[str, Any] = dice.choice([{}, {"max_record_bytes": 20}, {"retention_records": 4}])
        settings["commit"] = dice.choice(["written", "durable"])
        one = Recognising(seed=seed, **config)
        self.met = one.met
        self.rigs = [one, Judging(seed=seed, **config)]
        (self.topic,) = {rig.topic(partitions=2, **settings) for rig in self.rigs}
        self.sequences: Counter[tuple[int, int]] = Counter()
        self.steps: list[str] = []

    def run(self, steps: int) -> None:
        """So many random steps."""
        commands = (
            *[self.one] * 8, *[self.several] * 2, *[self.wrong] * 3, self.again, self.overlapping, self.large,
            self.edge, self.keyed, self.deduplicated, self.anonymous, self.stage, self.damaged, self.claim,
            *[self.named] * 3, self.hold, self.sync, self.resign, self.full, self.pass_time,
        )  # fmt: skip
        for number in range(steps):
            command = self.poison if number == steps - 5 else self.dice.choice(commands)
            self.steps.append(command.__name__)
            command()
            self.look()
            self.turn()
            self.look()

    # -- both ---------------------------------------------------------------------------------------

    def send(self, type_: Any, *fields: Any, payload: bytes = b"") -> None:
        """One message to both."""
        for rig in self.rigs:
            rig.send(type_(rig.next_request(), *fields), payload)

    def turn(self) -> None:
        """A turn of both, which may stop in the middle."""
        durable, is_whole = self.dice.random() < 0.6, self.dice.random() < 0.9
        for rig in self.rigs:
            for log in rig.node.flush(rig.now):
                if durable and not rig.store.hold:
                    log.sync()
            if is_whole and rig is self.rigs[0]:
                self.met["answered ahead"] += rig.node.answer_ahead()
            if is_whole:
                rig.node.advance(rig.now)
                rig.node.tick(rig.now)

    def look(self) -> None:
        """Both are equal."""
        one, other = map(all_of, self.rigs)
        for what in one:
            assert one[what] == other[what], f"seed {self.seed}, {self.steps[-8:]}: {what} differs"

    # -- producing ----------------------------------------------------------------------------------

    def batch(self, producer: int, partition: int, count: int = 1, **how: Any) -> bytes:
        """The next batch of a producer."""
        place = (producer, partition)
        values = [self.dice.randbytes(self.dice.choice([0, 5, 30])) for _ in range(count)]
        first, self.sequences[place] = self.sequences[place], self.sequences[place] + count
        return bytes(encode(values, producer_id=producer, first_sequence=first, **how))

    def produce(self, payload: bytes, partition: int) -> None:
        self.send(m.Produce, self.topic, partition, payload=payload)

    def one(self) -> None:
        partition = self.dice.randrange(2)
        self.produce(self.batch(self.dice.randint(1, PRODUCERS), partition), partition)

    def several(self) -> None:
        for _ in range(self.dice.randint(2, 4)):
            self.one()

    def wrong(self) -> None:
        """A sequence that does not follow, an epoch of old, no partition, a producer that is not known."""
        producer = self.dice.randint(1, PRODUCERS)
        first, epoch = self.dice.choice([(7, 0), (10_000, 0), (0, 5), (-1, 0)])
        payload = bytes(encode([b"x"], producer_id=producer, producer_epoch=epoch, first_sequence=first))
        self.produce(payload, self.dice.choice([0, 1, 2, -1]))

    def again(self) -> None:
        """Sent twice in one turn."""
        payload = self.batch(1, 0, 2)
        self.produce(payload, 0)
        self.produce(payload, 0)

    def overlapping(self) -> None:
        """Records of which some are known, in batches that begin or end inside the last one."""
        end = self.sequences[1, 1]
        first, count = self.dice.choice([(end - 1, 1), (end - 1, 2), (end - 2, 1), (end - 2, 3)])
        self.produce(bytes(encode([b"x"] * count, producer_id=1, first_sequence=max(first, 0))), 1)

    def large(self) -> None:
        self.produce(self.batch(1, 0, 40), 0)

    def edge(self) -> None:
        self.produce(EDGE, self.dice.randrange(2))

    def keyed(self) -> None:
        self.produce(self.batch(2, 1, 1, keys=[b"k"], codec=self.dice.choice([Codec.NONE, Codec.LZ4])), 1)

    def deduplicated(self) -> None:
        self.produce(self.batch(2, 1, 1, dedup=[self.dice.choice([b"k", b"l"])]), 1)

    def anonymous(self) -> None:
        self.produce(bytes(encode([b"x"], first_sequence=self.dice.choice([0, 0, 3]))), 0)

    def stage(self) -> None:
        self.produce(bytes(staged([b"x"], self.dice.choice([1, 77]))), 0)

    def damaged(self) -> None:
        payload = bytearray(self.batch(3, 0))
        payload[self.dice.randrange(len(payload))] ^= 1 << self.dice.randrange(8)
        self.produce(bytes(payload), 0)

    def claim(self) -> None:
        self.send(m.OpenProducer, self.topic, 1, "named")

    def named(self) -> None:
        """Under a name, which others have claimed since, or not."""
        opened = [answer for _, answer, _ in self.rigs[0].port.sent if type(answer) is m.ProducerOpened]
        if opened:
            claim = self.dice.choice(opened[-2:])
            payload = self.batch(claim.producer_id, 1, producer_epoch=claim.epoch)
            self.produce(payload, 1)

    # -- what happens to both -------------------------------------------------------------------------

    def hold(self) -> None:
        for rig in self.rigs:
            rig.store.hold = not rig.store.hold

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
            rig.resign()
        self.sync()
        for rig in self.rigs:
            rig.node.advance(rig.now)

    def full(self) -> None:
        """A record that finds the disk full."""
        self.one()
        for rig in self.rigs:
            for log in rig.node.logs:
                log.append = no_room
            rig.node.flush(rig.now)
            for log in rig.node.logs:
                del log.append

    def pass_time(self) -> None:
        for rig in self.rigs:
            rig.pass_time(1.0, 0.5)


def no_room(batches: Any, now_us: int) -> Any:
    raise StorageFull("no room")


def all_of(rig: Rig) -> dict[str, Any]:
    """Everything that may not depend on how a batch was judged."""
    registry = rig.node._registry
    partitions = list(registry.partitions.values()) if rig.node._office is not None else []
    return {
        "what was sent": rig.port.sent,
        "the files": {path: bytes(content.data) for path, content in rig.store.files.contents.items()},
        "the committed state": [history.committed.encode() for history in registry.histories()],
        "the proposed state": [partition.latest.encode() for partition in partitions],
        "the counters": rig.node.stats(),
    }
