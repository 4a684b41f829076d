"""Chooses a record's partition. Normative: clients in every language agree on keys.

    partition = xxh3_64(key, seed 0) modulo partition count

Records without a key go to one partition for a whole batch, then to the next (sticky round robin), so that batches
stay large. Contract: a key stays in its partition as long as the number of partitions does. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64_digest, xxh3_64_intdigest

SHORT = 1 << 16
"""The most partitions whose numbers are sorted by radix, which takes a quarter of the time."""


def partition_of(key: bytes, count: int) -> int:
    """The partition of `key` among `count`."""
    return xxh3_64_intdigest(key) % count


def partitions_of(keys: Sequence[bytes], count: int) -> np.ndarray:
    """The partition of each key, int64, shape (len(keys),)."""
    if count == 1:
        return np.zeros(len(keys), np.int64)
    # As bytes, the highest first: numbers of 64 bits take half as long again. Unsigned until the modulo is taken.
    hashes = np.frombuffer(b"".join(map(xxh3_64_digest, keys)), ">u8")
    return (hashes % np.uint64(count)).astype(np.int64)


def split_by_partition(keys: Sequence[bytes], count: int) -> list[tuple[int, np.ndarray]]:
    """(partition, positions in `keys` in their order) for each partition that gets any."""
    order, groups = grouped(partitions_of(keys, count), count)
    return [(partition, order[start:end]) for partition, start, end in groups]


def grouped(partitions: np.ndarray, count: int) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Positions by partition, in their order within each; and (partition, start, end) of each that has any."""
    counts = np.bincount(partitions, minlength=count)
    ends = np.cumsum(counts)
    short = partitions.astype(np.uint16) if count <= SHORT else partitions
    found = np.flatnonzero(counts)
    groups = zip(found.tolist(), (ends - counts)[found].tolist(), ends[found].tolist(), strict=True)
    return np.argsort(short, kind="stable"), list(groups)


class Sticky:
    """The partition for records without a key: the same until `next_batch`."""

    def __init__(self, count: int, first: int = 0) -> None:
        self._count = count
        self.partition = first % count

    def next_batch(self) -> int:
        """The batch is full: go on to the next partition."""
        self.partition = (self.partition + 1) % self._count
        return self.partition

    def grow(self, count: int) -> None:
        """The topic has more partitions now."""
        self._count = count
        self.partition %= count
