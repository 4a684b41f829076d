"""Record keys as queues see them: a 64-bit hash.

Idea: xxh3_64 of the key is enough to compare, count and log keys. Two keys with the same hash only wait for each other
unnecessarily. Records without a key are independent of all others.

Contract: 0 is no key's hash; in state it means "not known". OWN means that the record has no key. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from .....storage.batch import Batch

UNKNOWN = 0
"""In state: the group did not look at keys when it met the record."""

OWN = 1
"""The record has no key."""

_LEAST = 2
_SPREAD = 0x9E3779B97F4A7C15  # 2**64 by the golden ratio: following numbers end up far from each other
_MASK = (1 << 64) - 1


def hash_of(key: bytes | None) -> int:
    """The hash of a key."""
    return OWN if key is None else max(xxh3_64_intdigest(key), _LEAST)


def hashes(batch: Batch) -> list[int]:
    """The hashes of the keys of a batch's records, in order. Raises InvalidBatch."""
    keys = batch.keys()
    return [OWN] * batch.record_count if keys is None else [hash_of(key) for key in keys]


def turn_of(offset: int, key: int) -> int:
    """A record's place on the ring of turns: its key's, or one of its own without a key."""
    return key if key != OWN else (offset * _SPREAD) & _MASK
