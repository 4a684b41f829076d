"""Ids of many entries at once.

Idea: a consumer acknowledges what it was given, so the ids of a command mostly go on from each other: a run has one
time, and offsets without a gap. Many ids are parsed together, by columns, where each is of the usual form.

Contract: ids are read, and refused, as by `entry_id` without an offset. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .entries import EntryId, entry_id

FEW = 24
"""So many ids are parsed one by one: columns cost as much."""

DIGITS_MAX = 18
"""Of a number that is parsed with others: each of so many fits into 64 bits."""

_DASH, _COMMA = b"-,"
_NINE = ord("9")


class IdRun(NamedTuple):
    """Ids of one time, in the order of offsets."""

    time_ms: int
    first: int
    many: int


def id_runs(texts: Sequence[bytes]) -> list[IdRun]:
    """Ids as a client writes them, in their order. Raises CommandRefused."""
    parts = _parts(texts) if len(texts) > FEW else None
    if parts is None:
        return _joined(entry_id(text, 0) for text in texts)
    times, offsets = parts[::2], parts[1::2]
    begins = 1 + np.flatnonzero((np.diff(times) != 0) | (np.diff(offsets) != 1))
    firsts = np.concatenate(([0], begins))
    counts = np.diff(firsts, append=len(offsets))
    return list(map(IdRun, times[firsts].tolist(), offsets[firsts].tolist(), counts.tolist()))


def _parts(texts: Sequence[bytes]) -> np.ndarray | None:
    """The times and offsets of ids, in turn; None unless each has both, and neither is long."""
    text = b",".join(texts)
    found = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(found < ord("0"))
    if len(ends) != 2 * len(texts) - 1 or found.max() > _NINE:
        return None
    if (found[ends[::2]] != _DASH).any() or (found[ends[1::2]] != _COMMA).any():
        return None
    lengths = np.diff(ends, prepend=-1, append=len(text)) - 1
    if lengths.min() < 1 or lengths.max() > DIGITS_MAX:
        return None
    return np.fromstring(text.replace(b"-", b","), np.int64, sep=",")


def _joined(ids: Iterable[EntryId]) -> list[IdRun]:
    """Ids as runs."""
    runs: list[IdRun] = []
    for time_ms, offset in ids:
        if runs and runs[-1].time_ms == time_ms and runs[-1].first + runs[-1].many == offset:
            runs[-1] = runs[-1]._replace(many=runs[-1].many + 1)
        else:
            runs.append(IdRun(time_ms, offset, 1))
    return runs
