"""Which partition a record goes to. Normative: every client in every language agrees on keys.

    partition = xxh3_64(key, seed 0) modulo partition count

Records without a key go to one partition for a whole batch, then to the next (round robin that sticks), so
that batches stay large. Contract: the same key is always in the same partition while their count stands.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64_intdigest


def partition_of(key: bytes, count: int) -> int:
    """The partition of `key` among `count`."""
    return xxh3_64_intdigest(key) % count


def partitions_of(keys: Sequence[bytes], count: int) -> np.ndarray:
    """The partition of each key, int64, shape (len(keys),)."""
    if count == 1:
        return np.zeros(len(keys), np.int64)
    # The digests fill 64 bits: the modulo has to be taken before they become signed.
    hashes = np.fromiter(map(xxh3_64_intdigest, keys), np.uint64, len(keys))
    return (hashes % np.uint64(count)).astype(np.int64)


def split_by_partition(keys: Sequence[bytes], count: int) -> list[tuple[int, np.ndarray]]:
    """(partition, positions in `keys` in their order) for each partition that gets any."""
    found = partitions_of(keys, count)
    order = np.argsort(found, kind="stable")
    starts = np.flatnonzero(np.diff(found[order], prepend=-1))
    groups = np.split(order, starts[1:]) if len(starts) else []
    return [(int(found[group[0]]), group) for group in groups]


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
