"""Sealed stages: decided, or being decided. Nothing is added to them, and none is dropped.

Contract: only stores the seals. Belongs to one office, which seals every decided stage in the logs when it opens.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .partition import Partition

NONE: Set[int] = frozenset()


class Seals:
    """The sealed stages of all partitions."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, set[int]] = {}

    def of(self, partition: Partition) -> Set[int]:
        """The stages of a partition that are sealed."""
        return self._by_partition.get(partition, NONE)

    def add(self, partition: Partition, stage_id: int) -> None:
        """Seal a stage."""
        self._by_partition.setdefault(partition, set()).add(stage_id)

    def remove(self, partition: Partition, stage_id: int) -> None:
        """Unseal a stage."""
        sealed = self._by_partition.get(partition, set())
        sealed.discard(stage_id)
        if not sealed:
            self._by_partition.pop(partition, None)
