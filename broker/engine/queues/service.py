"""The queue service of a node: assembles the handlers of queues and forwards the node's calls to them.

Contract: as the node's: `before_flush` may propose more, `end_moved` follows a commit, `tick` returns when it must be
called again. The rules live in the handlers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..turns.alarms import Alarms
from .choosing.answering import Answering
from .choosing.key_scheduler import KeyScheduler, KeySchedulers
from .choosing.picking import Pick, Picker
from .group_rates import GroupRates
from .lines import Demand, Lines
from .requests.claims import ClaimRequests
from .requests.dead_letters import DeadLetterRequests
from .requests.leasing import LeaseRequests
from .requests.pending import PendingRequests
from .requests.queue_admin import QueueAdmin
from .requests.settling import SettleRequests
from .requests.tasks import TaskQuestion, TaskRequests
from .requests.workers import WorkerRequests
from .upkeep.barriers import Barriers
from .upkeep.carrying import Carrier
from .upkeep.moving import Mover
from .upkeep.telling import Teller
from .upkeep.upkeep import Upkeep
from .wakeups import Watching

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ....storage.errors import Error
    from ..guard import Guard
    from ..logs.clock import LogTime
    from ..logs.grace import Grace
    from ..logs.log_registry import LogRegistry
    from ..logs.overlay import Overlay
    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..ports import Handlers, NodeConfig, Now, Peer, Port, Randomness
    from ..turns.portions import Portions
    from .topic_queues import StreamGroups


class Queues:
    """Everything about queue groups in one node."""

    def __init__(
        self,
        registry: LogRegistry,
        port: Port,
        config: NodeConfig,
        time: LogTime,
        randomness: Randomness,
        wakes: Portions,
        streams: StreamGroups,
        guard: Guard,
        grace: Grace,
    ) -> None:
        """Sets the alarms of what the logs say."""
        topics = registry.topics
        self.alarms: Alarms[int] = Alarms()
        self._deadlines: Alarms[float] = Alarms()
        self.lines = Lines(topics, self._deadlines, time)
        watching = Watching(registry, self.alarms, self._deadlines, time, grace, self.lines)
        schedulers = KeySchedulers(port)
        group_rates = GroupRates(registry, self.alarms, time.last_us)
        settling = SettleRequests(topics, port, time, randomness, self.lines, watching)
        self.leasing = LeaseRequests(
            topics,
            port,
            config,
            time,
            Answering(port),
            schedulers,
            group_rates,
            self.lines,
            watching,
            settling,
            streams,
        )
        self.admin = QueueAdmin(topics, port, time, self.leasing, watching, streams, wakes, guard)
        self.picker = Picker(port)
        self.carrier = Carrier(registry, self.picker)
        self.mover = Mover(registry, self.picker, self.alarms, time)
        self.barriers = Barriers(registry, port, config, time, self.alarms, guard)
        self.teller = Teller(registry, self.barriers, self.alarms, time)
        self.upkeep = Upkeep(self.leasing, self.lines, grace, config.group_expiry_s)
        dead = DeadLetterRequests(topics, port, time, watching)
        self.tasks = TaskRequests(
            topics, port, config, time, schedulers, group_rates, self.lines, watching, wakes, self._deadlines
        )
        self.handlers: Handlers = {
            **self.leasing.handlers, **settling.handlers, **self.admin.handlers, **dead.handlers,
            **self.tasks.handlers, **PendingRequests(topics, port, time).handlers,
            **ClaimRequests(topics, port, config, time, self.picker, watching).handlers,
            **self.barriers.handlers,
            **WorkerRequests(topics, port, time, settling.chance, self.lines, watching).handlers,
        }  # fmt: skip
        self._registry = registry
        self._time = time
        self._watching = watching
        for partition in registry.partitions.values():
            watching.watch_all(partition)

    def before_flush(self, dirty: Iterable[Overlay[Any]], time_us: int) -> None:
        """Lease the records about to be appended to waiting requests, in the same write."""
        for overlay in dirty:
            partition = self._registry.partitions.get(overlay.history)
            if partition is not None:
                self.leasing.offer(partition, time_us)

    def end_moved(self, partition: Partition) -> None:
        """Offer new records to waiting workers."""
        self.leasing.offer(partition, self._time.last_us)
        if partition.committed.shelves:
            self._watching.watch_all(partition)

    def tick(self, now: Now) -> float:
        """Do what is due. Returns in how many seconds that is needed again."""
        now_us, due_us = self._time.read(now), self.alarms.first
        if due_us is not None and due_us <= now_us:
            self.alarms.ring(now_us)
        if self.leasing.due:
            self.leasing.go_on()
        due_s = self._deadlines.first
        if due_s is not None and due_s <= now.monotonic_s:
            due_s = self._deadlines.ring(now.monotonic_s)
        if self.leasing.due:
            return 0.0  # a grace is over
        due_us = self.alarms.first  # any of these may have set one
        wait = math.inf if due_s is None else due_s - now.monotonic_s
        return wait if due_us is None else min(wait, max(0.0, (due_us - now_us) / 1e6))

    def advanced(self, partition: Partition) -> None:
        """Process newly committed entries of a partition."""
        if self.tasks.awaiting.parked.standing:
            self.tasks.advanced(partition)
        committed = partition.history.committed
        if committed.outbox.entries:
            self.mover.look(partition)
        if committed.ties.tellings:
            self.teller.look(partition)
        if committed.barriers.ready:
            self.barriers.fire(partition)

    def warmed(self, token: Hashable) -> bool:
        """Pages are in memory; whether a read of queues waited for them."""
        if isinstance(token, Demand):
            self.leasing.warmed(token)
        elif isinstance(token, KeyScheduler):
            self.leasing.offer(token.partition, self._time.last_us)
        elif isinstance(token, Pick):
            self.picker.warmed(token)
        elif isinstance(token, TaskQuestion):
            self.tasks.warmed(token)
        else:
            return False
        return True

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        self.leasing.disconnect(peer)
        self.tasks.disconnect(peer)

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """Fail the requests that wait for a deleted topic."""
        self.leasing.topic_deleted(topic, error)
        self.teller.topic_deleted(topic)
        for partition in topic.readable:
            self.tasks.topic_deleted(partition, error)
            self.upkeep.forget(partition)
