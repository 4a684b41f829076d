"""Staged batches: made, sent to a rig, and published there without a decision."""

from __future__ import annotations

from typing import Any

from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.stages import Stage
from penstock.broker.engine.transactions import staging
from penstock.broker.engine.transactions.stage_reader import Portion, StageReader
from penstock.storage.batch import Kind, encode, of_kind
from penstock.storage.errors import Error
from penstock.transport import messages as m
from support.engine import Rig

STAGE = 7


def staged(values: list[bytes], stage: int = STAGE, first: int = 0, **how: Any) -> bytes:
    """One batch of a stage."""
    return bytes(of_kind(encode(values, producer_id=stage, first_sequence=first, **how), Kind.STAGED))


def stage(
    rig: Rig, topic: bytes, values: list[bytes], stage: int = STAGE, first: int = 0, partition: int = 0, **how: Any
) -> Any:
    """Produce a staged batch and return the answer."""
    return rig.ask(m.Produce, topic, partition, payload=staged(values, stage, first, **how))


def partition_of(rig: Rig, topic: bytes, partition: int = 0) -> Partition:
    return rig.node._registry.topics.get(topic).partition(partition)


def stage_of(rig: Rig, topic: bytes, stage: int = STAGE, partition: int = 0) -> Stage | None:
    """A stage as committed."""
    return partition_of(rig, topic, partition).committed.stages.get(stage)


class Told:
    """A waiter that writes down what it is told."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.errors: list[Error] = []

    def committed(self, place: Place) -> None:
        self.places.append(place)

    def failed(self, error: Error) -> None:
        self.errors.append(error)


def portion(
    rig: Rig, topic: bytes, stage: int = STAGE, max_bytes: int = 1 << 20, partition: int = 0, most: int = 1000
) -> Portion:
    """The next batches of a stage, read back."""
    found: list[Portion] = []
    wanted = Portion(partition_of(rig, topic, partition), stage, max_bytes, most, found.append)
    StageReader(rig.port).read(wanted)
    assert found == [wanted]
    return wanted


def publish(rig: Rig, topic: bytes, stage: int = STAGE, max_bytes: int = 1 << 20, partition: int = 0) -> list[Place]:
    """Publish the next batches of a stage. Returns where they stand."""
    told = Told()
    for batch in portion(rig, topic, stage, max_bytes, partition).batches:
        staging.publish(partition_of(rig, topic, partition), batch, told)
    rig.turn()
    assert not told.errors, told.errors
    return told.places
