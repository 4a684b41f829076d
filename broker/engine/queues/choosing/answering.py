"""Answering: reads the records of a lease once the lease is committed.

Idea: a lease is a few runs of offsets; the port reads the batches that hold them (lease_reading.py). For each group,
the position behind its last lease is kept with the chunk read ahead there, so following a log needs no search.

Contract: on COLD the reading keeps its place. A record that was carried forward is read from its KEPT batch. Memory:
one bounded chunk per remembered position.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from .....storage.batch import Kind
from .....storage.errors import OutOfBounds
from ...ports import COLD, Port
from .lease_reading import LeaseReading, Spot

if TYPE_CHECKING:
    from .....storage.batch import Batch
    from ...logs.partition import Partition

SPOTS = 256
"""Remembered positions behind groups' last leases."""

FIRST_READ_BYTES = 8192
"""Bytes read at once while the size of records is unknown."""

AHEAD_BYTES = 64 << 10
"""Bytes read at once for a group that follows the log, so that the next leases find their records in memory."""

SPOT_BYTES = 256 << 10
"""Limit of remembered bytes read ahead."""


class Answering:
    """Reads leases, and remembers where the last one of each group ended."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._spots: OrderedDict[tuple[Partition, str], Spot] = OrderedDict()

    def read(self, reading: LeaseReading, group: str, token: object) -> bool:
        """Read on. False: pages are on their way, and `token` will be warmed. Raises Corrupt, OutOfBounds."""
        if reading.spot is None:
            reading.spot = self._spots.pop((reading.partition, group), None)
        while reading.rest:
            batch = self._batch(reading, reading.rest[-1][0], token)
            if batch is None:
                return False
            if not reading.take(batch):
                break
        self._remember(reading, group)
        return True

    def forget(self, partition: Partition) -> None:
        """The partition is gone."""
        for key in [key for key in self._spots if key[0] is partition]:
            del self._spots[key]

    def record_bytes(self, partition: Partition, group: str) -> float:
        """The recent size of a group's records; 0 when unknown."""
        spot = self._spots.get((partition, group))
        return 0.0 if spot is None else spot.record_bytes

    def _batch(self, reading: LeaseReading, offset: int, token: object) -> Batch | None:
        kept = reading.partition.committed.kept
        if kept and (seq := kept.seq(offset)):
            return self._kept(reading, seq, token)
        spot = reading.spot
        while spot is None or (batch := spot.holding(offset)) is None:
            if spot is None or not spot.leads_to(offset):
                spot = self._find(reading, offset)
            if not self._read_on(reading, spot, offset, token):
                return None
            if spot.cursor.offset > offset and spot.holding(offset) is None:
                raise OutOfBounds(f"offset {offset} of {reading.partition!r} stands in no batch of records")
        return batch

    def _kept(self, reading: LeaseReading, seq: int, token: object) -> Batch | None:
        """The batch that a record was carried forward to."""
        if reading.kept is None or reading.kept.seq != seq:
            cursor = reading.partition.reader.cursor_after(seq - 1)
            chunk = self._port.read(cursor, FIRST_READ_BYTES, seq, token)
            if chunk is COLD:
                return None
            if chunk is None:
                raise OutOfBounds(
                    f"batch {seq} of {reading.partition!r} is not there to be read, though it is committed"
                )
            reading.kept = chunk.batches[0]
        return reading.kept

    def _find(self, reading: LeaseReading, offset: int) -> Spot:
        before, spot = reading.spot, Spot(reading.partition.cursor(offset))
        spot.record_bytes = 0.0 if before is None else before.record_bytes
        reading.spot = spot
        return spot

    def _read_on(self, reading: LeaseReading, spot: Spot, offset: int, token: object) -> bool:
        partition = reading.partition
        size = self._guess(reading, spot)
        chunk = self._port.read(spot.cursor, size, partition.seq, token)
        if chunk is COLD:
            return False
        if chunk is None:
            raise OutOfBounds(f"offset {offset} of {partition!r} is not there to be read, though it is committed")
        spot.batches = [batch for batch in chunk.batches if batch.kind == Kind.RECORDS]
        spot.at = 0
        count = sum([batch.record_count for batch in spot.batches])
        if count:
            spot.record_bytes = spot.read_bytes / count
        return True

    def _guess(self, reading: LeaseReading, spot: Spot) -> int:
        """How much to read for what is left, and more where the next lease will follow."""
        wanted = sum([count for _, count in reading.rest]) * spot.record_bytes
        least = AHEAD_BYTES if spot.batches else FIRST_READ_BYTES
        return max(least, min(round(wanted), reading.max_bytes - reading.size))

    def _remember(self, reading: LeaseReading, group: str) -> None:
        spot = reading.spot
        if spot is None:
            return
        if spot.read_bytes > SPOT_BYTES:
            spot.batches = spot.batches[spot.at : spot.at + 1]
            spot.at = 0
        self._spots[reading.partition, group] = spot
        if len(self._spots) > SPOTS:
            self._spots.popitem(last=False)
