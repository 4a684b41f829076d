"""A consumer's tally of the flights: totals per carrier, and a trace of the order of arrival.

Idea: the totals are the report. The trace (partition, offset and a fingerprint per record, in order of arrival) lets
the check find a record lost, doubled, changed or out of order, whichever member got it. Pure: records in, numbers out.
Must not know where records come from.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec
from xxhash import xxh3_64_intdigest

from ..storage.record import Record
from .flights import COLUMNS, UNKNOWN

_DEP_DELAY = COLUMNS.index("dep_delay")
_DISTANCE = COLUMNS.index("distance")
_NEEDED = max(_DEP_DELAY, _DISTANCE) + 1

fingerprint = xxh3_64_intdigest
"""Equal for equal lines; all lines of the file differ."""


class Totals(msgspec.Struct):
    """Sums over the flights of one carrier."""

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0
    miles: int = 0

    def add(self, other: Totals) -> None:
        self.flights += other.flights
        self.departed += other.departed
        self.delay_minutes += other.delay_minutes
        self.miles += other.miles


class Trace(msgspec.Struct):
    """All records handed out, in order of arrival."""

    partitions: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    offsets: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    fingerprints: array[int] = msgspec.field(default_factory=lambda: array("Q"))


class Tally:
    """Counts records as they come."""

    def __init__(self) -> None:
        self.totals: dict[str, Totals] = {}
        self.trace = Trace()

    def __len__(self) -> int:
        return len(self.trace.offsets)

    def add(self, records: Iterable[Record]) -> None:
        """Count `records`, in this order."""
        partitions, offsets, prints = self.trace.partitions, self.trace.offsets, self.trace.fingerprints
        by_key: dict[bytes | None, list[bytes]] = {}
        for record in records:
            value = record.value
            partitions.append(record.partition)
            offsets.append(record.offset)
            prints.append(fingerprint(value))
            by_key.setdefault(record.key, []).append(value)
        for key, lines in by_key.items():
            name = "" if key is None else key.decode()
            self.totals.setdefault(name, Totals()).add(_sum(lines))


def _sum(lines: list[bytes]) -> Totals:
    totals = Totals(flights=len(lines))
    for line in lines:
        fields = line.split(b",", _NEEDED)
        totals.miles += int(fields[_DISTANCE])
        delay = fields[_DEP_DELAY]
        if delay != UNKNOWN:  # a cancelled flight never departed
            totals.departed += 1
            totals.delay_minutes += int(delay)
    return totals


def merged(parts: Iterable[dict[str, Totals]]) -> dict[str, Totals]:
    """The totals of several members as one."""
    whole: dict[str, Totals] = {}
    for part in parts:
        for carrier, totals in part.items():
            whole.setdefault(carrier, Totals()).add(totals)
    return whole
