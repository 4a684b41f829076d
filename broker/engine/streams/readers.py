"""The sessions that read a partition and must hear when its end moves.

Contract: only stores them, by id. Belongs to one office.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..logs.partition import Partition
    from ..ports import Port


class Reader(Protocol):
    """A reader, told when the end of a partition moves."""

    id: int

    def end_moved(self, port: Port, partition: int) -> None:
        """Handle new records in a partition that it reads."""
        ...


NONE: Mapping[int, Reader] = {}


class Readers:
    """The readers of all partitions."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, dict[int, Reader]] = {}

    def of(self, partition: Partition) -> Mapping[int, Reader]:
        """The readers of a partition."""
        return self._by_partition.get(partition, NONE)

    def add(self, partition: Partition, reader: Reader) -> None:
        """Add a reader."""
        self._by_partition.setdefault(partition, {})[reader.id] = reader

    def remove(self, partition: Partition, id_: int) -> None:
        """Remove a reader."""
        readers = self._by_partition.get(partition, {})
        readers.pop(id_, None)
        if not readers:
            self._by_partition.pop(partition, None)
