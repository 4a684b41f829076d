"""The life of sessions as requests: join, release, credit, seek, leave, heartbeat.

Contract: joining a group is answered when the free partitions are committed to the member; a session on its own at
once. A message for an ended session is answered by Evicted unless it expects an answer itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import Credit, Done, Evicted, Join, Joined, Leave, Ping, Release, SeekTo  # fmt: skip
from ...errors import Fenced, InvalidRequest, SessionReplaced, UnknownSession
from ..logs.partition import FIND_STEPS, Partition, check_time
from ..logs.topics import Topic, Topics
from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
from ..queues.topic_queues import check_no_queue
from ..tables.names import check_name
from ..tables.producers import Place
from ..turns.replies import failure
from .agenda import Agenda
from .coordinator import Membership
from .delivery import Outlet
from .sessions import CONTROL, MAPPED, PUSH, Session, Sessions

if TYPE_CHECKING:
    from collections.abc import Generator


LOOKS = 16
"""Positions that are looked at in one step."""

GIVEN = 4
"""Partitions that are given to a session of its own in one step."""


class SessionRequests:
    """Handlers of everything that concerns one session."""

    def __init__(self, topics: Topics, sessions: Sessions, agenda: Agenda, port: Port, config: NodeConfig) -> None:
        self.handlers: Handlers = {
            Join: self.join, Release: self.release, Credit: self.credit, SeekTo: self.seek, Leave: self.leave,
            Ping: self.ping,
        }  # fmt: skip
        self._topics = topics
        self._sessions = sessions
        self._agenda = agenda
        self._port = port
        self._config = config

    def join(self, peer: Peer, message: Join, payload: Payload, now: Now) -> Work:
        """Open a session."""
        return self._join(peer, message, now, self._sessions.asker)

    def _join(self, peer: Peer, message: Join, now: Now, owner: str) -> Work:
        topic = self._topics.get(message.topic)
        self._check_join(message)
        check_no_queue(topic, message.group)
        starts = (yield from self._starts(topic, message)) if not message.group else {}
        membership = self._sessions.memberships.of(topic).get(message.group)
        if membership is not None and message.member in membership.members:
            older = membership.members[message.member]
            assert isinstance(older, Session)
            self._sessions.evict(
                older, SessionReplaced(f"member {message.member} of group {message.group} joined again")
            )
        session = self._open(peer, topic, message, now, owner)
        if message.group:
            self._join_group(topic, session)
        else:
            yield from self._give(topic, session, starts)
        session.tell()

    def release(self, peer: Peer, message: Release, payload: Payload, now: Now) -> Work | None:
        """A member releases revoked partitions, behind what it has asked for before: their commit may take portions."""
        session = self._find(peer, message.session, now)
        if session is None or session.membership is None:
            return None
        return _released(session.membership, session, message.partitions)

    def credit(self, peer: Peer, message: Credit, payload: Payload, now: Now) -> None:
        """Let more be sent to a session."""
        session = self._find(peer, message.session, now)
        if session is not None:
            session.outlet.grant(message.total_bytes, message.total_records)
            session.wake()

    def seek(self, peer: Peer, message: SeekTo, payload: Payload, now: Now) -> None:
        """Go on elsewhere in one partition, or wait there."""
        session = self._sessions.get(message.session, peer, now)
        partition = session.topic.partition(message.partition)
        stream = session.outlet.streams.get(message.partition)
        pauses = message.paused or (stream is not None and stream.paused)
        if not (pauses and 0 <= message.offset < partition.first):  # the reader is told what retention took
            partition.check_place(message.offset)
        if stream is None or (session.membership is not None and stream.revoked):
            raise Fenced(f"session {session.id:#x} does not read partition {message.partition}: it cannot seek there")
        if session.membership is None:
            session.move(partition, stream.epoch + 1, message.offset, paused=message.paused)
            session.answer(peer, Done(message.request))
            return
        seek = Seek(self._port, peer, session, partition, message)
        seek.epoch = partition.set_owner(session.group, session.member, session.start, seek)

    def leave(self, peer: Peer, message: Leave, payload: Payload, now: Now) -> Work:
        """End a session, behind what its client has asked for before. One that is over already is no error."""
        return self._leave(peer, message, self._sessions.own(message.session))

    def _leave(self, peer: Peer, message: Leave, session: Session | None) -> Work:
        if session is not None and self._sessions.by_id.get(session.id) is session:
            session.abort(self._port, UnknownSession("the session was left while it was joining"))
            self._sessions.end(session)
        self._port.reply(peer, Done(message.request))
        yield from ()

    def ping(self, peer: Peer, message: Ping, payload: Payload, now: Now) -> None:
        """A heartbeat."""
        if message.session:
            self._sessions.get(message.session, peer, now)
        self._port.reply(peer, Done(message.request))

    def _find(self, peer: Peer, id_: int, now: Now) -> Session | None:
        try:
            return self._sessions.get(id_, peer, now)
        except UnknownSession as error:
            self._port.reply(peer, Evicted(id_, error.code, error.message))
            return None

    def _check_join(self, message: Join) -> None:
        if message.delivery not in (PUSH, CONTROL, MAPPED):
            raise InvalidRequest(f"delivery {message.delivery!r} is unknown: {PUSH}, {CONTROL} or {MAPPED}")
        check_time("start", message.start)
        if message.group:
            check_name("group", message.group)
            check_name("member", message.member)
        if message.group and message.positions:
            raise InvalidRequest("positions cannot be given with a group: it has cursors; join, then seek")

    def _starts(self, topic: Topic, message: Join) -> Generator[int | None, None, dict[int, int]]:
        closed = set(topic.closed)  # the reader hears of these; the others are read
        given = dict(message.positions)
        for looks, (number, offset) in enumerate(given.items(), 1):
            if number not in closed:
                partition = topic.partition(number)
                if not 0 <= offset < partition.first:  # the reader is told what retention took
                    partition.check_place(offset)
            if looks % LOOKS == 0:
                yield
        self._topics.get(message.topic)
        starts: dict[int, int] = {}
        while len(starts) < len(topic.readable):
            partition = topic.readable[len(starts)]
            known = given.get(partition.number)
            starts[partition.number] = partition.find(message.start) if known is None else known
            if message.start >= 0 or len(starts) % LOOKS == 0:
                yield FIND_STEPS if message.start >= 0 else 1
                self._topics.get(message.topic)
        return starts

    def _give(self, topic: Topic, session: Session, starts: dict[int, int]) -> Work:
        """All partitions that were there when it was opened: it is told then, and given later ones as they come."""
        session.awaited += 1
        for given, (number, start) in enumerate(starts.items(), 1):
            session.give(topic.partition(number), 1, start)
            if given % GIVEN == 0:
                yield
                if session.id not in self._sessions.by_id:
                    return  # its topic is deleted, or it was silent for too long: it was told
        session.awaited -= 1

    def _open(self, peer: Peer, topic: Topic, message: Join, now: Now, owner: str) -> Session:
        id_ = self._sessions.new_id()
        endpoint, slot, delivery = "", -1, message.delivery
        if delivery == PUSH:
            endpoint = self._port.open_delivery(id_, peer, owner)
            delivery = PUSH if endpoint else CONTROL
        elif delivery == MAPPED:
            slot = self._port.open_wake(id_)
        credit, failing = (message.credit_bytes, message.credit_records), self._agenda.failing
        outlet = Outlet(id_, self._config.chunk_bytes, *credit, failing)
        session = Session(id_, peer, topic, outlet, self._agenda, self._sessions.readers, delivery=delivery)
        session.owner = owner
        session.group, session.member, session.start = message.group, message.member, message.start
        lowest, highest = self._config.session_timeout_min_s, self._config.session_timeout_max_s
        session.timeout_s = min(max(message.session_timeout_ms / 1000, lowest), highest)
        session.seen_s = now.monotonic_s
        session.joining = Joined(message.request, id_, endpoint, slot, [])
        self._sessions.add(session)
        return session

    def _join_group(self, topic: Topic, session: Session) -> None:
        membership = self._sessions.memberships.of(topic).get(session.group)
        if membership is None:
            membership = Membership(session.group, topic.readable, self._agenda, self._config.handover_s)
            self._sessions.memberships.add(topic, session.group, membership)
        session.membership = membership
        membership.join(session)


def _released(membership: Membership, session: Session, partitions: list[int]) -> Work:
    membership.release(session, partitions)
    yield from ()


class Seek:
    """Waits for the new epoch of a seek."""

    def __init__(self, port: Port, peer: Peer, session: Session, partition: Partition, message: SeekTo) -> None:
        self.epoch = 0
        self._port = port
        self._peer = peer
        self._session = session
        self._partition = partition
        self._message = message

    def committed(self, place: Place) -> None:
        session, message = self._session, self._message
        membership = session.membership
        if membership is None or not membership.moved(session, message.partition, self.epoch):
            self.failed(Fenced(f"partition {message.partition} went to another member while seeking"))
            return
        session.move(self._partition, self.epoch, message.offset, paused=message.paused)
        session.answer(self._peer, Done(message.request))

    def failed(self, error: Error) -> None:
        self._port.reply(self._peer, failure(self._message.request, error))
