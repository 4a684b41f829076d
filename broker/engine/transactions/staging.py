"""Stages of one partition: batches are added to them, they are dropped, and their batches are published.

Contract: raises and has changed nothing. A batch that was staged before waits for its original. A sealed stage takes
no batch and is not dropped. Must not know transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.batch import Kind, of_kind
from ....storage.errors import InvalidBatch
from ...errors import Fenced, LimitReached, Unavailable
from ..tables import effects as fx
from ..tables.entry import Entry
from ..tables.producers import Place
from ..tables.queues.placing import intake_of
from ..tables.stages import Staged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ....storage.batch import Batch
    from ..logs.overlay import Waiter
    from ..logs.partition import Partition


def stage(
    partition: Partition, batch: Batch, waiter: Waiter, limit: int, sealed: Collection[int], owner: str = ""
) -> None:
    """Propose a checked batch that waits for its transaction. `owner`: of its stage from now on; "" where that stays.

    Raises Poisoned, BatchTooLarge, InvalidBatch, SequenceGap, UnknownProducer, Fenced, Unavailable; LimitReached
    when there are `limit` stages.
    """
    stage_id = batch.producer_id
    partition.check_writable()
    _check(partition, batch, sealed)
    stages = partition.proposed.stages
    if not stages.judge(stage_id, batch.first_sequence, batch.record_count):
        partition.barrier(waiter)
        return
    if stage_id not in stages and len(stages) >= limit:
        raise LimitReached(
            f"{partition!r} has {limit} stages, which is the limit: commit or drop some, let them expire, raise "
            "max_stages, or spread them over more partitions"
        )
    place, staged = Place(batch.first_sequence, 0), Staged(batch.record_count, batch.batch_bytes)
    before = fx.StageOwned(stage_id, owner) if owner else None
    partition.propose_records(batch.buffer, Entry(place, stage_id, staged=staged), waiter, before)


def _check(partition: Partition, batch: Batch, sealed: Collection[int]) -> None:
    stage_id = batch.producer_id
    if not stage_id or batch.producer_epoch:
        raise InvalidBatch(
            f"staged records need an id of their own, not 0, and epoch 0, not {batch.producer_epoch}: "
            "choose a random one for each stage"
        )
    if stage_id in partition.proposed.producers.by_id:
        raise InvalidBatch(f"producer {stage_id:#x} sends records to {partition!r}: stage under an id of its own")
    if stage_id in sealed:
        raise Fenced(f"stage {stage_id:#x} of {partition!r} is being committed: nothing can be added to it")
    if partition.state_damaged:
        raise Unavailable(f"{partition!r} is damaged and may have lost staged records: repair it first")


def drop(partition: Partition, stage_ids: Iterable[int], waiter: Waiter, sealed: Collection[int]) -> None:
    """Propose to forget those stages that are there and no transaction has. Raises Poisoned."""
    partition.check_writable()
    stages = partition.proposed.stages
    dropped = [each for each in dict.fromkeys(stage_ids) if each in stages and each not in sealed]
    if dropped:
        partition.propose_in_order(fx.StagesDropped(dropped), waiter)
    else:
        partition.barrier(waiter)


def publish(partition: Partition, batch: Batch, waiter: Waiter) -> None:
    """Propose the records of a stage's next batch as ordinary ones. Raises Poisoned, BatchTooLarge."""
    partition.check_writable()
    place = Place(batch.first_sequence, batch.record_count)
    records = of_kind(batch.buffer, Kind.RECORDS)
    partition.propose_records(records, Entry(place, batch.producer_id, intake=intake_of(batch)), waiter)
