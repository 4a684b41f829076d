"""One life of two nodes: one takes the short way where it may, one never does. After each step they must be equal.

Idea: both are sent the same, right and wrong, in the same turns; the bytes of all files, the encoded states, what was
sent to each peer, in order, and the counters are compared. `met` counts what took which way.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from penstock.broker.engine.lone import LoneRecords
from penstock.storage.batch import Codec, encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.queue_model import ACK
from support.staging import staged

PRODUCERS = 3
PEERS = ("a", "b")
WAIT_MS = 3000


class General(Rig):
    """Never takes the short way."""

    short_way = False


class LoneLife:
    """Two nodes, and what is sent to both."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed)
        config = {"snapshot_batches": dice.choice([3, 1000]), "housekeeping_s": dice.choice([1.0, 1000.0])}
        self.rigs = [Rig(seed=seed, **config), General(seed=seed, **config)]
        self.commit = dice.choice(["written", "durable"])
        bounds = dice.choice([{}, {"max_record_bytes": 20}, {"retention_records": 4}])
        (self.topic,) = {rig.topic(partitions=2, commit=self.commit, **bounds) for rig in self.rigs}
        self.sequences: Counter[tuple[int, int]] = Counter()
        self.epochs = dict.fromkeys(range(1, PRODUCERS + 1), 0)
        self.steps: list[str] = []
        self.met: Counter[str] = Counter()
        self._watch(self.rigs[0].node._lone)

    def run(self, steps: int) -> None:
        """So many random steps."""
        commands = (
            *[self.one] * 12, *[self.several] * 2, self.wrong, self.again, self.large, self.keyed, self.deduplicated,
            self.anonymous, self.stage, self.lease, self.settle, self.fetch, self.ends, self.join, self.cursor,
            self.hold, self.sync, self.resign, self.full, self.disconnect, self.pass_time, self.trim, self.damaged,
            self.claim,
        )  # fmt: skip
        for _ in range(steps):
            command = self.dice.choice(commands)
            self.steps.append(command.__name__)
            command()
            self.look()
            self.turn()
            self.look()

    # -- both ---------------------------------------------------------------------------------------

    def send(self, type_: Any, *fields: Any, payload: bytes = b"", **named: Any) -> None:
        """One message to both, from either connection."""
        peer = self.dice.choice(PEERS)
        for rig in self.rigs:
            rig.send(type_(rig.next_request(), *fields, **named), payload, peer=peer)

    def turn(self) -> None:
        """Some turns of both, which may stop in the middle of one."""
        for _ in range(self.dice.randint(1, 2)):
            durable = self.dice.random() < 0.6
            for rig in self.rigs:
                for log in rig.node.flush(rig.now):
                    if durable and not rig.store.hold:
                        log.sync()
            if self.dice.random() < 0.9:
                for rig in self.rigs:
                    rig.node.advance(rig.now)
            if self.dice.random() < 0.9:
                assert len({rig.node.tick(rig.now) for rig in self.rigs}) == 1, self.steps

    def look(self) -> None:
        """Both are equal."""
        one, other = map(_all_of, self.rigs)
        for what in one:
            assert one[what] == other[what], f"seed {self.seed}, {self.steps[-8:]}: {what} differs"

    def _watch(self, lone: LoneRecords | None) -> None:
        assert lone is not None
        assert self.rigs[1].node._lone is None
        commit = lone.commit

        def counted() -> bool:
            was_calm = commit()
            self.met[f"commit {was_calm}"] += 1
            return was_calm

        lone.commit = counted  # pyright: ignore[reportAttributeAccessIssue]

    # -- producing ----------------------------------------------------------------------------------

    def batch(self, producer: int, partition: int, count: int = 1, **how: Any) -> bytes:
        """The next batch of a producer."""
        place = (producer, partition)
        values = [self.dice.randbytes(self.dice.choice([0, 5, 30])) for _ in range(count)]
        first, self.sequences[place] = self.sequences[place], self.sequences[place] + count
        return bytes(
            encode(values, producer_id=producer, producer_epoch=self.epochs[producer], first_sequence=first, **how)
        )

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

    def large(self) -> None:
        self.produce(self.batch(1, 0, 40), 0)

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

    # -- who else is concerned ------------------------------------------------------------------------

    def lease(self) -> None:
        self.send(m.Lease, self.topic, "q", "w", 2, wait_ms=self.dice.choice([0, WAIT_MS]))

    def settle(self) -> None:
        leases = [answer for _, answer, _ in self.rigs[0].port.sent if isinstance(answer, m.Leased) and answer.runs]
        if leases:
            leased = self.dice.choice(leases)
            ranges = [(first, count) for first, count, _ in leased.runs]
            self.send(m.SettleTasks, self.topic, "q", [m.Settle(leased.partition, leased.token, ACK, ranges)])

    def fetch(self) -> None:
        end = self.rigs[0].node._registry.topics.by_id[self.topic].readable[0].end
        self.send(m.Fetch, self.topic, 0, end, -1, 1 << 16, WAIT_MS)

    def ends(self) -> None:
        readable = self.rigs[0].node._registry.topics.by_id[self.topic].readable
        self.send(m.AskEnds, [m.Known(self.topic, [partition.end for partition in readable])], WAIT_MS)

    def join(self) -> None:
        delivery = self.dice.choice(["push", "mapped", "control"])
        self.send(
            m.Join, self.topic, self.dice.choice(["", "s"]), "m", delivery, m.EARLIEST, [], 5000, 1 << 20, 1 << 20
        )

    def cursor(self) -> None:
        self.send(m.Commit, 0, self.topic, "c", [m.Position(0, self.dice.randint(0, 4), 0)])

    def claim(self) -> None:
        self.send(m.OpenProducer, self.topic, self.dice.randrange(2), "named")

    def trim(self) -> None:
        self.send(m.Trim, self.topic, m.TrimRule.OFFSET, self.dice.randint(0, 3), 0)

    # -- what happens to both -------------------------------------------------------------------------

    def hold(self) -> None:
        for rig in self.rigs:
            rig.store.hold = not rig.store.hold

    def sync(self) -> None:
        for rig in self.rigs:
            for log in rig.node.logs:
                if log.poisoned is None:
                    log.sync()

    def resign(self) -> None:
        for rig in self.rigs:
            rig.node.resign()
            for peer in PEERS:
                rig.node.disconnect(peer)
        self.sync()
        for rig in self.rigs:
            rig.node.advance(rig.now)
        self._watch(self.rigs[0].node._lone)

    def full(self) -> None:
        """A record that finds the disk full."""
        self.one()
        for rig in self.rigs:
            for log in rig.node.logs:
                log.append = _no_room
            rig.node.flush(rig.now)
            for log in rig.node.logs:
                del log.append

    def disconnect(self) -> None:
        peer = self.dice.choice(PEERS)
        for rig in self.rigs:
            rig.node.disconnect(peer)

    def pass_time(self) -> None:
        for rig in self.rigs:
            rig.pass_time(1.0, 0.5)


def _no_room(batches: Any, now_us: int) -> Any:
    raise StorageFull("no room")


def _all_of(rig: Rig) -> dict[str, Any]:
    """Everything that may not depend on the way."""
    port, registry = rig.port, rig.node._registry
    return {
        "what was sent": port.sent,
        "what was delivered": port.delivered,
        "the wakes": port.wakes,
        "the files": {path: bytes(content.data) for path, content in rig.store.files.contents.items()},
        "the committed state": [history.committed.encode() for history in registry.histories()],
        "the proposed state": [partition.latest.encode() for partition in _led(rig)],
        "the ends that were told": sorted((each.number, end) for each, end in registry.told_end.items()),
        "the counters": rig.node.stats(),
    }


def _led(rig: Rig) -> list[Any]:
    return [] if rig.node._office is None else list(rig.node._registry.partitions.values())
