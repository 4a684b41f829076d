"""Sessions: the broker's readers, and the messages to them.

Idea: a session is one member of a group, or one reader on its own, on one topic. It collects news (assigned and
revoked partitions, answers that must follow them) and sends it once per turn. Any message that names a session counts
as a heartbeat; after its timeout a silent session ends, and its partitions move on. When the connection of a control
session closes, nothing is delivered until the client names the session over another one.

Contract: ids are random, so only a client that was told one can name it, and none comes again. A session
belongs to the principal that opened it. Messages to it are in order: Joined, then Assigned, then answers. Ending a
session closes everything it opened.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import Answer, Assigned, Assignment, Deliver, Evicted, Failure, Joined  # fmt: skip
from ...errors import Forbidden, LimitReached, SessionExpired, UnknownSession
from ...rights import authorize
from ..ports import Now, Payload, Peer, Port, Randomness, Work
from ..turns.roster import Roster
from .delivery import Outlet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...rights import Principal
    from ..guard import Guard
    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..turns.portions import Portions
    from .agenda import Agenda, Listener
    from .coordinator import Membership

PUSH, CONTROL, MAPPED = "push", "control", "mapped"
EXPIRY_CHECK_S = 0.25

CROWD = 32
"""Readers of one partition that are told at once that its end has moved."""

PORTION = 128
"""Of deliveries in one turn: each session that is looked at counts as one, and so does each chunk."""


class Session:
    """One session. `peer` is where it was last heard from."""

    def __init__(
        self,
        id_: int,
        peer: Peer,
        topic: Topic,
        outlet: Outlet,
        agenda: Agenda,
        readers: Roster[Partition, int, Session],
        *,
        delivery: str,
    ) -> None:
        self.id = id_
        self.peer = peer
        self.topic = topic
        self.outlet = outlet
        self.delivery = delivery
        self.group = ""
        self.member = ""
        self.start = 0
        self.awaited = 0
        self.timeout_s = 0.0
        self.seen_s = 0.0
        self.joining: Joined | None = None  # to be sent with the first assignments
        self.membership: Membership | None = None
        self.is_stray = False  # its connection has closed
        self.owner = ""  # what the principal that opened it has proved
        self._agenda = agenda
        self._readers = readers
        self._given: dict[int, Assignment] = {}
        self._revoked: dict[int, None] = {}
        self._answers: list[tuple[Peer, Answer]] = []

    # -- what the coordinator does with a member ----------------------------------------------------

    def give(self, partition: Partition, epoch: int, offset: int) -> None:
        """Read `partition` from now on."""
        self.outlet.open(partition, epoch, offset)
        if not self.is_stray:
            self._readers.add(partition, self.id, self)
        self._given[partition.number] = Assignment(partition.number, epoch, offset, partition.term_at(offset))
        self._revoked.pop(partition.number, None)
        self.tell()

    def ask_back(self, partition: int) -> None:
        """Send nothing more of `partition`, and ask for its release, even if the assignment is unsent."""
        self.outlet.stop(partition)
        self._revoked[partition] = None
        self.tell()

    def take(self, partition: int) -> None:
        """Do not read `partition` any more."""
        stream = self.outlet.close(partition)
        if stream is not None:
            self._readers.remove(stream.partition, self.id)
        self._given.pop(partition, None)

    def tell(self) -> None:
        """Mark the session: it has news, or its request was decided."""
        self._agenda.mail[self] = None

    # -- what a turn does ---------------------------------------------------------------------------

    def move(self, partition: Partition, epoch: int, offset: int, *, paused: bool) -> None:
        """Go on at `offset` of a partition that it reads, under a new epoch, or wait there."""
        self.outlet.move(partition.number, epoch, offset, paused=paused)
        if self.outlet.streams[partition.number].revoked:
            self._revoked[partition.number] = None  # still asked back: say so together with the new epoch
        self._given[partition.number] = Assignment(partition.number, epoch, offset, partition.term_at(offset))
        self.tell()

    def answer(self, peer: Peer, message: Answer) -> None:
        """An answer that must not overtake the news."""
        self._answers.append((peer, message))
        self.tell()

    def end_moved(self, port: Port, partition: int) -> None:
        """There are new records in a partition that it reads."""
        if self.delivery == MAPPED:
            port.wake(self.id)
        else:
            self.outlet.moved(partition)
            self.wake()

    def wake(self) -> None:
        """Mark the session for delivery. If its connection is full, it waits until that drains."""
        if not self.outlet.blocked:
            self._agenda.ready[self] = None

    @property
    def way(self) -> Hashable:
        """The outlet of deliveries: its own endpoint, or the connection of its peer."""
        return self.id if self.delivery == PUSH else self.peer

    def send_news(self, port: Port) -> None:
        """Tell the peer what happened since the last time, in order."""
        given, revoked = list(self._given.values()), list(self._revoked)
        if self.joining is not None:
            if self.awaited:
                return
            joined, self.joining = self.joining, None
            port.reply(self.peer, Joined(joined.request, self.id, joined.endpoint, joined.slot, given))
            given = []
        if given or revoked:
            port.reply(self.peer, Assigned(self.id, given, revoked))
        self._given, self._revoked = {}, {}
        answers, self._answers = self._answers, []
        for peer, message in answers:
            port.reply(peer, message)
        if self.outlet.streams:
            self.wake()

    def pump(self, port: Port) -> bool:
        """Deliver. Returns whether to come again in the next turn."""
        if self.joining is not None or self.delivery == MAPPED:
            return False  # a mapped one reads by itself; to others send_news comes first, and marks them ready
        return self.outlet.pump(port, self)

    def stray(self) -> None:
        """Its connection has closed: new records cost nothing on its behalf."""
        self.is_stray = self.outlet.blocked = True
        self._agenda.ready.pop(self, None)
        self.end_reading()

    def end_reading(self) -> None:
        """No partition tells it any more that its end has moved."""
        for stream in self.outlet.streams.values():
            self._readers.remove(stream.partition, self.id)

    def return_(self) -> None:
        """The client has named it again: every partition may have moved meanwhile."""
        self.is_stray = False
        for number, stream in self.outlet.streams.items():
            self._readers.add(stream.partition, self.id, self)
            self.outlet.moved(number)

    def is_full(self, port: Port) -> bool:
        """Whether its connection has so much to read already that deliveries wait."""
        return self.delivery == CONTROL and port.is_behind(self.peer)

    def send(self, port: Port, message: Deliver, payload: Payload) -> bool:
        """Send a delivery. False: it was not taken."""
        if self.delivery == PUSH:
            return port.deliver(self.id, message, payload)
        return port.reply(self.peer, message, payload)

    def abort(self, port: Port, error: Error) -> None:
        """Fail the requests it still waits for."""
        if self.joining is not None:
            port.reply(self.peer, Failure(self.joining.request, error.code, error.message, error.retry))
        for peer, message in self._answers:
            port.reply(peer, message)


class Readers(Roster["Partition", int, Session]):
    """The sessions that read each partition."""

    def __init__(self, port: Port) -> None:
        """`port` is told of mapped ones."""
        super().__init__()
        self._port = port

    def add(self, owner: Partition, key: int, value: Session) -> None:
        """See Roster."""
        super().add(owner, key, value)
        if value.delivery == MAPPED:
            self._port.begin_reading(key, owner.log)

    def remove(self, owner: Partition, key: int) -> None:
        """See Roster."""
        session = self.of(owner).get(key)
        super().remove(owner, key)
        if session is not None and session.delivery == MAPPED:
            self._port.end_reading(key, owner.log)


class Sessions:
    """All sessions of a node."""

    def __init__(
        self,
        port: Port,
        agenda: Agenda,
        randomness: Randomness,
        limit: int,
        wakes: Portions,
        memberships: Roster[Topic, str, Membership],
        guard: Guard,
    ) -> None:
        """`wakes` tells a crowd of readers that the end of a partition has moved, in portions."""
        self.by_id: dict[int, Session] = {}
        self.expired = 0
        self.readers = Readers(port)
        self.memberships = memberships
        self._port = port
        self._agenda = agenda
        self._randomness = randomness
        self._guard = guard
        self._limit = limit
        self._checked_s = 0.0
        self.due_s = EXPIRY_CHECK_S
        """`expire` has nothing to do before."""
        self._stuck: dict[Hashable, dict[Listener, None]] = {}  # by the way that is full
        self._by_peer: dict[Peer, dict[Session, None]] = {}
        self._wakes = wakes
        self._telling: dict[Partition, bool] = {}  # whose readers are being told, and whether once more after that

    def stats(self) -> dict[str, int]:
        """How many there are, and how many are sent nothing because of the reader."""
        outlets = [session.outlet for session in self.by_id.values()]
        return {
            "sessions.open": len(outlets),
            "sessions.expired": self.expired,
            "sessions.blocked": sum(outlet.blocked for outlet in outlets),
            "sessions.out_of_credit": sum(outlet.out_of_credit for outlet in outlets),
        }

    def new_id(self) -> int:
        """The id of the next session. Raises LimitReached."""
        if len(self.by_id) >= self._limit:
            raise LimitReached(f"{self._limit} sessions are open, which is the limit: close some or raise it")
        return int.from_bytes(self._randomness(8), "little") >> 1 or 1  # 63 bits: a Count

    def add(self, session: Session) -> None:
        """Add an open session."""
        self.by_id[session.id] = session
        self._by_peer.setdefault(session.peer, {})[session] = None

    def get(self, id_: int, peer: Peer, now: Now) -> Session:
        """A session of the request's principal by id, which counts as a heartbeat. Raises UnknownSession."""
        session = self.own(id_)
        if session is None:
            raise UnknownSession(f"session {id_:#x} is over, or of an earlier start of the broker: join again")
        if session.outlet.blocked:  # it lives, maybe behind another connection
            self._free(session)
        if session.peer != peer:
            self._forget_peer(session)
            session.peer = peer
            self._by_peer.setdefault(peer, {})[session] = None
        session.seen_s = now.monotonic_s
        return session

    @property
    def asker(self) -> str:
        """What the principal of the request at hand has proved."""
        return self._guard.proof

    def own(self, id_: int) -> Session | None:
        """A session by id; None if there is none that the request's principal has opened."""
        session = self.by_id.get(id_)
        return session if session is not None and session.owner == self._guard.proof else None

    def disconnect(self, peer: Peer) -> None:
        """A connection has closed: deliver nothing over it."""
        for session in self._by_peer.get(peer, ()):
            if session.delivery == CONTROL and not session.is_stray:
                session.stray()
                self.stuck(session)

    def _forget_peer(self, session: Session) -> None:
        of_peer = self._by_peer[session.peer]
        del of_peer[session]
        if not of_peer:
            del self._by_peer[session.peer]

    # -- what a turn does ---------------------------------------------------------------------------

    def end_moved(self, partition: Partition) -> None:
        """Tell the readers of a partition that has new records, a crowd of them in portions."""
        readers = self.readers.of(partition)
        if partition in self._telling:
            self._telling[partition] = True
        elif len(readers) <= CROWD:
            for reader in list(readers.values()):
                reader.end_moved(self._port, partition.number)
        else:
            self._telling[partition] = True
            self._wakes.add(partition, self._tell(partition))

    def _tell(self, partition: Partition) -> Work:
        while self._telling[partition]:
            self._telling[partition] = False
            asleep, readers = self._port.asleep(), self.readers.of(partition).values()
            told = [reader for reader in readers if reader.delivery != MAPPED or reader.id in asleep]
            for number, reader in enumerate(told, 1):
                if reader.id in self.readers.of(partition):
                    reader.end_moved(self._port, partition.number)
                if not number % CROWD:
                    yield
        del self._telling[partition]

    def deliver(self) -> None:
        """Send to sessions that may have something, one after the other, a portion of all that there is to send."""
        ready, left = self._agenda.ready, PORTION
        for session in list(islice(ready, PORTION)):
            if left <= 0:
                return
            del ready[session]
            before = session.outlet.number
            if session.pump(self._port):
                session.wake()
            left -= 1 + session.outlet.number - before
            if session.outlet.blocked:
                self.stuck(session)
            else:
                self.eased(session.way)

    def stuck(self, session: Listener) -> None:
        """Its connection is full: wait until it drains, or until the client is heard of."""
        self._stuck.setdefault(session.way, {})[session] = None

    def eased(self, way: Hashable) -> None:
        """A way may take something again: look at one of its waiting sessions; the next follows when that is sent."""
        if self._stuck and (waiting := self._stuck.get(way)):
            self._free(next(iter(waiting)))

    def _free(self, session: Listener) -> None:
        waiting = self._stuck.get(session.way, {})
        waiting.pop(session, None)
        if not waiting:
            self._stuck.pop(session.way, None)
        session.outlet.blocked = False
        if session.is_stray:
            session.return_()
        session.wake()

    def end(self, session: Session) -> None:
        """Close everything the session opened."""
        del self.by_id[session.id]
        self._forget_peer(session)
        if session.outlet.blocked:
            self._free(session)
        for number in list(session.outlet.streams):
            session.take(number)
        if session.membership is not None:
            session.membership.leave(session)
            if not session.membership.members:
                self.memberships.remove(session.topic, session.group)
        self._close_way(session)
        self._agenda.mail.pop(session, None)
        self._agenda.ready.pop(session, None)

    def drop(self) -> None:
        """Release what sessions opened at the port, and tell no client."""
        for session in self.by_id.values():
            session.end_reading()
            self._close_way(session)

    def _close_way(self, session: Session) -> None:
        if session.delivery == PUSH:
            self._port.close_delivery(session.id)
        elif session.delivery == MAPPED:
            self._port.close_wake(session.id)

    def evict(self, session: Session, error: Error) -> None:
        """End a session that did not ask for it, and tell it why."""
        session.abort(self._port, error)
        self.end(session)
        self._port.reply(session.peer, Evicted(session.id, error.code, error.message))

    def judge(self, current: Callable[[str], Principal]) -> None:
        """Evict the sessions whose owners may not read any more what they read. `current`: principals by proof."""
        for session in list(self.by_id.values()):
            owner, topic = current(session.owner), session.topic.name
            if not (
                authorize(owner, "read", f"topic:{topic}")
                and (not session.group or authorize(owner, "read", f"group:{topic}/{session.group}"))
            ):
                self.evict(session, Forbidden(f"user {owner.name} may not read topic {topic} any more"))

    def expire(self, now: Now) -> None:
        """Evict what was silent for too long.

        Time in which the broker itself was stopped or overloaded does not count, nor that before a client was told of
        its session: what it is given may wait for the disk.
        """
        excused = now.monotonic_s - self._checked_s - 4 * EXPIRY_CHECK_S
        self._checked_s, self.due_s = now.monotonic_s, now.monotonic_s + EXPIRY_CHECK_S
        for session in list(self.by_id.values()):
            if session.joining is not None:
                session.seen_s = now.monotonic_s
            if excused > 0:
                session.seen_s = max(session.seen_s, min(session.seen_s + excused, now.monotonic_s))
            silent = now.monotonic_s - session.seen_s
            if silent > session.timeout_s:
                self.expired += 1
                message = (
                    f"nothing was heard of session {session.id:#x} for {silent:.1f} s, over its {session.timeout_s:g} s"
                )
                self.evict(session, SessionExpired(message))
