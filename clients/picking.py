"""Picking single records out of the batches of an answer: the leased ones, the dead ones.

Contract: records come in the order that was asked for, which need not be that of the batches. Every column is
checked before anything of it is used, and a record that is not there is an error, never a gap. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from ..storage.batch import Batch, Kind, batches
from ..storage.errors import InvalidBatch
from ..storage.record import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

Rows = tuple[Sequence[bytes], Iterable[bytes | None], Iterable[Mapping[str, bytes]], Iterable[int], Iterable[int]]
"""Values, keys, headers, offsets and times of some records that follow each other, ready for `map`."""


def pick(payload: Buffer, runs: Iterable[tuple[int, int]]) -> Iterator[Rows]:
    """The records of `runs` (first offset, how many). Raises InvalidBatch, BadChecksum."""
    held = sorted(map(_Held, batches(payload)), key=_first)
    firsts = [each.first for each in held]
    for first, count in runs:
        offset, end = first, first + count
        while offset < end:
            index = bisect_right(firsts, offset) - 1
            found = held[index].rows(offset, end) if index >= 0 else None
            if found is None:
                raise InvalidBatch(f"record {offset} is not among the records that came with its answer")
            yield found
            offset += len(found[0])


class _Held:
    """One batch of the answer, its columns decoded once."""

    def __init__(self, batch: Batch) -> None:
        batch.check()
        self._batch = batch
        self._values: list[bytes] | None = None
        self._offsets = batch.offsets() if batch.kind == Kind.KEPT else None
        self.first = batch.base_offset if self._offsets is None else int(self._offsets[0])

    def rows(self, offset: int, end: int) -> Rows | None:
        """The records from `offset` on, as many as follow each other below `end`; None when it is not here."""
        at, until = self._places(offset, end)
        if at >= until:
            return None
        if self._values is None:
            self._decode()
        values, keys, headers, times = self._values, self._keys, self._headers, self._times
        assert values is not None, "decoded above"
        return (
            values if until - at == len(values) else values[at:until],
            repeat(None) if keys is None else keys[at:until],
            repeat(NO_HEADERS) if headers is None else headers[at:until],
            range(offset, offset + until - at),
            repeat(self._batch.append_time_us) if times is None else times[at:until].tolist(),
        )

    def _places(self, offset: int, end: int) -> tuple[int, int]:
        """Where in this batch the run begins and ends that starts with `offset`."""
        if self._offsets is None:
            at = offset - self.first
            return at, min(end - self.first, self._batch.record_count)
        at, until = np.searchsorted(self._offsets, (offset, end)).tolist()
        here = self._offsets[at:until]
        follows = here == np.arange(offset, offset + len(here))
        return at, at + (len(here) if follows.all() else int(follows.argmin()))

    def _decode(self) -> None:
        batch = self._batch
        self._values, self._keys, self._headers = batch.values(), batch.keys(), batch.headers()
        self._times = batch.event_times()


def _first(held: _Held) -> int:
    return held.first
