"""Ids of many entries at once.

Idea: a consumer acknowledges what it was given, so the ids of a command mostly go on from each other: a run has one
time, and offsets without a gap. Many ids are parsed together, by columns, where each is of the usual form.

Contract: ids are read, and refused, as by `entry_id` without an offset. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .entries import EntryId, entry_id

FEW = 8
"""So many ids are parsed one by one: columns cost as much."""

DIGITS_MAX = 18
"""Of a number that is parsed with others: each of so many fits into 64 bits."""


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
    goes_on = (offsets[1:] - offsets[:-1] == 1) & (times[1:] == times[:-1])
    begins = [0, *(np.flatnonzero(~goes_on) + 1).tolist()]
    counts = [end - begin for begin, end in pairwise([*begins, len(texts)])]
    return list(map(IdRun, times[begins].tolist(), offsets[begins].tolist(), counts))


def _parts(texts: Sequence[bytes]) -> np.ndarray | None:
    """The times and offsets of ids, in turn; None unless each has both, and neither is long."""
    text = b",%b," % b",".join(texts)
    found = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(found < ord("0"))
    if found[ends].tobytes() != b",%b" % (b"-," * len(texts)) or found.max() > ord("9"):
        return None
    steps = ends[1:] - ends[:-1]
    if steps.min() < 2 or steps.max() > DIGITS_MAX + 1:
        return None
    return np.fromstring(text[1:-1].replace(b"-", b","), np.int64, sep=",")


def _joined(ids: Iterable[EntryId]) -> list[IdRun]:
    """Ids as runs."""
    runs: list[IdRun] = []
    for time_ms, offset in ids:
        if runs and runs[-1].time_ms == time_ms and runs[-1].first + runs[-1].many == offset:
            runs[-1] = runs[-1]._replace(many=runs[-1].many + 1)
        else:
            runs.append(IdRun(time_ms, offset, 1))
    return runs
