"""Deleting single records: queue groups skip them, and doors that show records hide them.

Idea: a deleted record is a void one that nothing stands for, so all groups pass it, also later ones. Its bytes stay in
the log until the log begins behind it. Readers of batches see it; a door asks which records of a range are deleted,
and leaves them out.

Contract: counts are of records that were not deleted before, and committed. DELETED_MAX bounds what a partition
remembers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....transport.messages import Counted, DeletedRecords, DeleteRecords, ListDeleted
from ...errors import InvalidRequest, LimitReached
from ..queues.topic_queues import check_serves
from ..tables import effects as fx
from ..turns.replies import Gather, refusing

if TYPE_CHECKING:
    from ..logs.partition import Partition
    from ..logs.topics import Topics
    from ..ports import Handlers, Now, Payload, Peer, Port, Work

DELETED_MAX = 1 << 20
"""Deleted records that a partition remembers, 16 bytes each, until it begins behind them."""

PORTION = 256
"""Records that are deleted in one step."""

LOOKS = 64
"""Records that are told apart by partition in one step."""

RUNS_MAX = 1 << 12
"""Runs of deleted records in one answer."""


class Deleting:
    """Handler of DeleteRecords."""

    def __init__(self, topics: Topics, port: Port) -> None:
        self.handlers: Handlers = {DeleteRecords: self.delete}
        self._topics = topics
        self._port = port

    def delete(self, peer: Peer, message: DeleteRecords, payload: Payload, now: Now) -> Work:
        """Delete records. Raises UnknownTopic, UnknownPartition, LimitReached, Unavailable, Poisoned."""
        topic, count = self._topics.get(message.topic), 0
        named: dict[Partition, set[int]] = {}
        for looks, (number, offset) in enumerate(message.offsets, 1):
            named.setdefault(topic.partition(number), set()).add(offset)
            if looks % LOOKS == 0:
                yield
        for partition, offsets in named.items():
            check_serves(partition)
            _check_room(partition, len(offsets))
        gather = Gather(
            lambda: self._port.reply(peer, Counted(message.request, count)), refusing(self._port, peer, message.request)
        )
        for partition, offsets in named.items():
            wanted = np.fromiter(offsets, np.int64)
            wanted.sort()
            for at in range(0, len(wanted), PORTION):
                fresh = _fresh(partition, wanted[at : at + PORTION])
                count += len(fresh)
                if len(fresh):
                    partition.propose(fx.RecordsDeleted(runs_of(fresh)), gather.one())
                yield
            partition.barrier(gather.one())
        gather.ready()


class DeletedList:
    """Handler of ListDeleted."""

    def __init__(self, topics: Topics, port: Port) -> None:
        self.handlers: Handlers = {ListDeleted: self.list}
        self._topics = topics
        self._port = port

    def list(self, peer: Peer, message: ListDeleted, payload: Payload, now: Now) -> None:
        """The deleted records of a range, as far as one answer goes. Raises UnknownTopic, UnknownPartition."""
        partition = self._topics.partition(message.topic, message.partition)
        if message.end < message.offset:
            raise InvalidRequest(f"records {message.offset} to {message.end} are no range: the end is before its first")
        found = runs_of(partition.committed.voids.deleted(message.offset, message.end))
        next_offset = found[RUNS_MAX][0] if len(found) > RUNS_MAX else message.end
        self._port.reply(peer, DeletedRecords(message.request, found[:RUNS_MAX], next_offset))


def runs_of(offsets: np.ndarray) -> list[tuple[int, int]]:
    """Ascending offsets as (first, how many)."""
    ends = np.flatnonzero(np.diff(offsets) != 1)
    firsts, lasts = np.concatenate(([0], ends + 1)), np.concatenate((ends, [len(offsets) - 1]))
    return list(zip(offsets[firsts].tolist(), (lasts - firsts + 1).tolist(), strict=True)) if len(offsets) else []


def _fresh(partition: Partition, offsets: np.ndarray) -> np.ndarray:
    """Those that are there, in their place or carried forward, and not deleted."""
    kept = np.isin(offsets, partition.committed.kept.offsets())
    there = offsets[((offsets >= partition.proposed.first) | kept) & (offsets < partition.end)]
    deleted = partition.proposed.voids.deleted(int(offsets[0]), int(offsets[-1]) + 1)
    return np.setdiff1d(there, deleted)


def _check_room(partition: Partition, count: int) -> None:
    known = len(partition.proposed.voids.deleted(partition.first, partition.end))
    if known + count > DELETED_MAX:
        raise LimitReached(
            f"{partition!r} has {known} deleted records, and remembers {DELETED_MAX} at most: trim it, or let "
            "retention take older records"
        )
