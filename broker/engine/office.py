"""The leader's office: decides what goes into the logs, and holds the state that only a leader has.

Idea: an office opens over open logs and builds its state from them: proposals, waiters, sessions, claims, lease
alarms, transactions in progress. Losing the lead drops it: queued proposals are not appended, waiters hear nothing
(the outcome of their proposals is unknown here), and what the port holds for it is released. The next office has
higher terms and an incarnation of its own.

Contract: an office opens with nothing in flight: the writes of an earlier one are committed, or cut. A log that
another office wrote and that is poisoned must be reopened first. To its clients a dropped office is a lost connection.
Must not know sockets, files, clocks or threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage.errors import Error
from ..errors import UnknownTopic
from .housekeeping import Housekeeping
from .lending.lending import Lending
from .logs.clock import LogTime
from .logs.grace import Grace
from .logs.overlays import Overlays
from .office_port import OfficePort
from .ports import Handlers, Now
from .producing.producing import Producing
from .queues.service import Queues
from .queues.upkeep.scheduling import Scheduling
from .streams.agenda import Agenda
from .streams.beginning import Beginning
from .streams.delivery import Stream
from .streams.grouping import Grouping, begin_in_new
from .streams.session_requests import SessionRequests
from .streams.sessions import EXPIRY_CHECK_S, Sessions
from .tables import effects as fx
from .topics.administration import Administration
from .topics.deleting import Deleting
from .topics.topic_maker import TopicMaker
from .topics.trimming import Trimming
from .transactions.service import Transactions
from .turns.marks import take
from .turns.portions import Portions
from .turns.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...storage.log import LogWriter
    from .guard import Guard
    from .logs.log_registry import LogRegistry
    from .logs.log_upkeep import LogUpkeep
    from .logs.overlay import Overlay
    from .logs.partition import Partition
    from .logs.topics import Topic
    from .ports import LentLogs, NodeConfig, Peer, Port, Randomness, Work
    from .streams.coordinator import Membership

PAUSE_US = 1_000_000
"""An office that is called so much later than it asked for stood still: a process or a machine that was stopped."""

GROWN = 4
"""Steps that it takes to tell all users of a topic of a new partition."""


class Office:
    """One office, from its opening until it is dropped."""

    def __init__(
        self,
        registry: LogRegistry,
        upkeep: LogUpkeep,
        port: Port,
        config: NodeConfig,
        randomness: Randomness,
        portions: Portions,
        now: Now,
        guard: Guard,
        lenders: LentLogs | None,
    ) -> None:
        """Go on from what the logs hold. `portions` is where long work of connections is done."""
        self.incarnation = int.from_bytes(randomness(8), "little") or 1
        self.time = LogTime(now, config.clock_jump_s)
        ends_us = [log.last_time_us for log in registry.logs()]
        for time_us in ends_us:
            self.time.reach(time_us)
        self.grace = grace = Grace(self.time, config.grace_s, max(ends_us, default=0))
        self._looked_us, self._looked_s = self.time.last_us, now.monotonic_s  # log time, and `now`, at the last tick
        self._due_us = self._looked_us  # when the next is needed
        self.wakes = Portions()
        self.agenda = Agenda()
        self._port = own = OfficePort(port)  # for those that read; the others only answer
        self._registry = registry
        self.overlays = Overlays(registry)
        self._memberships: Roster[Topic, str, Membership] = Roster()
        seals: Roster[Partition, int, None] = Roster()
        self._guard = guard
        self.sessions = Sessions(
            own, self.agenda, randomness, config.max_sessions, self.wakes, self._memberships, guard
        )
        topics, time = registry.topics, self.time
        self.producing = Producing(topics, port, config, time, randomness, seals, guard)
        self.queues = Queues(registry, own, config, time, randomness, self.wakes, self._memberships, guard, grace)
        self.scheduling = Scheduling(registry, port, config, time, self.queues.alarms)
        self.lending = Lending(topics, self.overlays, port, time, randomness, guard, lenders, self._apply)
        maker = TopicMaker(registry, self.overlays, config, randomness)
        self.transactions = Transactions(registry, own, config, time, grace, self.queues.alarms, maker, seals, guard)
        self.housekeeping = Housekeeping(
            registry, upkeep, self.queues, self.transactions, self._memberships, config, time, grace, now
        )
        self.handlers: Handlers = {
            **self.queues.handlers,
            **self.producing.handlers,
            **SessionRequests(topics, self.sessions, self.agenda, port, config).handlers,
            **Grouping(topics, self.sessions, port, guard).handlers,
            **Beginning(topics, self._memberships, port).handlers,
            **Trimming(topics, port).handlers,
            **Deleting(topics, port).handlers,
            **Administration(registry, self.overlays, port, config, maker, portions).handlers,
            **self.scheduling.handlers,
            **self.transactions.handlers,
            **self.lending.handlers,
        }
        for topic_id in registry.erased:
            self.topic_erased(topic_id)

    def drop(self) -> None:
        """Handle the loss of the lead: release the port's endpoints and slots, and tell no waiter anything."""
        self.sessions.drop()

    def end(self) -> None:
        """The node is being closed in good order: tell those who wait, and end every session."""
        self.transactions.end()
        for session in list(self.sessions.by_id.values()):
            self.sessions.end(session)

    # -- what a turn does -----------------------------------------------------------------------------

    def flush(self, now: Now, *, hurry: bool) -> list[LogWriter]:
        """Append everything proposed since the last flush, once per partition. Returns the logs appended to."""
        dirty = self.overlays.dirty
        if not dirty and not self.overlays.followed:
            return []
        time_us = self.time.read(now)
        if self.lending.loans:
            self.lending.at(now)
        if self.queues.lines.parked.standing:
            self.queues.before_flush(list(dirty), time_us)
        return self.overlays.flush(time_us, hurry=hurry)

    def answer_ahead(self) -> bool:
        """Answer for the one log with something in flight, unless a session reads it; see Overlay.answer_ahead."""
        unsettled = self.overlays.unsettled
        if len(unsettled) != 1:
            return False
        (overlay,) = unsettled
        partition = self._registry.partitions.get(overlay.history)
        return partition is not None and not self.sessions.readers.of(partition) and overlay.answer_ahead()

    def advance(self) -> bool:
        """Answer for what is committed. Returns whether there may be something new."""
        unsettled = self.overlays.unsettled
        if not unsettled:
            return False
        for overlay in list(unsettled):
            self._apply(overlay)
            if not overlay.history.in_flight:
                unsettled.pop(overlay, None)  # the catalogue's may have closed it: its topic is deleted
        return True

    def _apply(self, overlay: Overlay[Any]) -> None:
        """Apply what is committed of one log, and answer for it."""
        if overlay.advance() and (partition := self._registry.applied(overlay.history)) is not None:
            self.queues.advanced(partition)

    def end_moved(self, partition: Partition) -> None:
        """Offer new records to workers and sessions."""
        if self.queues.lines.parked.standing:
            self.queues.end_moved(partition)
        if self.sessions.readers.by_owner:
            self.sessions.end_moved(partition)

    def tell(self, now: Now) -> None:
        """Hand over partitions, and send what sessions have coming."""
        agenda, port = self.agenda, self._port
        if self.wakes.jobs:
            self.wakes.work()
        if agenda.memberships:
            for membership in take(agenda.memberships):
                membership.rebalance(now.monotonic_s)
        if agenda.mail:
            for session in take(agenda.mail):
                session.send_news(port)
        if agenda.ready:
            self.sessions.deliver()

    def tick(self, now: Now) -> float:
        """Do what is due. Returns in how many seconds that is needed again."""
        sessions, housekeeping, now_s = self.sessions, self.housekeeping, now.monotonic_s
        now_us = self.time.read(now)
        if now_us > self._due_us + PAUSE_US:
            self.grace.stood_still(self._looked_us, self._looked_s)
        if now_s >= sessions.due_s:
            sessions.expire(now)
            self._hand_over(now)
        if housekeeping.grown or now_s >= housekeeping.due_s:
            housekeeping.tick(now)
        wait = min(housekeeping.due_s - now_s, self.queues.tick(now))
        if sessions.by_id:
            wait = min(wait, EXPIRY_CHECK_S)
        self._looked_us, self._looked_s, self._due_us = now_us, now_s, now_us + round(wait * 1e6)
        return wait

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do in the next turn."""
        agenda = self.agenda
        return bool(self.wakes.jobs or self.overlays.dirty or agenda.mail or agenda.memberships or agenda.ready)

    def _hand_over(self, now: Now) -> None:
        """Take what was asked back and is overdue; try again what could not be claimed or read."""
        for membership in {session.membership: None for session in self.sessions.by_id.values()}:
            if membership is not None:
                membership.take_overdue(now.monotonic_s)
                membership.retry()
        for stream in take(self.agenda.failing):
            self._again(stream)

    # -- what the driver tells ------------------------------------------------------------------------

    def warmed(self, token: Hashable) -> bool:
        """Pages are in memory; whether something here waited for them."""
        if not self._port.was_cold(token):
            return False
        if isinstance(token, Stream):
            self._again(token)
        elif not self.queues.warmed(token):
            self.transactions.warmed(token)
        return True

    def _again(self, stream: Stream) -> None:
        stream.again()
        session = self.sessions.by_id.get(stream.outlet.session)
        if session is not None:
            session.wake()

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        self.wakes.drop(peer)
        self.queues.disconnect(peer)
        self.sessions.disconnect(peer)
        self.lending.disconnect(peer)

    def stats(self) -> dict[str, Any]:
        """Numbers for people."""
        producing = self.producing
        return {
            "produce.batches": producing.batches,
            "produce.records": producing.records,
            "produce.bytes": producing.bytes,
            "produce.batch_bytes": producing.batch_bytes.values(),
            "lease.waiting": len(self.queues.lines.parked.standing),
            "tasks.waiting": self.queues.tasks.waiting,
            **self.queues.mover.stats(),
            **self.queues.teller.stats(),
            **self.queues.barriers.stats(),
            **self.transactions.stats(),
            "schedules.fired": self.scheduling.fired,
            "schedules.coalesced": self.scheduling.coalesced,
            **self.lending.stats(),
            **self.sessions.stats(),
            "clock.ignored_us": max(self.time.away_us, 0),
            "clock.ahead_us": max(-self.time.away_us, 0),
            "clock.jumps": self.time.jumps,
        }

    # -- what the registry tells ----------------------------------------------------------------------

    def topic_grown(self, topic: Topic, partitions: list[Partition]) -> None:
        """Assign new partitions in every group."""
        self.wakes.add(topic, self._grow(topic, partitions))

    def _grow(self, topic: Topic, partitions: list[Partition]) -> Work:
        yield from begin_in_new(topic, partitions)
        for partition in partitions:
            if not self._registry.holds(partition):
                return  # the topic was deleted in the meantime
            self.queues.admin.topic_grown(topic, partition)
            for membership in self._memberships.of(topic).values():
                self.agenda.memberships[membership] = None
            for session in self.sessions.by_id.values():
                if session.topic is topic and session.membership is None:
                    session.give(partition, 1, partition.first)
            yield GROWN

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """A topic is about to go: end what still uses it."""
        for session in [s for s in self.sessions.by_id.values() if s.topic is topic]:
            self.sessions.evict(session, error)
        for partition in topic.readable:
            self.scheduling.forget(partition)
        self.queues.topic_deleted(topic, error)
        self.transactions.topic_deleted(topic)

    def topic_erased(self, topic_id: bytes) -> None:
        """The files of a deleted topic are gone: log it."""
        catalogue = self.overlays.catalogue
        if catalogue.log.poisoned is None:
            catalogue.propose(fx.TopicErased(topic_id))

    def partition_closing(self, partition: Partition) -> None:
        """The log of a partition is about to be closed."""
        self.lending.end(partition)
        self.overlays.end(partition, UnknownTopic(f"{partition!r} was closed before this was committed"))
