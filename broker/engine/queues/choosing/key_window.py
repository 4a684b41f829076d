"""The keys of a partition's records in one group's window, read from the log batch by batch, each once.

Idea: a keyed group looks at the window of records beyond its frontier again and again. The hash of each key, 8 bytes,
is kept from the first look until the frontier passes it.

Contract: `key` raises NotYet when the record's pages are not in memory, and the port warms the given token.
Uncommitted records cannot be read. Bytes are used only if their checksums agree; damage is marked on the partition.
Memory: the window, and the chunk it ends in. Must not know settings.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from .....storage.batch import Kind
from .....storage.errors import BadChecksum, Corrupt, InvalidBatch
from ...ports import COLD
from ...tables.queues.keys import OWN, hashes

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .....storage.batch import Batch
    from .....storage.reader import Cursor
    from ...logs.partition import Partition
    from ...ports import Port

CHUNK_BYTES = 256 << 10
STRAYS_MAX = 4096
"""Keys that are kept of single records behind the window."""


class NotYet(Exception):
    """The pages are being read, or the record is not committed yet."""


class KeyWindow:
    """Keys of one partition, for one group."""

    def __init__(self, partition: Partition, port: Port) -> None:
        self._partition = partition
        self._port = port
        self._bases: list[int] = []  # first offsets of what is kept, ascending
        self._blocks: dict[int, array[int]] = {}
        self._strays: dict[int, int] = {}  # of records that were carried forward
        self._cursor: Cursor | None = None

    def key(self, offset: int, token: Hashable) -> int:
        """The hash of a record's key; OWN for one that cannot be read any more. Raises NotYet."""
        found = self._known(offset)
        if found is not None:
            return found
        if offset >= self._partition.end:
            raise NotYet
        try:
            return self._find(offset, token)
        except Corrupt:
            self._partition.damaged = True
            self._cursor = None
            self._strays[offset] = OWN  # the lease finds the damage and dead-letters the record
            return OWN

    def _find(self, offset: int, token: Hashable) -> int:
        """Read as far as a record. Raises NotYet, Corrupt, OutOfBounds."""
        cursor = self._cursor_at(offset)
        if cursor is None:
            return OWN
        while self._read(cursor, token):
            found = self._known(offset)
            if found is not None:
                return found
            if cursor.offset > offset:
                break
        raise Corrupt(f"offset {offset} of {self._partition!r} stands in no batch of records")

    def forget(self, below: int) -> None:
        """The window begins at `below`."""
        while self._bases and (base := self._bases[0]) + len(self._blocks[base]) <= below:
            del self._blocks[base], self._bases[0]
        if len(self._strays) > STRAYS_MAX:
            self._strays.clear()

    def _known(self, offset: int) -> int | None:
        at = bisect_right(self._bases, offset) - 1
        if at >= 0:
            base = self._bases[at]
            block = self._blocks[base]
            if offset - base < len(block):
                return block[offset - base]
        return self._strays.get(offset)

    def _cursor_at(self, offset: int) -> Cursor | None:
        """A cursor whose next records are, or follow, a record's batch; None when retention took it."""
        partition, kept = self._partition, self._partition.committed.kept.seq(offset)
        if kept:
            return partition.reader.cursor_after(kept - 1)
        if offset < partition.first:
            return None
        if self._cursor is None or self._cursor.offset != offset:
            self._cursor = partition.cursor(offset)
        return self._cursor

    def _read(self, cursor: Cursor, token: Hashable) -> bool:
        """Read a chunk: it may have no records, at the end of a segment. False: there is no more."""
        chunk = self._port.read(cursor, CHUNK_BYTES, self._partition.seq, token)
        if chunk is COLD:
            raise NotYet
        if chunk is None:
            return False
        for batch in chunk.batches:
            self._keep(batch)
        return True

    def _keep(self, batch: Batch) -> None:
        if batch.kind not in (Kind.RECORDS, Kind.KEPT):
            return
        try:
            batch.check()
            found = hashes(batch)
        except (InvalidBatch, BadChecksum):
            self._partition.damaged = True
            found = [OWN] * batch.record_count
        if batch.kind == Kind.KEPT:
            self._strays.update(zip(batch.offsets().tolist(), found, strict=True))
        elif batch.base_offset not in self._blocks:
            insort(self._bases, batch.base_offset)
            self._blocks[batch.base_offset] = array("Q", found)
