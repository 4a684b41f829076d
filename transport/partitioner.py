"""Chooses a record's partition. Normative: clients in every language agree on keys.

    partition = hash(key) modulo partition count

The hash is the topic's: xxh3_64 with seed 0; or murmur2 as Kafka's clients compute it, for topics that they write to,
too. Records without a key go to one partition for a whole batch, then to the next (sticky round robin), so that
batches stay large. Contract: a key stays in its partition as long as the number of partitions does. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from .murmur2 import murmur2, murmur2_of_each

SHORT = 1 << 16
"""The most partitions whose numbers are sorted by radix, which takes a quarter of the time."""


class Partitioner(NamedTuple):
    """A hash of keys: of one, an int >= 0; and of each of many, unsigned, shape (len(keys),)."""

    hash: Callable[[bytes], int]
    hashes: Callable[[Sequence[bytes]], np.ndarray]

    def of(self, key: bytes, count: int) -> int:
        """The partition of `key` among `count`."""
        return self.hash(key) % count

    def of_each(self, keys: Sequence[bytes], count: int) -> np.ndarray:
        """The partition of each key, int64, shape (len(keys),). Raises TypeError for keys that are no bytes."""
        if count == 1:
            return np.zeros(len(keys), np.int64)
        return (self.hashes(keys) % np.uint64(count)).astype(np.int64)

    def split(self, keys: Sequence[bytes], count: int) -> list[tuple[int, np.ndarray]]:
        """(partition, positions in `keys` in their order) for each partition that gets any."""
        order, groups = grouped(self.of_each(keys, count), count)
        return [(partition, order[start:end]) for partition, start, end in groups]


def _xxh3_of_each(keys: Sequence[bytes]) -> np.ndarray:
    # As bytes, the highest first: numbers of 64 bits take half as long again. Unsigned until the modulo is taken.
    return np.frombuffer(b"".join(map(xxh3_64_digest, keys)), ">u8")


PARTITIONERS = {
    "xxh3": Partitioner(xxh3_64_intdigest, _xxh3_of_each),
    "murmur2": Partitioner(murmur2, murmur2_of_each),
}
"""By the name that topics have in their settings."""


def partition_of(name: bytes, count: int) -> int:
    """The partition of a name among `count`, whatever the topic does with keys: a transaction's, a schedule's."""
    return PARTITIONERS["xxh3"].of(name, count)


def grouped(partitions: np.ndarray, count: int) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Positions by partition, in their order within each; and (partition, start, end) of each that has any."""
    counts = np.bincount(partitions, minlength=count)
    ends = np.cumsum(counts)
    short = partitions.astype(np.uint16) if count <= SHORT else partitions
    found = np.flatnonzero(counts)
    groups = zip(found.tolist(), (ends - counts)[found].tolist(), ends[found].tolist(), strict=True)
    return np.argsort(short, kind="stable"), list(groups)
