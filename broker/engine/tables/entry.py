"""An entry: the content of one batch of a log, apart from its records.

Idea: a state is the sum of a log's entries. `entry_of` reads an entry from a batch in the log; the proposer of a batch
makes an equal one.

Contract: an entry holds no records and no bytes of the batch. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ....storage.batch import Batch, Kind
from . import effects as fx
from .producers import Place
from .queues.placing import ShelvedRecords, intake_of
from .stages import Staged


class Entry(Struct, gc=False, eq=False):
    """One batch, by what it says. Must not be in a reference cycle (gc=False)."""

    place: Place
    producer_id: int = 0
    epoch: int = 0
    effects: Sequence[fx.AnyEffect] = ()
    kept: np.ndarray | None = None  # offsets of records that it carries forward
    intake: ShelvedRecords | None = None  # what its records say about priorities and delays
    staged: Staged | None = None  # its records wait for a transaction, and take no offsets

    @property
    def has_records(self) -> bool:
        """Whether it has more than effects."""
        return bool(self.place.count) or self.kept is not None or self.staged is not None


def entry_of(batch: Batch) -> Entry:
    """The entry that a batch in the log stands for.

    Raises UnknownEffect for a kind this version does not know, BadChecksum or InvalidBatch for damaged effects.
    """
    if batch.kind not in Kind._value2member_map_:
        raise fx.UnknownEffect(
            f"batch {batch.seq} has kind {batch.kind}, unknown to this version of penstock; upgrade it"
        )
    count = batch.record_count if batch.kind == Kind.RECORDS else 0  # others have theirs already, or none yet
    place = Place(batch.first_sequence, count, batch.base_offset, batch.seq, batch.term, batch.append_time_us)
    if batch.kind == Kind.KEPT:
        batch.check()
        return Entry(place, kept=batch.offsets())
    if batch.kind == Kind.STAGED:
        return Entry(place, batch.producer_id, staged=Staged(batch.record_count, batch.batch_bytes))
    effects: Sequence[fx.AnyEffect] = ()
    if batch.kind == Kind.STATE or batch.column_count > 1:
        column = batch.effects()
        if column is not None:
            batch.check_effects()  # readers verify headers; damage to records costs only those records
            effects = fx.decode(column)
    intake = intake_of(batch) if batch.kind == Kind.RECORDS else None
    if intake is not None:
        batch.check()
    return Entry(place, batch.producer_id, batch.producer_epoch, effects, intake=intake)
