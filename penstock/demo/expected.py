"""The expected totals: numpy over the whole file at once.

Idea: an independent way to the same numbers. It shares no line of parsing with the producers and consumers it judges:
the commas of the file are found as one array, a column is where they are, and a number is its digits. Pure: bytes in,
numbers out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .flights import CARRIER, COLUMNS
from .tally import Totals, fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COMMA, _NEWLINE, _MINUS, _ZERO, _NINE = b",\n-09"


class Expected(msgspec.Struct, frozen=True):
    """Totals per carrier, and per carrier the fingerprints of its lines in the order of the file."""

    totals: dict[str, Totals]
    orders: dict[str, NDArray[np.uint64]]

    def __len__(self) -> int:
        return sum(totals.flights for totals in self.totals.values())


class Columns:
    """The fields of a file of comma-separated lines, all of equally many fields and none quoted."""

    def __init__(self, content: bytes, names: tuple[str, ...]) -> None:
        self._bytes = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero((self._bytes == _COMMA) | (self._bytes == _NEWLINE))
        if len(ends) % len(names) or not np.all(self._bytes[ends[len(names) - 1 :: len(names)]] == _NEWLINE):
            raise ValueError(f"not every line has {len(names)} fields")
        starts = np.concatenate(([0], ends[:-1] + 1))
        self._names = names
        self._ends = ends.reshape(-1, len(names))[1:]  # without the line of names
        self._starts = starts.reshape(-1, len(names))[1:]

    def lines(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts and ends of all lines."""
        return self._starts[:, 0], self._ends[:, -1]

    def text(self, name: str) -> NDArray[np.bytes_]:
        """A column as bytes."""
        start, end = self._column(name)
        width = int((end - start).max(initial=1))
        at = start[:, None] + np.arange(width)
        inside = at < end[:, None]
        return np.where(inside, self._bytes[np.where(inside, at, 0)], 0).astype(np.uint8).view(f"S{width}")[:, 0]

    def numbers(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """A column of whole numbers, and which of its fields hold one (the others are NA)."""
        start, end = self._column(name)
        first = start + (self._bytes[start] == _MINUS)
        known = (self._bytes[first] >= _ZERO) & (self._bytes[first] <= _NINE)
        values = np.zeros(len(start), np.int64)
        for place in range(int((end - first).max(initial=0))):
            at = end - 1 - place
            values += np.where(at >= first, self._bytes[at].astype(np.int64) - _ZERO, 0) * 10**place
        return np.where(known, np.where(first > start, -values, values), 0), known

    def _column(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        number = self._names.index(name)
        return self._starts[:, number], self._ends[:, number]


def expected(content: bytes, *, most: int | None = None) -> Expected:
    """Results that consumers of the file `content` (or of its first `most` flights) must report."""
    columns = Columns(content if content.endswith(b"\n") else content + b"\n", COLUMNS)
    names, carrier = np.unique(columns.text(COLUMNS[CARRIER])[:most], return_inverse=True)
    delays, departed = columns.numbers("dep_delay")
    miles, _ = columns.numbers("distance")
    sums = [
        np.bincount(carrier, weights=weights, minlength=len(names)).astype(np.int64).tolist()
        for weights in (None, departed[:most], delays[:most], miles[:most])
    ]
    prints = fingerprints(content, columns)[:most]
    labels = [bytes(name).decode() for name in names]
    return Expected(
        {label: Totals(*row) for label, *row in zip(labels, *sums, strict=True)},
        {label: prints[carrier == number] for number, label in enumerate(labels)},
    )


def fingerprints(content: bytes, columns: Columns) -> NDArray[np.uint64]:
    """Fingerprints of all lines, in the order of the file."""
    view = memoryview(content)
    starts, ends = columns.lines()
    slices = map(view.__getitem__, map(slice, starts.tolist(), ends.tolist()))
    return np.fromiter(map(fingerprint, slices), np.uint64, len(starts))
