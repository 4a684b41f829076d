"""The expected delays per carrier and hour: numpy over the whole file at once.

Idea: an independent way to the numbers that Spark computes while the flights stream in. Pure: bytes in, numbers out.
"""

from __future__ import annotations

import msgspec
import numpy as np

from .expected import Columns
from .flights import CARRIER, COLUMNS

Hour = tuple[str, str]
"""A carrier, and the hour at which its flights were to leave, as the file has it: ("UA", "2013-01-01T10:00:00Z")."""


class Delays(msgspec.Struct, frozen=True):
    """The flights of one carrier that were to leave in one hour."""

    flights: int
    departed: int
    delay_minutes: int


def delays(content: bytes, *, most: int | None = None) -> dict[Hour, Delays]:
    """Delays per hour and carrier in the file `content`, or in its first `most` flights."""
    columns = Columns(content if content.endswith(b"\n") else content + b"\n", COLUMNS)
    carriers, hours = columns.text(COLUMNS[CARRIER])[:most], columns.text("time_hour")[:most]
    pairs, pair = np.unique(np.char.add(np.char.ljust(carriers, 2), hours), return_inverse=True)
    minutes, departed = columns.numbers("dep_delay")
    sums = [
        np.bincount(pair, weights=weights, minlength=len(pairs)).astype(np.int64).tolist()
        for weights in (None, departed[:most], minutes[:most])
    ]
    names = [(text[:2].rstrip(), text[2:]) for text in np.char.decode(pairs).tolist()]
    return {name: Delays(*row) for name, *row in zip(names, *sums, strict=True)}
