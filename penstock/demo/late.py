"""The tasks of the demo: every flight that left late, and how each of them fares.

Idea: which attempts at a flight fail is decided by its fingerprint. So the workers, a killed
one's successor and the check agree without a word, and every run injects the same failures.
Pure: bytes in, numbers out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .expected import Columns, fingerprints
from .flights import COLUMNS, UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

ATTEMPTS = 6
"""Attempts before a flight is dead-lettered: more than the failures injected, a kill and a restart together cost."""

_DEP_DELAY = COLUMNS.index("dep_delay")


def minutes_late(line: bytes) -> int:
    """A flight's delay at departure, 0 for flights that left early or never."""
    field = line.split(b",", _DEP_DELAY + 1)[_DEP_DELAY]
    return 0 if field == UNKNOWN else max(int(field), 0)


def failures(fingerprint: int) -> int:
    """How many attempts at a flight fail: of a thousand flights one fails always, 50 twice, 100 once."""
    remainder = fingerprint % 1000
    if remainder == 0:
        return ATTEMPTS
    return 2 if remainder <= 50 else 1 if remainder <= 150 else 0


class Late(msgspec.Struct, frozen=True):
    """The late flights of the file: minutes late, by fingerprint, and those whose tasks can never succeed."""

    minutes: NDArray[np.int64]
    fingerprints: NDArray[np.uint64]
    doomed: NDArray[np.uint64]
    injected: int  # failures of those that succeed in the end

    def __len__(self) -> int:
        return len(self.fingerprints)


def late(content: bytes, *, most: int | None = None) -> Late:
    """The late flights of the file `content`, or of its first `most` flights."""
    columns = Columns(content if content.endswith(b"\n") else content + b"\n", COLUMNS)
    delays, departed = columns.numbers("dep_delay")
    is_late = (departed & (delays > 0))[:most]
    prints = fingerprints(content, columns)[:most][is_late]
    remainder = prints % np.uint64(1000)
    injected = 2 * int(((remainder > 0) & (remainder <= 50)).sum()) + int(((remainder > 50) & (remainder <= 150)).sum())
    return Late(delays[:most][is_late], prints, np.sort(prints[remainder == 0]), injected)
