"""A node: everything one broker knows, driven by messages, commits and time.

Idea: `receive` turns a message into replies or into proposals; `flush` writes all proposals with one append
per partition; `advance` looks at what is committed by now and answers for it: replies, waiting fetches,
deliveries, wake-ups. `tick` is what happens because time passed. The rules live in the handlers of each area
(producing, fetching, joining, grouping, administration); this class only passes things on.

Contract of the driver, which calls from one thread:

    node = Node(store, port, randomness=os.urandom, config=NodeConfig(...), now=now)
    loop:
        for peer, message, payload in everything that can be read: node.receive(peer, message, payload, now)
        dirty = node.flush(now)          # logs appended to: sync them, or wake the keeper
        ... a keeper's answer: log.settle(generation, seq) ...
        node.advance(now)                # after flush, and after every settle
        wait at most node.tick(now)      # seconds to the next deadline; 0.0: flush and advance again at once

No exception leaves `receive`, `flush`, `advance` or `tick` because of what a client sent or of a full or
failing disk: those become Failure answers. Must not know sockets, files, clocks or threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage.errors import Error, StorageError
from ...transport.messages import (
    AskEnds,
    FindOffsets,
    ListDead,
    ListGroups,
    ListQueues,
    ListSchedules,
    ListTopics,
    Measure,
    Stats,
)
from ..errors import InvalidRequest
from .housekeeping import Housekeeping
from .logs.agenda import LogAgenda
from .logs.clock import LogTime
from .logs.log_registry import LogRegistry
from .logs.log_upkeep import LogUpkeep
from .ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Randomness, Store
from .queues.service import Queues
from .queues.upkeep.scheduling import Scheduling
from .streams.agenda import Agenda
from .streams.beginning import Beginning
from .streams.delivery import Stream
from .streams.ends import EndsRequests
from .streams.fetching import Fetching
from .streams.grouping import Grouping
from .streams.joining import Joining
from .streams.measuring import Measuring
from .streams.producing import Producing
from .streams.sessions import EXPIRY_CHECK_S, Sessions
from .topics.administration import Administration
from .topics.greeting import Greeting
from .topics.topic_maker import TopicMaker
from .transactions.service import Transactions
from .turns.marks import take
from .turns.portions import Portions
from .turns.replies import failure

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable

    from ...storage.log import LogWriter
    from ...transport.messages import Request
    from .logs.partition import Partition
    from .logs.topics import Topic

READS = frozenset({
    AskEnds, FindOffsets, ListDead, ListGroups, ListQueues, ListSchedules, ListTopics, Measure, Stats,
})  # fmt: skip
"""Requests that may be much to do and change nothing."""


class Node:
    """One node over a store and a port. Opening it opens and replays every log of the store."""

    def __init__(
        self, store: Store, port: Port, *, randomness: Randomness, config: NodeConfig | None = None, now: Now
    ) -> None:
        """Open all logs, replay each from its newest snapshot, finish deletions that were cut short."""
        config = config or NodeConfig()
        self._port = port
        self._log_agenda, self._stream_agenda = LogAgenda(), Agenda()
        self._time = LogTime(now, config.clock_jump_s)
        self._registry = LogRegistry(store, self._log_agenda)
        for log in self._registry.logs():
            self._time.reach(log.last_time_us)
        self._incarnation = int.from_bytes(randomness(8), "little") or 1
        first_session = int.from_bytes(randomness(6), "little") << 14
        self._portions, self._wakes = Portions(), Portions()
        self._sessions = Sessions(port, self._stream_agenda, first_session, config.max_sessions, self._wakes)
        topics = self._registry.topics
        self._producing = Producing(topics, port, config, self._time, randomness)
        self._fetching = Fetching(topics, port, config, self._wakes)
        self._ends = EndsRequests(topics, port, config, self._wakes)
        self._queues = Queues(self._registry, port, config, self._time, randomness, self._wakes)
        self._scheduling = Scheduling(self._registry, port, config, self._time)
        maker = TopicMaker(self._registry, config, randomness)
        alarms = self._queues.alarms
        self._transactions = Transactions(self._registry, port, config, self._time, alarms, maker)
        self._upkeep = LogUpkeep(self._registry, config)
        self._housekeeping = Housekeeping(
            self._registry, self._upkeep, self._queues, self._transactions, config, self._time, now
        )
        self._handlers: Handlers = {
            **self._queues.handlers,
            **self._producing.handlers,
            **self._fetching.handlers,
            **self._ends.handlers,
            **Measuring(topics, port).handlers,
            **Joining(topics, self._sessions, self._stream_agenda, port, config).handlers,
            **Grouping(topics, self._sessions, port).handlers,
            **Beginning(topics, port).handlers,
            **Administration(self._registry, port, config, maker, self, self._wakes).handlers,
            **self._scheduling.handlers,
            **self._transactions.handlers,
            **Greeting(port, config, self._incarnation, self._stats_in_steps).handlers,
        }
        self._counts = {"requests": 0, "failures": 0}

    @property
    def incarnation(self) -> int:
        """Random, new at every start: what Welcome says."""
        return self._incarnation

    def receive(self, peer: Peer, message: Request, payload: Payload, now: Now) -> None:
        """Take one request. Its answer comes through the port: at once, or from a later `advance` or `tick`."""
        self._counts["requests"] += 1
        try:
            handler = self._handlers.get(type(message))
            if handler is None:
                raise InvalidRequest(f"{type(message).__name__} is not a request")
            work = handler(peer, message, payload, now)
            if work is not None:
                changes = type(message) not in READS
                self._portions.begin(peer, work, lambda error: self._fail(peer, message, error), changes=changes)
        except Error as error:
            self._fail(peer, message, error)
        except OSError as error:
            self._fail(peer, message, StorageError(f"the broker cannot read or write its files: {error}"))

    def _fail(self, peer: Peer, message: Request, error: Error) -> None:
        self._counts["failures"] += 1
        self._port.reply(peer, failure(getattr(message, "request", 0), error))

    def flush(self, now: Now) -> list[LogWriter]:
        """Append everything proposed since the last flush, once per partition.

        Returns the logs appended to. For those with `commit="durable"` the driver now sees to a sync; those
        with "written" are committed already. Call `advance` next in any case.
        """
        agenda = self._log_agenda
        if not agenda.dirty:
            return []
        time_us = self._time.read(now)
        self._queues.before_flush(list(agenda.dirty), time_us)
        appended: list[LogWriter] = []
        for overlay in take(agenda.dirty):
            if overlay.flush(time_us):
                agenda.unsettled[overlay] = None
                appended.append(overlay.log)
        return appended

    def advance(self, now: Now) -> None:
        """Answer for what `log.committed` has reached, fail what a poisoned log will never commit, and deliver."""
        agenda, port = self._stream_agenda, self._port
        if self._log_agenda.unsettled:
            self._settle()
        if self._wakes.open:
            self._wakes.work()
        if agenda.memberships:
            for membership in take(agenda.memberships):
                membership.rebalance(now.monotonic_s)
        if agenda.mail:
            for session in take(agenda.mail):
                session.send_news(port)
        if agenda.ready:
            self._sessions.deliver()

    def _settle(self) -> None:
        """Apply what is committed, answer for it, and notify waiters of moved ends."""
        agenda = self._log_agenda
        for overlay in list(agenda.unsettled):
            history = overlay.history
            if overlay.advance():
                agenda.advanced[history] = agenda.grown[history] = None
                self._registry.applied(history)
                self._queues.advanced(history)
            if not history.in_flight:
                agenda.unsettled.pop(overlay, None)  # the catalogue's may have closed it: its topic is deleted
        for partition in self._registry.take_moved():
            self._fetching.end_moved(partition)
            self._ends.end_moved(partition)
            self._queues.end_moved(partition)
            self._sessions.end_moved(partition)

    def tick(self, now: Now) -> float:
        """Do what is due by now. Returns the seconds until the next call is needed (an earlier one is harmless).

        Due work may propose effects: flush and advance afterwards, as after `receive`. 0.0 says so.
        """
        logs, streams = self._log_agenda, self._stream_agenda
        if logs.grown:
            for history in take(logs.grown):
                self._housekeeping.advanced(history)
        if self._sessions.expire(now):
            self._hand_over(now)
        timed = (self._fetching.tick(now), self._ends.tick(now), self._scheduling.tick(now))
        dues = [due for due in timed if due is not None]
        wait = min(self._housekeeping.tick(now) - now.monotonic_s, self._queues.tick(now))
        if self._portions.work() or self._wakes.open or logs.dirty or streams.mail or streams.memberships:
            return 0.0
        if dues:
            wait = min(wait, min(dues) - now.monotonic_s)
        if streams.ready:
            return 0.0
        if self._sessions.by_id:
            wait = min(wait, EXPIRY_CHECK_S)
        return max(0.0, wait)

    def warmed(self, token: Hashable) -> None:
        """Pages that `Port.read` called COLD under this token are in memory: the next `advance` reads again."""
        if isinstance(token, Stream):
            token.warmed()
            session = self._sessions.by_id.get(token.outlet.session)
            if session is not None:
                session.wake()
        elif not (self._queues.warmed(token) or self._transactions.warmed(token)):
            self._fetching.warmed(token)

    def eased(self, way: Hashable) -> None:
        """What took no delivery, a peer or the endpoint of a session, may take one at the next `advance`."""
        self._sessions.eased(way)

    def disconnect(self, peer: Peer) -> None:
        """The peer's connection is gone: its waiting requests are dropped; its sessions live on until they expire."""
        self._portions.drop(peer)
        self._wakes.drop(peer)
        self._fetching.disconnect(peer)
        self._ends.disconnect(peer)
        self._queues.disconnect(peer)
        self._sessions.disconnect(peer)

    def stats(self) -> dict[str, Any]:
        """Counters and sizes by dotted name."""
        return {**self._numbers(), **self._registry.stats()}

    def _stats_in_steps(self) -> Generator[int | None, None, dict[str, Any]]:
        census = yield from self._registry.census()
        return {**self._numbers(), **census}

    def _numbers(self) -> dict[str, Any]:
        producing = self._producing
        return {
            **self._counts,
            "produce.batches": producing.batches,
            "produce.records": producing.records,
            "produce.bytes": producing.bytes,
            "fetch.waiting": self._fetching.waiting,
            "ends.waiting": self._ends.waiting,
            "lease.waiting": len(self._queues.lines.parked),
            "tasks.waiting": self._queues.tasks.waiting,
            **self._queues.mover.stats(),
            **self._transactions.stats(),
            "schedules.fired": self._scheduling.fired,
            "snapshots.failed": self._upkeep.failed_snapshots,
            "sessions.open": len(self._sessions.by_id),
            "sessions.expired": self._sessions.expired,
            "clock.ignored_us": max(self._time.away_us, 0),
            "clock.ahead_us": max(-self._time.away_us, 0),
            "clock.jumps": self._time.jumps,
        }

    @property
    def unavailable(self) -> dict[str, str]:
        """Why partitions could not be opened, by topic and number."""
        return self._registry.unavailable()

    @property
    def logs(self) -> list[LogWriter]:
        """Every open log, the metadata log first."""
        return list(self._registry.logs())

    def close(self, now: Now) -> None:
        """Flush, sync, answer, snapshot every log that moved, and close all cleanly. The node is then unusable."""
        self.flush(now)
        self._registry.settle()
        self.advance(now)
        self._transactions.end()
        self._upkeep.snapshot_all()
        for session in list(self._sessions.by_id.values()):
            self._sessions.end(session)
        self._registry.close_all()

    # -- what administration tells ------------------------------------------------------------------

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """A tombstone is committed: end what still uses the topic."""
        for session in [s for s in self._sessions.by_id.values() if s.topic is topic]:
            self._sessions.evict(session, error)
        for partition in topic.readable:
            self._fetching.topic_deleted(partition, error)
            self._scheduling.forget(partition)
        self._ends.topic_deleted(topic)
        self._queues.topic_deleted(topic, error)
        self._transactions.topic_deleted(topic)

    def topic_grown(self, topic: Topic, partition: Partition) -> None:
        """A partition was added: assign it in every group."""
        self._ends.topic_grown(topic)
        self._queues.admin.topic_grown(topic, partition)
        for membership in topic.memberships.values():
            self._stream_agenda.memberships[membership] = None
        for session in self._sessions.by_id.values():
            if session.topic is topic and session.membership is None:
                session.give(partition, 1, partition.first)

    def _hand_over(self, now: Now) -> None:
        """Take what was asked back and is overdue; claim again what could not be claimed."""
        for membership in {session.membership: None for session in self._sessions.by_id.values()}:
            if membership is not None:
                membership.take_overdue(now.monotonic_s)
                if membership.stuck:
                    self._stream_agenda.memberships[membership] = None
