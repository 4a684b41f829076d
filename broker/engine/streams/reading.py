"""Reading on: the next committed batches of a partition from an offset on, for requests.

Idea: a peer mostly goes on where its last request for the partition ended, so the cursor of that is kept: it saves
finding the place again.

Contract: only committed batches leave. Memory: some cursors; nothing is read ahead.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..logs.partition import Partition
from ..ports import COLD, Cold, NodeConfig, Peer, Port

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ....storage.reader import Chunk, Cursor

BYTES_MAX = 4 << 20
"""Limit of one answer, except for a single longer batch."""

CONTINUATIONS = 256
"""Places remembered where a peer's last read ended."""


def answer_bytes(wanted: int, config: NodeConfig) -> int:
    """How many bytes one answer may have of those wanted."""
    return min(wanted, config.max_frame_bytes, BYTES_MAX)


class Continuation(NamedTuple):
    """The end of a read: the next offset, the term of the batch before it, and a cursor there."""

    offset: int
    term: int
    cursor: Cursor


class Read:
    """A place in a partition: `offset` is the next record wanted. The cursor is found when it is needed."""

    __slots__ = ("cursor", "offset", "partition")

    def __init__(self, partition: Partition, offset: int, cursor: Cursor | None) -> None:
        self.partition = partition
        self.offset = offset
        self.cursor = cursor


class Reads:
    """See the module."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._continuations: OrderedDict[tuple[Peer, Partition], Continuation] = OrderedDict()

    def begin(self, peer: Peer, partition: Partition, offset: int, term: int) -> Read:
        """A place to read from; `term` is that of the record before, -1 when unknown. Raises Diverged, OutOfBounds."""
        known = self._continuations.pop((peer, partition), None)
        if known is not None and known.offset == offset >= partition.first and term in (-1, known.term):
            return Read(partition, offset, known.cursor)
        partition.check_position(offset, term)
        return Read(partition, offset, None)

    def next(self, read: Read, max_bytes: int, token: Hashable) -> Chunk | Literal[Cold.COLD] | None:
        """Batches with the record at the place, about `max_bytes` of them; None at the end. It does not move the place.

        COLD: they are being brought into memory, and the node hears of `token` when they are there.

        Raises OutOfBounds where retention has taken the place since the read began, and what `Port.read` raises.
        """
        partition = read.partition
        while read.offset < partition.end:
            partition.check_offset(read.offset)
            if read.cursor is None:
                read.cursor = partition.cursor(read.offset)
            chunk = self._port.read(read.cursor, max_bytes, partition.seq, token)
            if chunk is None or chunk is COLD or chunk.next_offset > read.offset:
                return chunk
        return None

    def remember(self, peer: Peer, read: Read, chunk: Chunk) -> None:
        """The peer has been sent this chunk: it mostly goes on behind it."""
        assert read.cursor is not None
        key = (peer, read.partition)
        self._continuations[key] = Continuation(chunk.next_offset, chunk.batches[-1].term, read.cursor)
        self._continuations.move_to_end(key)
        if len(self._continuations) > CONTINUATIONS:
            self._continuations.popitem(last=False)

    def disconnect(self, peer: Peer) -> None:
        """Forget the places of a peer."""
        for key in [key for key in self._continuations if key[0] == peer]:
            del self._continuations[key]

    def close(self, partition: Partition) -> None:
        """Forget the places in a partition that is gone."""
        for key in [key for key in self._continuations if key[1] is partition]:
            del self._continuations[key]
