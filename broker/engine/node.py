"""A node: everything one broker knows, driven by messages, commits and time.

Idea: `receive` turns a message into replies or proposals; `flush` writes all proposals with one append per partition;
`advance` processes what is committed by now: replies, waiting fetches, deliveries, wake-ups. `tick` does what is due.
A node is its logs, a reading desk (desk.py) and a leader's office (office.py), whose rules live in the handlers of
each area; this class only dispatches. From `resign` until everything in the logs is committed there is no office, and
only the desk answers.

Contract of the driver, which calls from one thread:

    node = Node(store, port, randomness=os.urandom, config=NodeConfig(...), now=now)
    loop:
        for peer, message, payload in everything that can be read: node.receive(peer, message, payload, now)
        dirty = node.flush(now)          # logs appended to: sync them, or wake the keeper
        ... a keeper's answer: log.settle(generation, seq) ...
        node.advance(now)                # after flush, and after every settle
        wait at most node.tick(now)      # seconds to the next deadline; 0.0: flush and advance again at once

No exception leaves `receive`, `flush`, `advance` or `tick` because of a client's message or a full or failing disk:
those become Failure answers. Must not know sockets, files, clocks or threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...storage.errors import Corrupt, Error, Poisoned, ReadFailed, StorageError, StorageFull
from ...transport.messages import (
    AskEnds,
    Checkpoint,
    FindOffsets,
    ListDead,
    ListGroups,
    ListQueues,
    ListSchedules,
    ListTopics,
    Measure,
    Stats,
)
from ..errors import InvalidRequest, NoLeader, NotLeader, UnknownTopic
from .desk import ReadingDesk
from .guard import Guard
from .housekeeping import BYTES_BETWEEN
from .lending.lending import Waiting
from .logs.log_agenda import LogAgenda
from .logs.log_registry import LogRegistry
from .logs.log_upkeep import LogUpkeep
from .logs.removal import Removal
from .office import Office
from .ports import (
    LEADS_NOT_YET,
    Handlers,
    LentLogs,
    NodeConfig,
    NodeStanding,
    Now,
    Payload,
    Peer,
    Port,
    Randomness,
    RecordRoom,
    Store,
)
from .topics.clustering import Clustering
from .topics.greeting import Greeting
from .turns.portions import Portions
from .turns.replies import failure

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Hashable, Sequence

    from ...storage.batch import Batch
    from ...storage.log import LogWriter
    from ...transport.messages import Request
    from ..rights import Principal
    from .logs.history import History
    from .logs.partition import Partition
    from .logs.topics import Topic

READS = frozenset({
    AskEnds, Checkpoint, FindOffsets, ListDead, ListGroups, ListQueues, ListSchedules, ListTopics, Measure, Stats,
})  # fmt: skip
"""Requests that may be much to do and change nothing."""


IDLE_S = 1.0
"""Until the next look while there is no office: what is committed in the meantime is told by `advance`."""


class Node:
    """One node over a store and a port. Opening it opens and replays every log of the store."""

    rests = False
    """Whether its driver is to hear no clients now: what they ask for can only wait. A node alone never is."""

    def __init__(
        self,
        store: Store,
        port: Port,
        *,
        randomness: Randomness,
        config: NodeConfig | None = None,
        now: Now,
        lenders: LentLogs | None = None,
        reserve: RecordRoom | None = None,
        may_lead: Callable[[], bool] = lambda: True,
    ) -> None:
        """Open all logs, replay each from its newest snapshot, finish deletions that were cut short.

        `lenders`: what lends logs to producers on the same machine. `reserve`: of the disk, which records leave; None
        where that is seen to elsewhere. `may_lead`: whether an office may open now, which
        is asked again at each `advance` without one.
        """
        self._config = config = config or NodeConfig()
        self._port = port
        self._randomness = randomness
        self._lenders = lenders
        self._agenda = LogAgenda()
        self._registry = LogRegistry(store, self._agenda, self)
        self._registry.reserve = reserve
        self._upkeep = LogUpkeep(self._registry, config)
        self._removal = Removal(self._registry, self._upkeep, config)
        self._guard = Guard(self._registry.topics)
        self._desk = ReadingDesk(self._registry, port, config, self._guard)
        self._counts = {"requests": 0, "failures": 0}
        self._portions = Portions()
        self._office: Office | None = None
        self.standing = NodeStanding()
        """What the node is in its cluster: the driver says so whenever that changes."""
        greeting = Greeting(port, config, lambda: (self.standing, self.incarnation), self._stats_in_steps)
        self.clustering = Clustering(port)
        """What the driver of a member tells of its cluster."""
        self._any_time: Handlers = {**self._desk.handlers, **greeting.handlers, **self.clustering.handlers}
        self._handlers: Handlers = self._any_time
        self._lent: set[object] = set()
        self._may_lead = may_lead
        if may_lead():
            self._open_office(now)

    def _open_office(self, now: Now) -> None:
        """Take the lead. Nothing is in flight."""
        port, config = self._port, self._config
        self._registry.withdraw_prepared()
        office = Office(
            self._registry,
            self._upkeep,
            port,
            config,
            self._randomness,
            self._portions,
            now,
            self._guard,
            self._lenders,
        )
        self._handlers = {**self._any_time, **office.handlers}
        self._office = office
        self._lent = office.lending.active

    def resign(self) -> None:
        """Lose the lead at any moment. `advance` takes it again, once nothing that stands in the logs is in flight.

        What is being worked on, and what waits for a commit, is told nothing: the driver closes every connection, and
        says `disconnect` of each. Reads that wait at the desk are answered if it does not. Raises Poisoned where a
        log is: what stands in it is known when the node is opened anew. One that is poisoned later is in the way of
        the next office until then.
        """
        for log in self._registry.logs():
            if log.poisoned is not None:
                raise Poisoned(
                    f"{log.path} is poisoned ({log.poisoned}), so no office opens over it: open the log again"
                )
        office, self._office, self._handlers = self._office, None, self._any_time
        if office is not None:
            office.lending.end_all()
        for log in self._registry.logs():
            log.end_term()
        self._portions.end()
        if office is not None:
            office.drop()

    @property
    def incarnation(self) -> int:
        """Random, new at every start and in every office: what Welcome says. 0 without an office."""
        return 0 if self._office is None else self._office.incarnation

    def receive(
        self, peer: Peer, message: Request, payload: Payload, now: Now, principal: Principal | None = None
    ) -> None:
        """Take one request. Its answer comes through the port: at once, or from a later `advance` or `tick`.

        A principal may do what its grants allow; without one, all may do everything. A driver passes one with each
        message, or with none.
        """
        self._counts["requests"] += 1
        if payload:
            try:
                self._registry.take_room(len(payload), now.monotonic_s)
            except StorageFull as error:
                self._fail(peer, message, error)
                return
        if not self._lent or self._office is None:
            self._handle(peer, message, payload, principal, now)
        elif self._may(peer, message, principal):  # first: what is refused takes no log back
            for each in self._office.lending.admit(Waiting(peer, message, payload, principal), now):
                self._handle(*each, now)

    def _may(self, peer: Peer, message: Request, principal: Principal | None) -> bool:
        try:
            if principal is not None:
                self._guard.check(principal, message)
        except Error as error:
            self._fail(peer, message, error)
            return False
        return True

    def _handle(self, peer: Peer, message: Request, payload: Payload, principal: Principal | None, now: Now) -> None:
        try:
            if principal is not None:
                self._guard.check(principal, message)
            handler = self._handlers.get(type(message))
            if handler is None and self._office is None:
                raise self.not_leading()
            if handler is None:
                raise InvalidRequest(f"{type(message).__name__} is not a request")
            work = handler(peer, message, payload, now)
            if work is not None:
                changes = type(message) not in READS
                self._portions.begin(peer, work, lambda error: self._fail(peer, message, error), changes=changes)
        except Error as error:
            self._fail(peer, message, error)
        except OSError as error:
            self._fail(peer, message, ReadFailed(f"the broker cannot read its files now: {error}"))

    def hold_to(self, reserve: RecordRoom) -> None:
        """Have records leave what this says of the disk."""
        self._registry.reserve = reserve

    def not_leading(self) -> Error:
        """What is answered to requests for the leader."""
        standing = self.standing
        if not standing.leader:
            return NoLeader(LEADS_NOT_YET)
        error = NotLeader(f"this node does not lead: ask {standing.leader[0]}, the leader of term {standing.term}")
        error.where, error.term = standing.leader[0], standing.term
        return error

    def _fail(self, peer: Peer, message: Request, error: Error) -> None:
        self._counts["failures"] += 1
        self._port.reply(peer, failure(getattr(message, "request", 0), error))

    def refuse(self, peer: Peer, message: Request, error: Error | None = None) -> None:
        """Answer a request with an error, or with where the leader is: this node serves no clients now."""
        self._counts["requests"] += 1
        self._fail(peer, message, error or self.not_leading())

    @property
    def leads(self) -> bool:
        """Whether there is an office."""
        return self._office is not None

    def history_of(self, log_id: bytes) -> History[Any] | None:
        """An open log with what it adds up to, by the log's id."""
        return self._registry.history_of(log_id)

    def follow(self, history: History[Any], batches: Sequence[Batch]) -> None:
        """Another node's batches stand in a log now, and are not committed."""
        self._registry.follow(history, batches)

    def prepare(self, batch: Batch, most: int) -> bool:
        """Make so many of the logs that a batch of the catalogue names, which another node proposes. Returns whether
        all of them are there, so that the batch can be followed at once. Raises what making a log does."""
        return self._registry.prepare(batch, most)

    def hold_files(self, held: bool) -> None:
        """Whether another node copies the files of the logs, so that none is replaced or removed meanwhile."""
        self._upkeep.held = held

    def flush(self, now: Now, *, hurry: bool = False) -> list[LogWriter]:
        """Append everything proposed since the last flush, once per partition.

        Returns the logs appended to. For those with `commit="durable"` the driver now sees to a sync; those
        with "written" are committed already. Call `advance` next in any case. `hurry`: where it is one log, that sync
        follows at once, so the disk may begin.
        """
        if self._registry.reserve is not None:
            self._registry.reserve.flushed()
        return [] if self._office is None else self._office.flush(now, hurry=hurry)

    def answer_ahead(self) -> bool:
        """Answer for what one log has committed before `advance` applies it, where the answers say nothing that follows
        from that, and no reader waits who is to have the records before their producer hears of them.

        Returns whether there are answers, which the driver sends before it calls `advance`.
        """
        office = self._office
        return office is not None and not self._desk.awaits and office.answer_ahead()

    def advance(self, now: Now) -> None:
        """Answer for what `log.committed` has reached, fail what a poisoned log will never commit, and deliver."""
        desk, office, registry = self._desk, self._office, self._registry
        if self._lent and office is not None:
            office.lending.follow(now)
        if office.advance() if office is not None else registry.advance():
            for partition in registry.take_moved():
                desk.end_moved(partition)
                if office is not None:
                    office.end_moved(partition)
        if desk.wakes.jobs:
            desk.wakes.work()
        if office is not None:
            office.tell(now)
        elif self._may_lead() and registry.settled:
            self._open_office(now)

    def tick(self, now: Now) -> float:
        """Do what is due by now. Returns the seconds until the next call is needed (an earlier one is harmless).

        Due work may propose effects: flush and advance afterwards, as after `receive`. 0.0 says so.
        """
        office, lending_wait = self._office, math.inf
        if self._lent and office is not None:
            for each in office.lending.due(now):
                self._handle(*each, now)
            lending_wait = office.lending.wait(now)
        if grown := self._agenda.grown:
            histories = list(grown)
            grown.clear()
            for history in histories:
                is_due = self._upkeep.advanced(history)
                if not is_due and history.since_snapshot_bytes >= BYTES_BETWEEN:
                    (self._removal if office is None else office.housekeeping).hold_to_limit(history)
        if office is None:
            self._removal.tick(now)
        due_s, wait = self._desk.deadlines.first, IDLE_S if office is None else min(office.tick(now), lending_wait)
        if due_s is not None and due_s <= now.monotonic_s:
            due_s = self._desk.deadlines.ring(now.monotonic_s)
        portions = self._portions
        if (portions.jobs or portions.worked) and portions.work():
            return 0.0
        if self._desk.wakes.jobs:
            return 0.0
        if self._may_lead() and self._registry.settled if office is None else office.is_busy:
            return 0.0
        return max(0.0, wait if due_s is None else min(wait, due_s - now.monotonic_s))

    @property
    def portions(self) -> Portions:
        """The long work of peers: `worked` says how many steps of it the last `tick` has done for each of them."""
        return self._portions

    def rest(self, peer: Peer) -> None:
        """Go on with no long work of a peer until `resume`; its other requests are taken as they come."""
        self._portions.rest(peer)

    def judge(self, current: Callable[[str], Principal]) -> None:
        """Rights have changed: end the sessions, and take back the logs, that are not allowed any more.

        `current`: principals by what they proved.
        """
        if self._office is not None:
            self._office.sessions.judge(current)
            self._office.lending.judge(current)

    @property
    def guard(self) -> Guard:
        """What was refused so far."""
        return self._guard

    def resume(self, peer: Peer) -> None:
        """Go on with a peer's long work, at the next `tick`."""
        self._portions.resume(peer)

    def warmed(self, token: Hashable) -> None:
        """Pages that `Port.read` called COLD under this token are in memory: the next `advance` reads again."""
        if self._office is None or not self._office.warmed(token):
            self._desk.warmed(token)

    def eased(self, way: Hashable) -> None:
        """Let a peer or session endpoint that could take no delivery be tried again at the next `advance`."""
        if self._office is not None:
            self._office.sessions.eased(way)

    def disconnect(self, peer: Peer) -> None:
        """The peer's connection is gone: its waiting requests are dropped; its sessions live on until they expire."""
        self._portions.drop(peer)
        self._desk.disconnect(peer)
        if self._office is not None:
            self._office.disconnect(peer)

    def stats(self) -> dict[str, Any]:
        """Counters and sizes by dotted name."""
        return {**self._numbers(), **self._registry.stats()}

    def _stats_in_steps(self) -> Generator[int | None, None, dict[str, Any]]:
        census = yield from self._registry.census()
        return {**self._numbers(), **census}

    def _numbers(self) -> dict[str, Any]:
        return {
            **self._counts,
            **self._desk.stats(),
            **({} if self._office is None else self._office.stats()),
            "snapshots.failed": self._upkeep.failed_snapshots,
            "retention.failed": self._upkeep.failed_looks,
            **self._port.stats(),
        }

    def rotten(self, damage: Corrupt, on_mended: Callable[[], None]) -> None:
        """A closed segment has rotted: nothing is done here, as there is no other copy. Readers meet it."""

    @property
    def unavailable(self) -> dict[str, str]:
        """Why partitions could not be opened, by topic and number."""
        return self._registry.unavailable()

    def tell_damage(self, on_damage: Callable[[Corrupt], StorageError]) -> None:
        """Have `on_damage` told, from within this node's own calls, of what reading its partitions meets.

        It returns what readers are told.
        """
        self._registry.on_damage = on_damage

    @property
    def unsound(self) -> list[tuple[str, Error]]:
        """Logs that could not be opened, or that add up to less than was stored: directory, and why."""
        return list(self._registry.unsound())

    @property
    def topics(self) -> Container[bytes]:
        """Ids of the topics that the catalogue has."""
        return self._registry.topics.by_id

    @property
    def without_beginning(self) -> list[LogWriter]:
        """Logs of which segments are gone that no retention took; see Partition.lacks_beginning. Raises Corrupt."""
        return [partition.log for partition in self._registry.partitions.values() if partition.lacks_beginning]

    @property
    def logs(self) -> list[LogWriter]:
        """Every open log, the metadata log first."""
        return list(self._registry.logs())

    def leaving(self) -> bool:
        """Whether there is something to do before this node should end: a node alone has no other to hand over to."""
        return False

    def close(self, now: Now) -> None:
        """Flush, sync, answer, snapshot every log that moved, and close all cleanly. The node is then unusable."""
        if self._office is not None:
            self._office.lending.end_all()
        self.flush(now)
        while self._office is not None and self._office.overlays.dirty:
            self.flush(now)
        self._registry.settle()
        self.advance(now)
        if self._office is not None:
            self._office.end()
        self._upkeep.snapshot_all()
        self._registry.close_all()

    # -- what the registry tells --------------------------------------------------------------------

    def topic_grown(self, topic: Topic, partitions: list[Partition]) -> None:
        """Handle new partitions of a topic."""
        self._desk.topic_grown(topic)
        if self._office is not None:
            self._office.topic_grown(topic, partitions)

    def topic_deleted(self, topic: Topic) -> None:
        """A tombstone is committed: end what still uses the topic."""
        error = UnknownTopic(f"topic {topic.name} was deleted")
        self._desk.topic_deleted(topic, error)
        if self._office is not None:
            self._office.topic_deleted(topic, error)

    def topic_erased(self, topic_id: bytes) -> None:
        """The files of a deleted topic are gone."""
        if self._office is not None:
            self._office.topic_erased(topic_id)

    def partition_closing(self, partition: Partition) -> None:
        """The log of a partition is closed next."""
        if self._office is not None:
            self._office.partition_closing(partition)
