"""Housekeeping: decisions of the leader that follow from time and log size, not from a request.

Idea: passes over all partitions apply retention (the policy decides, the decision is logged, and segments go only once
it is committed) and expire producers and groups. A pass runs in steps of a few partitions with pauses between, so that
thousands of topics never hold up one record. Snapshots and unlinking are every replica's: logs/log_upkeep.py.

Contract: decisions are effects, about what is committed and as it is proposed; time is log time. What clients renew has
the grace of the office (logs/grace.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage import retention
from .logs.clock import LogTime
from .logs.grace import Grace
from .logs.partition import Partition
from .ports import NodeConfig, Now
from .tables import effects as fx
from .tables.queues.unfinished import finished_long_ago
from .tables.settings import TopicSettings
from .turns.marks import take

if TYPE_CHECKING:
    from .logs.history import History
    from .logs.log_registry import LogRegistry
    from .logs.log_upkeep import LogUpkeep
    from .logs.topics import Topic
    from .queues.service import Queues
    from .queues.topic_queues import StreamGroups
    from .tables.groups import GroupState
    from .transactions.service import Transactions


FOREVER = 1 << 62

BYTES_BETWEEN = 8 << 20
"""A log with a limit in bytes or records that grew by so much, and by some segments, does not wait for a pass."""

STEP = 64
"""Partitions looked at in one turn: a tenth of a millisecond where there is nothing to do."""


class Housekeeping:
    """Retention and expiry of one node."""

    def __init__(
        self,
        registry: LogRegistry,
        upkeep: LogUpkeep,
        queues: Queues,
        transactions: Transactions,
        streams: StreamGroups,
        config: NodeConfig,
        time: LogTime,
        grace: Grace,
        now: Now,
    ) -> None:
        self._registry = registry
        self._upkeep = upkeep
        self._queues = queues
        self._transactions = transactions
        self._streams = streams
        self._config = config
        self._time = time
        self._grace = grace
        self.due_s = now.monotonic_s + config.housekeeping_s
        """No step is due before."""
        self._pause_s = 0.0
        self._pass: Iterator[tuple[Topic, Partition]] | None = None
        self._resting: dict[Partition, Rest] = {}  # found by the pass before
        self._found: dict[Partition, Rest] = {}  # found by this one so far
        self.grown: dict[Partition, None] = {}
        """Logs that grow faster than passes come, to be looked at in the next turn."""

    def hold_to_limit(self, history: History[Any]) -> None:
        """Look at a log that grows fast: its limit is a promise about the disk, however far passes are apart."""
        partition = self._registry.partitions.get(history)
        if partition is None:
            return
        settings = partition.settings
        if settings.retention_bytes is None and settings.retention_records is None:
            return
        if self._upkeep.has_grown(history, settings):
            self._upkeep.snapshot(history)
            self.grown[partition] = None

    def tick(self, now: Now) -> None:
        """Look at what has grown, and do a step of a pass when one is due."""
        for partition in take(self.grown):
            if partition.log.poisoned is None and self._registry.holds(partition):
                with self._upkeep.looking():
                    self._retain(partition, self._time.read(now))
        if now.monotonic_s >= self.due_s:
            if self._pass is None:
                self._begin()
            self.due_s = now.monotonic_s + (self._pause_s if self._step(now) else self._config.housekeeping_s)

    def _begin(self) -> None:
        """A pass over everything, spread over half of the time until the next one."""
        self._upkeep.save_all()
        self._pass = self._partitions()
        self._pause_s = self._config.housekeeping_s / 2 / (1 + len(self._registry.partitions) // STEP)

    def _partitions(self) -> Iterator[tuple[Topic, Partition]]:
        for topic in list(self._registry.topics.by_id.values()):
            for partition in list(topic.readable):
                yield topic, partition

    def _step(self, now: Now) -> bool:
        """The next few partitions. Returns whether the pass goes on; partitions closed since it began are left out."""
        assert self._pass is not None
        time_us, count = self._time.read(now), 0
        for topic, partition in islice(self._pass, STEP):
            count += 1
            if partition.log.poisoned is None and self._registry.holds(partition):
                self._expire(topic, partition, time_us)
                with self._upkeep.looking():
                    rest = self._retain(partition, time_us)
                    if rest is not None:
                        self._found[partition] = rest
        if count == STEP:
            return True
        self._pass = None
        self._resting, self._found = self._found, {}
        return False

    def _expire(self, topic: Topic, partition: Partition, time_us: int) -> None:
        config, grace, needed = self._config, self._grace, set(self._queues.mover.producers.values())
        producers, groups = partition.committed.producers, partition.committed.groups
        silent_us = grace.silent_us(config.producer_expiry_s)
        surplus = [each for each in producers.surplus(config.max_producers, silent_us) if each not in needed]
        expired = [each for each in surplus if partition.latest.producers.expects(each) == producers.expects(each)]
        if expired:
            partition.propose_in_order(fx.ProducersExpired(expired))
        oldest = grace.silent_us(config.group_expiry_s)
        for state in list(groups.by_name.values()):
            if state.last_us < oldest and self._is_left(topic, partition, state, oldest):
                partition.delete_group(state.group)
        self._queues.upkeep.look(topic, partition, time_us)
        self._queues.barriers.look(partition, time_us)
        self._transactions.look(partition)

    def _is_left(self, topic: Topic, partition: Partition, state: GroupState, oldest_us: int) -> bool:
        """Whether a group has no members, was silent on all partitions, and nothing is proposed for it on this one."""
        ahead = partition.latest.groups.get(state.group)  # where times are not known for certain
        if state.group in self._streams.of(topic) or (ahead.cursor, ahead.epoch) != (state.cursor, state.epoch):
            return False
        return all(each.group(state.group).last_us < oldest_us for each in topic.readable)

    def _retain(self, partition: Partition, time_us: int) -> Rest | None:
        """Decide where the partition may begin and remove what is decided. Returns until when that need not be done."""
        settings = partition.settings
        finished = finished_long_ago(partition.committed, time_us)
        limits = (settings.retention_s, settings.retention_bytes, settings.retention_records, finished)
        if limits == (None, None, None, None) and partition.first == 0:
            return None
        before = self._resting.get(partition)
        if before is not None and before.holds(partition, time_us):
            return before
        age_us = None if settings.retention_s is None else round(settings.retention_s * 1e6)
        rules = retention.Rules(
            age_us=age_us, bytes=settings.retention_bytes, records=settings.retention_records,
            keep_unread=settings.retain_unread, finished=None if finished is None else finished.below,
        )  # fmt: skip
        extents = partition.log.segments()
        decision = retention.decide(
            extents, rules, first_offset=partition.first, now_us=time_us, cursors=_cursors(partition)
        )
        wanted = allowed = decision.first_offset
        if wanted > partition.first:
            allowed = self._queues.carrier.allowed(partition, extents, wanted, time_us)
        if allowed > partition.latest.first:
            partition.set_first(allowed)
            self._remove(partition)  # what is committed so far: a log that grows all the time moves at each look
            return None
        if self._remove(partition) or allowed < wanted:
            return None
        if finished is not None and finished.is_all and not partition.state_damaged:
            self._end_segment(partition, extents[-1])
        due_us = FOREVER if age_us is None or len(extents) < 2 else extents[0].last_time_us + age_us
        return Rest(partition.seq, settings, due_us if finished is None else min(due_us, finished.next_us))

    def _end_segment(self, partition: Partition, active: retention.SegmentExtent) -> None:
        """End the last segment if everything in it may go: only whole segments are removed."""
        is_read = all(cursor >= active.end_offset for cursor in _cursors(partition))
        if active.end_offset > active.base_offset and is_read and partition.idle:
            partition.log.segment_ends = True  # and the next append begins another
            partition.propose_nothing()

    def _remove(self, partition: Partition) -> bool:
        """Give the store what is below the committed first offset and covered. Returns whether there is any left."""
        log = partition.log
        if not self._upkeep.below(partition):
            return log.durable < partition.seq  # batches that are not durable may still be lost
        if self._upkeep.unlink(partition):
            return True
        carrier = self._queues.carrier
        staged, carried = partition.committed.stages.first_seq - 1, carrier.bound(partition)
        needed = self._upkeep.needed(partition) - 1
        if staged < partition.seq and not log.expired(staged):
            return True  # it is published or dropped some day: nothing has to be done for that here
        elif carried < partition.seq and not log.expired(carried):
            carrier.carry_again(partition, log.segments()[0].last_seq)
        elif needed < partition.seq and not log.expired(needed):
            return True  # what holds it is over, and that is not durable yet
        elif partition.seq > partition.history.snapshot_seq:
            self._upkeep.snapshot(partition.history)
        elif partition.idle:
            # Removal needs two snapshots that cover the segment; on an idle log the second one needs a new seq.
            partition.propose_nothing()
        return True


class Rest(NamedTuple):
    """Retention found nothing to do. That holds until a write, or until some record is old enough."""

    seq: int
    settings: TopicSettings
    due_us: int

    def holds(self, partition: Partition, time_us: int) -> bool:
        """Whether looking again would find the same."""
        return self.seq == partition.seq and self.settings is partition.settings and time_us < self.due_us


def _cursors(partition: Partition) -> Iterable[int]:
    """The next unread offset of every group."""
    for state in partition.committed.groups.by_name.values():
        yield state.resume(0, partition.end)
