"""Trimming on request: a partition begins at an exact record, whatever is open before it.

Idea: a rule (how many records to keep, an offset, or a time) names the first record that stays. The decision is logged
as one effect, which moves the first offset and takes what is before it from every queue group and outbox; the files
follow by retention's own ways, segment by segment.

Contract: a trim never moves a beginning back, and never passes the committed end: an offset behind it is refused. The
answer says where each partition begins and what its groups lost, as decided. Stages of transactions have no offsets
yet, so they are not trimmed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from ....storage.errors import OutOfBounds
from ....transport.messages import Trim, TrimmedPartition, TrimmedTopic, TrimRule
from ...errors import InvalidRequest
from ..logs.partition import FIND_STEPS, check_time
from ..tables.queues.unfinished import open_below
from ..turns.replies import Gather

if TYPE_CHECKING:
    from ..logs.partition import Partition
    from ..logs.topics import Topics
    from ..ports import Handlers, Now, Payload, Peer, Port, Work

RULES = frozenset(TrimRule)


class Trimming:
    """Handler of Trim."""

    def __init__(self, topics: Topics, port: Port) -> None:
        self.handlers: Handlers = {Trim: self.trim}
        self._topics = topics
        self._port = port

    def trim(self, peer: Peer, message: Trim, payload: Payload, now: Now) -> Work:
        """Trim one partition, or each. Raises InvalidRequest, OutOfBounds, UnknownTopic, UnknownPartition, Poisoned,
        Corrupt.
        """
        topic = self._topics.get(message.topic)
        _check(message)
        chosen = [topic.partition(message.partition)] if message.partition >= 0 else list(topic.readable)
        for partition in chosen:
            partition.check_writable()
        wanted: list[tuple[Partition, int]] = []
        for partition in chosen:
            wanted.append((partition, _first_wanted(partition, message)))
            yield FIND_STEPS
            self._topics.get(message.topic)
        found: list[TrimmedPartition] = []
        gather = Gather.reply(self._port, peer, message.request, TrimmedTopic(message.request, found))
        for partition, offset in wanted:
            found.append(_trim(partition, offset, gather))
            yield
        gather.ready()


def _check(message: Trim) -> None:
    """Raise InvalidRequest unless a request means something."""
    if message.rule not in RULES:
        known = ", ".join(f"{rule.value} {rule.name.lower()}" for rule in TrimRule)
        raise InvalidRequest(f"rule {message.rule} is not known: {known} are")
    if message.partition < -1:
        raise InvalidRequest(f"partition {message.partition} is neither one of a topic nor -1 for each")
    if message.rule == TrimRule.TIME:
        check_time("time", message.value)
    elif message.value < 0:
        raise InvalidRequest(f"a trim to {message.value} is not possible: it is a number of records, or an offset")


def _first_wanted(partition: Partition, message: Trim) -> int:
    """The first record that stays. Raises Corrupt, OutOfBounds."""
    match message.rule:
        case TrimRule.RECORDS:
            return _keeping(partition, message.value)
        case TrimRule.OFFSET:
            return _within(partition, message.value)
        case _:
            return partition.find(message.value)


def _within(partition: Partition, offset: int) -> int:
    """An offset up to the end: one behind it is a mistake, which must not take all records."""
    if offset > partition.end:
        raise OutOfBounds(
            f"{partition!r} cannot be trimmed before offset {offset}: 0 to its end {partition.end} can be"
        )
    return offset


def _keeping(partition: Partition, records: int) -> int:
    """The first of the last so many records that are not deleted."""
    first, end = partition.first, partition.end
    deleted = partition.proposed.voids.deleted(first, end)

    def gone(offset: int) -> int:
        """Records before an offset that may go, from where enough stay behind it."""
        return offset - (end - len(deleted)) - int(np.searchsorted(deleted, offset))

    if gone(first) >= -records:
        return 0
    return first + bisect_right(range(first, end + 1), -records, key=gone) - 1


def _trim(partition: Partition, offset: int, gather: Gather) -> TrimmedPartition:
    """Propose it. Returns what it does. Raises Poisoned."""
    head = partition.proposed
    before, first = head.first, max(head.first, offset)
    streams = [(each.group, first - each.resume(before, head.end)) for each in head.groups.dump()]
    queues = [(name, open_below(head, queue, offset)) for name, queue in head.queues.by_name.items()]
    lost = sorted((group, count) for group, count in streams + queues if count > 0)
    if first == before and not lost:
        partition.barrier(gather.one())
    else:
        partition.trim(offset, gather.one())
    return TrimmedPartition(partition.number, before, first, lost)
