"""Proposing a batch that was checked, unless its partition has it already.

Idea: a batch of a producer is the next one, a duplicate, or refused, by its sequence. A duplicate waits for its
original. A dedup key that is known changes what queues do with its record; the record is proposed all the same.

Contract: raises and has changed nothing. Must not know peers or messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error, InvalidBatch
from ...errors import LimitReached, Unavailable
from ..tables import effects as fx
from ..tables.dedup import Keys, judge
from ..tables.entry import Entry
from ..tables.producers import Place
from ..tables.queues.placing import intake_of

if TYPE_CHECKING:
    from ....storage.batch import Batch
    from ..logs.overlay import Waiter
    from ..logs.partition import Partition


def produce(
    partition: Partition,
    batch: Batch,
    waiter: Waiter,
    keys: Keys | None = None,
    owner: str = "",
    beside: fx.AnyEffect | None = None,
) -> None:
    """Propose a batch, or wait for its original. `owner`: of its producer from now on; "" where that stays.

    `beside`: an effect on its records, beside them.

    Raises Poisoned, BatchTooLarge, InvalidBatch, SequenceGap, UnknownProducer, Fenced; with `keys`: LimitReached,
    Unavailable.
    """
    partition.check_writable()
    producer_id, epoch, first = batch.producer_id, batch.producer_epoch, batch.first_sequence
    overlay = partition.overlay
    latest = overlay.latest
    if producer_id in latest.stages.by_id:
        raise InvalidBatch(
            f"producer {producer_id:#x} is a stage of {partition!r}: send records under an id of their own, "
            "or staged ones until the stage is published"
        )
    if producer_id:
        original = latest.producers.judge(producer_id, epoch, first, batch.record_count)
        if original is not None:
            _wait_for(partition, original, first, waiter)
            return
    effects = () if keys is None else (_judge_keys(partition, keys),)
    if beside is not None:
        effects = (*effects, beside)
    entry = Entry(Place(first, batch.record_count), producer_id, epoch, effects, intake=intake_of(batch))
    before = fx.ProducerOwned(producer_id, epoch, owner) if owner and producer_id else None
    overlay.propose_records(batch.buffer, entry, waiter, before)


def stands(partition: Partition, batch: Batch) -> bool:
    """Whether a batch of a producer repeats one that is known."""
    try:
        found = partition.proposed.producers.judge(
            batch.producer_id, batch.producer_epoch, batch.first_sequence, batch.record_count
        )
    except Error:
        return False
    return found is not None


def open_producer(
    partition: Partition, name: str, new_id: int, limit: int, waiter: Waiter, owner: str = ""
) -> tuple[int, int]:
    """Claim a named producer for its owner. Returns its id and epoch; its next sequence is known once it is committed.

    Raises Poisoned; LimitReached when `limit` names are taken.
    """
    partition.check_writable()
    table = partition.proposed.producers
    known = table.by_name.get(name)
    if known is None and len(table.by_name) >= limit:
        raise LimitReached(f"{partition!r} remembers {limit} named producers already: use one of their names")
    producer_id, epoch = (known.producer_id, known.epoch + 1) if known else (new_id, 1)
    partition.propose_in_order(fx.ProducerOpened(name, producer_id, epoch, owner), waiter)
    return producer_id, epoch


def _judge_keys(partition: Partition, keys: Keys) -> fx.KeysSeen:
    if partition.state_damaged:
        raise Unavailable(
            f"{partition!r} is damaged and may have lost dedup keys: repair it, or send without a dedup key"
        )
    settings, proposed = partition.settings, partition.proposed
    table, window_us = proposed.keys, round(settings.dedup_window_s * 1e6)

    def begun(offset: int) -> bool:
        return proposed.queues.begun(offset, proposed.shelves)

    effect = judge(table, keys.digests, partition.predicted_end, keys.time_us, window_us, settings.dedup, begun)
    new = sum(digest not in table.by_digest for digest in effect.digests)
    if len(table.by_digest) + new > keys.limit and table.live(keys.time_us) + new > keys.limit:
        raise LimitReached(
            f"{partition!r} remembers {keys.limit} dedup keys, which is the limit: shorten the topic's "
            f"dedup_window_s={settings.dedup_window_s}, raise max_dedup_keys, or spread them over more partitions"
        )
    return effect


def _wait_for(partition: Partition, original: Place, first_sequence: int, waiter: Waiter) -> None:
    inner = first_sequence - original.first_sequence
    resend = Resend(waiter, inner) if inner else waiter
    if 0 < original.seq <= partition.seq:
        resend.committed(original)
    else:
        partition.attach(original, resend)


class Resend:
    """Waits for a batch on behalf of a resend that starts inside it."""

    __slots__ = ("_inner", "_waiter")

    def __init__(self, waiter: Waiter, inner: int) -> None:
        self._waiter = waiter
        self._inner = inner

    def committed(self, place: Place) -> None:
        moved = Place(
            place.first_sequence, place.count, place.offset + self._inner, place.seq, place.term, place.time_us
        )
        self._waiter.committed(moved)

    def failed(self, error: Error) -> None:
        self._waiter.failed(error)
