"""Whatever a client sends, a node answers it once or refuses it: nothing is raised, nothing hangs, nothing diverges."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import structs
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import ColumnId, Kind, assemble
from penstock.storage.columns import pieces
from penstock.storage.errors import StorageError
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.errors import ProtocolError
from support.engine import START_US, Rig
from support.mutations import mutations
from support.samples import REQUESTS, TOPIC
from support.staging import partition_of, publish, stage_of

NUMBERS = [0, 1, 2, 5, 100, 2**31, 2**32, 2**53, 2**61, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -(2**63)]
TIMES = [START_US, START_US + 1, START_US + 10**6, START_US - 10**9]


def assert_replays(rig: Rig) -> None:
    for history in rig.node._registry.partitions:
        again = replay(history.log, PartitionState, rig.store)
        assert again.committed.encode() == history.committed.encode()


# -- columns --------------------------------------------------------------------------------------


def column(chance: random.Random, id_: int, count: int) -> Any:
    """What a producer may put there, or something like it."""
    if id_ == ColumnId.PRIORITY:
        good = bytes(chance.choice([0, 0, 1, 255]) for _ in range(count))
    elif id_ == ColumnId.NOT_BEFORE:
        wild = [0, 1, -1, START_US, START_US + 5 * 10**6, 2**62, 2**63 - 1, -(2**63)]
        usual = [0, START_US + chance.randint(-5, 10) * 10**6]
        chosen = [chance.choice(wild if chance.random() < 0.1 else usual) for _ in range(count)]
        good = b"".join(each.to_bytes(8, "little", signed=True) for each in chosen)
    else:
        keys = [chance.choice([b"", b"a", b"b", b"k" * chance.choice([1, 1024, 1025])]) for _ in range(count)]
        found = pieces(keys)
        good = b"".join(bytes(part) for part in found.parts)
    if chance.random() < 0.6:
        return good
    return next(mutations([good], 1, chance.randrange(1 << 30)))


@pytest.mark.parametrize("rule", ["drop", "replace", "extend"])
def test_odd_columns_of_priorities_delays_and_dedup_keys_are_taken_or_refused(rule: str):
    rig, chance = Rig(snapshot_batches=50), random.Random(rule)
    topic = rig.topic(dedup=rule, dedup_window_s=5)
    rig.lease(topic)
    outcomes: dict[str, int] = {}
    for number in range(600):
        count = chance.choice([1, 2, 3, 70])
        ids = chance.sample([ColumnId.PRIORITY, ColumnId.NOT_BEFORE, ColumnId.DEDUP], chance.randint(1, 3))
        if chance.random() < 0.05:
            ids.append(ids[0])
        codecs = [chance.choice([0] * 20 + [1, 2, 9]) for _ in ids]
        columns = [(id_, codec_, column(chance, id_, count)) for id_, codec_ in zip(ids, codecs, strict=True)]
        try:
            payload = assemble(Kind.RECORDS, count, [(ColumnId.VALUE, 0, pieces([b"v"] * count)), *columns])
        except StorageError:
            continue  # no such codec
        answer = rig.ask(m.Produce, topic, 0, payload=bytes(payload))
        assert isinstance(answer, m.Produced | m.Failure), answer
        name = answer.code if isinstance(answer, m.Failure) else "taken"
        outcomes[name] = outcomes.get(name, 0) + 1
        if number % 5 == 0:
            leased = rig.lease(topic, most=chance.choice([1, 50]))
            rig.settle(topic, m.Settle(0, leased.token, chance.choice([0, 1]))) if leased.runs else None
            rig.pass_time(chance.choice([0, 0.3, 2]), step=1)
    assert set(outcomes) <= {"taken", "invalid_batch", "bad_checksum", "batch_too_large"}, outcomes
    assert min(outcomes["taken"], outcomes["invalid_batch"]) > 50
    assert_replays(rig)


@pytest.mark.parametrize("seed", range(2))
def test_odd_staged_batches_are_taken_or_refused_and_published_as_they_are(seed: int):
    rig, chance = Rig(snapshot_batches=50, max_stages=3), random.Random(seed)
    topic = rig.topic()
    rig.lease(topic)
    outcomes: dict[str, int] = {}
    for number in range(400):
        count, id_ = chance.choice([1, 2, 70]), chance.choice([ColumnId.PRIORITY, ColumnId.NOT_BEFORE, ColumnId.DEDUP])
        columns = [(id_, 0, column(chance, id_, count))] if chance.random() < 0.5 else []
        stage_id = chance.choice([0, 1, 2, 3, 4, 2**64 - 1])
        known = stage_of(rig, topic, stage_id)
        first = chance.choice([known.next_sequence if known is not None else 0] * 3 + [0, 1, 2**63 - 1, -1])
        payload = assemble(
            Kind.STAGED, count, [(ColumnId.VALUE, 0, pieces([b"v"] * count)), *columns], stage_id,
            chance.choice([0] * 9 + [1]), first,
        )  # fmt: skip
        answer = rig.ask(m.Produce, topic, 0, payload=bytes(payload))
        assert isinstance(answer, m.Produced | m.Failure), answer
        name = answer.code if isinstance(answer, m.Failure) else "taken"
        outcomes[name] = outcomes.get(name, 0) + 1
        if number % 20 == 0:
            for stage in partition_of(rig, topic).committed.stages.dump()[:2]:
                publish(rig, topic, stage.stage)
            rig.pass_time(chance.choice([0, 2]), step=1)
    usual = {"taken", "invalid_batch", "unknown_producer", "sequence_gap", "limit_reached"}
    assert usual <= set(outcomes) <= {*usual, "bad_checksum"}, outcomes
    assert outcomes["taken"] > 50
    assert_replays(rig)


# -- fields ---------------------------------------------------------------------------------------


class Odd:
    """Requests as a client with a bug would send them: mostly right, with some fields that are not."""

    def __init__(self, seed: int, topic: bytes) -> None:
        self.random = random.Random(seed)
        self.topic = topic
        self.tokens = [5]
        self.rate = 0.0

    def requests(self, count: int) -> Iterator[tuple[Any, bytes]]:
        """As they would come over the wire: what the codec refuses is none."""
        rare = m.DeleteQueue | m.DiscardDead | m.AlterTopic | m.Trim
        samples = [(each, b) for each, b in REQUESTS if not isinstance(each, m.DeleteTopic | m.CreateTopic)]
        samples = [
            (structs.replace(each, takes=False) if isinstance(each, m.Lease) else each, b) for each, b in samples
        ]
        weights = [1 if isinstance(each, rare) else 20 if isinstance(each, m.Lease) else 8 for each, _ in samples]
        for message, payload in self.random.choices(samples, weights, k=count):
            self.rate = self.random.choice([0.02, 0.1, 0.4])
            tag, *fields = msgspec.msgpack.decode(codec.encode(message))
            fields = [self.value(field) for field in fields]
            try:
                yield codec.decode_request([msgspec.msgpack.encode([tag, *fields]), payload])
            except ProtocolError:
                continue

    def value(self, value: Any) -> Any:
        """One that is right, or another of its kind."""
        chance = self.random
        if value == TOPIC:
            return self.topic
        if value == 5:
            return chance.choice(self.tokens)
        if isinstance(value, list):
            return [self.value(each) for each in value for _ in range(self.wrong(1, [0, 2, 3]))]
        if isinstance(value, dict):
            return {key: self.value(each) for key, each in value.items()}
        match value:
            case bool():
                return self.wrong(value, [not value])
            case int() | None:
                return self.wrong(value, NUMBERS + TIMES)
            case float():
                return self.wrong(value, [0.0, -1.0, 1e-5, 5e-324, 1e300, math.inf, math.nan])
            case str():
                return self.wrong(value, ["", "jobs", "report", "x" * 300, "\0", "0 3 * * *", "every 1s", "é"])
            case _:
                return self.wrong(value, [b"", b"x", bytes(16), b"\xff" * 2000])

    def wrong(self, value: Any, others: Sequence[Any]) -> Any:
        return self.random.choice(others) if self.random.random() < self.rate else value


@pytest.mark.parametrize("seed", range(6))
def test_requests_with_odd_values_are_answered_or_refused_and_replay_the_same(seed: int):
    chance = random.Random(seed)
    rig = Rig(max_partitions=4, max_schedules=5, max_dedup_keys=20, max_sessions=10, snapshot_batches=40)
    topic = rig.topic(partitions=4)
    rig.produce(topic, [b"%d" % n for n in range(120)])
    rig.produce(topic, [b"%d" % n for n in range(120)], partition=3)
    client = Odd(seed, topic)
    sent = 0
    for message, payload in client.requests(1500):
        rig.send(message, bytes(payload), peer=chance.choice("ab"))
        sent += 1
        client.tokens += [each.token for _, each, _ in rig.port.sent[-3:] if isinstance(each, m.Leased)][-1:]
        if chance.random() < 0.3:
            rig.turn(1)
        if chance.random() < 0.05:
            rig.pass_time(chance.choice([0.1, 1, 5]), step=1)
        if chance.random() < 0.01:
            rig.restart(clean=chance.random() < 0.5)
    rig.turn()
    assert sent > 1000
    assert len(set(client.tokens)) > 3
    assert 0 <= rig.node.tick(rig.now) < 1000
    assert_replays(rig)
