"""Records with dedup keys, through a node of one partition."""

from __future__ import annotations

from typing import Any

from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig

SECOND = 1_000_000


def keyed(keys: list[bytes], *, producer_id: int = 0, first_sequence: int = 0) -> bytes:
    """A batch of records whose values are their dedup keys."""
    return bytes(encode(keys, dedup=keys, producer_id=producer_id, first_sequence=first_sequence))


def produce(rig: Rig, topic: bytes, *keys: bytes, **how: Any) -> Any:
    answer = rig.ask(m.Produce, topic, 0, payload=keyed(list(keys), **how))
    return answer


def repeats(rig: Rig, topic: bytes, *keys: bytes, **how: Any) -> list[tuple[int, int]]:
    answer = produce(rig, topic, *keys, **how)
    assert isinstance(answer, m.Produced), answer
    return answer.repeats


def opened(rig: Rig) -> Any:
    return next(iter(rig.node._registry.partitions.values()))


def void(rig: Rig) -> list[int]:
    return opened(rig).committed.voids.between(0, 1 << 40)


def failure(answer: Any) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


class NoSnapshots:
    def load_snapshot(self, log: Any) -> None:
        return None


def assert_replays(rig: Rig) -> None:
    live = opened(rig).committed.encode()
    for store in (NoSnapshots(), rig.store):
        assert replay(opened(rig).log, PartitionState, store).committed.encode() == live
