"""Placing: the priorities and delays in a records batch, from its proposal to its commit.

Idea: when a batch is proposed or replayed, its records with a priority or a not-before time are copied out of its
columns (`intake_of`); their offsets and append time are added at the commit (`placed`).

Contract: 13 bytes per such record, nothing for others. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from .....storage.batch import Batch


class ShelvedRecords(Struct, frozen=True, gc=False, eq=False):
    """Records of one batch: number within it, priority, and not-before time (0: none)."""

    rows: np.ndarray
    levels: np.ndarray
    times: np.ndarray


class Placed(Struct, frozen=True, gc=False, eq=False):
    """Records of one batch in the log that the frontier skips. A time of 0: no delay."""

    offsets: np.ndarray
    levels: np.ndarray
    times: np.ndarray


def intake_of(batch: Batch) -> ShelvedRecords | None:
    """The shelved records of a batch until it is committed; None for a plain one. Raises InvalidBatch."""
    if batch.column_count == 1:
        return None
    levels, times = batch.priorities(), batch.not_before()
    if levels is None and times is None:
        return None
    count = batch.record_count
    levels = np.zeros(count, np.uint8) if levels is None else levels
    times = np.zeros(count, np.int64) if times is None else times
    rows = np.flatnonzero((levels > 0) | (times > 0))
    return ShelvedRecords(rows.astype(np.uint32), levels[rows], times[rows]) if len(rows) else None


def placed(intake: ShelvedRecords, offset: int, time_us: int) -> Placed:
    """With the first offset of the batch and its append time: records whose time had come by then have no delay."""
    times = np.where(intake.times > time_us, intake.times, 0)
    special = (intake.levels > 0) | (times > 0)
    return Placed(intake.rows[special].astype(np.int64) + offset, intake.levels[special], times[special])
