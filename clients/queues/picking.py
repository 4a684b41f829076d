"""Picks single records out of the batches of an answer: leased ones, dead-lettered ones.

Contract: records come in the requested order, which need not be that of the batches. Every column is checked before
anything of it is used. An undecodable record is named with its error, never left out, and hides no other one. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from ...storage.batch import Batch, Kind, Value, batches
from ...storage.errors import Corrupt, Error, InvalidBatch, MissingCodec
from ...storage.record import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

Rows = tuple[Sequence[Value], Iterable[bytes | None], Iterable[Mapping[str, bytes]], range, Iterable[int]]
"""Values, keys, headers, offsets and times of some records that follow each other, ready for `map`."""


_first = attrgetter("first")
_KEPT = int(Kind.KEPT)


class Unreadable(Struct, frozen=True):
    """A run of records that cannot be handed out.

    `error` is InvalidBatch (BadChecksum among them) for what is damaged; MissingCodec or Corrupt for records that may
    be good, but cannot be decoded here or did not come.
    """

    offset: int
    count: int
    error: Error


Times = Callable[[Batch], "np.ndarray | None"]
"""Which times of its records a batch is asked for; None: its append time for all."""


def pick(
    payload: Buffer, runs: Iterable[tuple[int, int]], times: Times = Batch.event_times
) -> Iterator[Rows | Unreadable]:
    """The records of `runs` (first offset, how many). Raises InvalidBatch when `payload` is not whole batches."""
    held: list[_Held] = []
    for batch in batches(payload):
        held.append(_Held(batch, times))
    held.sort(key=_first)
    firsts = list(map(_first, held))
    for first, count in runs:
        offset, end = first, first + count
        while offset < end:
            index = bisect_right(firsts, offset) - 1
            found = held[index].rows(offset, end) if index >= 0 else None
            if found is None:
                error = Corrupt(f"the broker could not read record {offset}: it is damaged, or gone by now")
                found = Unreadable(offset, 1, error)
            yield found
            offset += found.count if isinstance(found, Unreadable) else len(found[0])


class _Held:
    """One batch of the answer, its columns decoded once."""

    def __init__(self, batch: Batch, times: Times) -> None:
        self._batch = batch
        self._times_of = times
        self._error: InvalidBatch | MissingCodec | None = None
        self._bad: dict[int, InvalidBatch] = {}  # by number, records of a batch that is good otherwise
        self._values: list[Value] | None = None
        self._keys: Sequence[bytes | None] | None = None
        self._headers: Sequence[Mapping[str, bytes]] | None = None
        self._times: np.ndarray | None = None
        self._offsets: np.ndarray | None = None
        self.first = batch.base_offset
        try:
            batch.check()
            if batch.kind == _KEPT:
                self._offsets = batch.offsets()
                self.first = int(self._offsets[0])
        except InvalidBatch as error:
            self._error = error

    def rows(self, offset: int, end: int) -> Rows | Unreadable | None:
        """The run of records from `offset` on and below `end`; None if `offset` is not in this batch."""
        at, until = self._places(offset, end)
        if at >= until:
            return None
        if self._values is None and self._error is None:
            self._decode()
        if self._error is not None:
            return Unreadable(offset, until - at, self._error)
        if self._bad:
            if at in self._bad:
                return Unreadable(offset, 1, self._bad[at])
            until = min([until, *(number for number in self._bad if number > at)])
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
        """The bounds in this batch of the run that starts with `offset`."""
        if self._offsets is None:
            at, count = offset - self.first, self._batch.record_count
            if self._batch.kind == _KEPT:  # a damaged one: which records it has cannot be told
                return 0, 1
            return at, min(end - self.first, count)
        at, until = np.searchsorted(self._offsets, (offset, end)).tolist()
        here = self._offsets[at:until]
        follows = here == np.arange(offset, offset + len(here))
        return at, at + (len(here) if follows.all() else int(follows.argmin()))

    def _decode(self) -> None:
        batch = self._batch
        try:
            self._values, self._times = batch.values(), self._times_of(batch)
            if batch.column_count > 1:
                self._keys, self._headers = batch.keys(), self._decoded_headers()
        except (InvalidBatch, MissingCodec) as error:
            self._error = error

    def _decoded_headers(self) -> Sequence[Mapping[str, bytes]] | None:
        try:
            return self._batch.headers()
        except InvalidBatch:
            found = self._batch.headers_of_each()
            self._bad = {number: each for number, each in enumerate(found) if isinstance(each, InvalidBatch)}
            return [NO_HEADERS if isinstance(each, InvalidBatch) else each for each in found]
