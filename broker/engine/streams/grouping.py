"""Groups as requests: commit cursors, and list, reset, delete groups.

Contract: a commit moves all its cursors or, if refused, none. If it loses its right between two portions it is
refused, and the cursors of the earlier portions have moved. Lag is exact and never missing. Requests that need an idle
group are refused while it has members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....transport.messages import (
    AskCursors,
    Commit,
    Cursors,
    DeleteGroup,
    Done,
    Group,
    GroupPartition,
    Groups,
    ListGroups,
    Position,
    ResetGroup,
)  # fmt: skip
from ...errors import GroupActive, InvalidRequest, UnknownGroup, UnknownSession
from ..logs.partition import FIND_STEPS, check_time
from ..logs.topic_page import TopicPage
from ..logs.topics import Topic, Topics
from ..ports import Handlers, Now, Payload, Peer, Port, Work
from ..queues.topic_queues import check_no_queue
from ..tables import effects as fx
from ..tables.groups import NOTHING
from ..tables.names import check_name
from ..turns.portions import spread
from ..turns.replies import Gather
from .sessions import Session, Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from ..guard import Guard, Sees
    from ..logs.partition import Partition
    from ..turns.roster import Roster
    from .coordinator import Membership


LOOKS = 16
"""Partitions that are looked at in one step."""

GATHERED = 64
"""Positions that are read in one step, before any partition is looked at."""


NOTE_BYTES_MAX = 4096
"""Of the note beside a cursor."""

CURSORS_BYTES = 1 << 20
"""Notes of one answer, about."""


class Grouping:
    """Handlers of everything that concerns one group."""

    def __init__(self, topics: Topics, sessions: Sessions, port: Port, guard: Guard) -> None:
        self.handlers: Handlers = {
            Commit: self.commit, ListGroups: self.list, ResetGroup: self.reset, DeleteGroup: self.delete,
            AskCursors: self.cursors,
        }  # fmt: skip
        self._topics = topics
        self._sessions = sessions
        self._memberships = sessions.memberships
        self._port = port
        self._guard = guard

    def commit(self, peer: Peer, message: Commit, payload: Payload, now: Now) -> Work:
        """Move cursors. Raises Fenced, OutOfBounds, GroupActive."""
        topic = self._topics.get(message.topic)
        return self._commit(peer, message, topic, self._session(peer, message, topic, now) if message.session else None)

    def _commit(self, peer: Peer, message: Commit, topic: Topic, session: Session | None) -> Work:
        group = message.group
        wanted: dict[int, int] = {}
        notes: dict[int, str] = {}
        if session is None:
            check_name("group", group)
            check_idle(self._memberships, topic, group)
            check_no_queue(topic, group)
            for looks, position in enumerate(message.positions, 1):
                wanted[position.partition], notes[position.partition] = position.offset, _note(position)
                if looks % GATHERED == 0:
                    yield
            yield from self._move_idle(peer, message.request, topic, group, wanted, notes)
            return
        epochs = dict[int, int]()
        for looks, position in enumerate(message.positions, 1):
            topic.partition(position.partition).proposed.groups.check(group, session.member, position.epoch)
            wanted[position.partition], epochs[position.partition] = position.offset, position.epoch
            notes[position.partition] = _note(position)
            if looks % LOOKS == 0:
                yield

        def check(partition: Partition) -> None:
            partition.proposed.groups.check(group, session.member, epochs[partition.number])

        yield from self._move(peer, message.request, topic, group, wanted, check, notes)

    def cursors(self, peer: Peer, message: AskCursors, payload: Payload, now: Now) -> Work:
        """Cursors with their notes, in answers of bounded size. Raises UnknownTopic, InvalidRequest."""
        check_name("group", message.group)
        topic, found, size = self._topics.get(message.topic), list[tuple[int, int, str]](), 0
        following = [partition for partition in topic.readable if partition.number >= message.partition]
        for looks, partition in enumerate(following, 1):
            state = partition.group(message.group)
            if size > CURSORS_BYTES:
                self._port.reply(peer, Cursors(message.request, found, partition.number))
                return
            if state.cursor != NOTHING:
                found.append((partition.number, state.cursor, state.note))
                size += len(state.note.encode())
            if looks % LOOKS == 0:
                yield
        self._port.reply(peer, Cursors(message.request, found))

    def list(self, peer: Peer, message: ListGroups, payload: Payload, now: Now) -> Work:
        """Every group with its members, cursors and lag."""
        return self._list(peer, message, now, self._guard.viewer())

    def _list(self, peer: Peer, message: ListGroups, now: Now, sees: Sees) -> Work:
        found, page = list[Group](), TopicPage(self._topics, message.after)
        for topic in [self._topics.get(message.topic)] if message.topic else page:
            names = yield from group_names(self._memberships, topic)
            for name in filter(lambda name, topic=topic: sees(f"group:{topic.name}/{name}"), names):
                found.append((yield from describe(self._memberships, topic, name, now)))
                page.take(len(topic.partitions))
            yield
        self._port.reply(peer, Groups(message.request, found, page.next))

    def reset(self, peer: Peer, message: ResetGroup, payload: Payload, now: Now) -> Work:
        """Move all cursors of an idle group. Raises GroupActive, UnknownGroup, OutOfBounds."""
        topic = yield from self._known(message.topic, message.group)
        check_time("time_us", message.time_us)
        wanted = dict(message.positions)
        for looks, (number, offset) in enumerate(message.positions, 1):
            topic.partition(number).check_offset(offset)
            if looks % LOOKS == 0:
                yield
        if not wanted:
            for partition in list(topic.readable):
                wanted[partition.number] = partition.find(message.time_us)
                yield FIND_STEPS
                self._topics.get(message.topic)
        check_idle(self._memberships, topic, message.group)
        yield from self._move_idle(peer, message.request, topic, message.group, wanted, {})

    def delete(self, peer: Peer, message: DeleteGroup, payload: Payload, now: Now) -> Work:
        """Delete an idle group. Raises GroupActive, UnknownGroup."""
        topic = yield from self._known(message.topic, message.group)
        known = [p for p in topic.readable if message.group in p.proposed.groups.by_name]
        for partition in known:
            partition.check_writable()
        gather = Gather.reply(self._port, peer, message.request, Done(message.request))

        def delete(partition: Partition) -> None:
            check_idle(self._memberships, topic, message.group)
            partition.delete_group(message.group, gather.one())

        yield from spread(known, gather, delete)

    def _move_idle(
        self, peer: Peer, request: int, topic: Topic, group: str, wanted: dict[int, int], notes: Mapping[int, str]
    ) -> Work:
        def check(partition: Partition) -> None:
            check_idle(self._memberships, topic, group)

        return self._move(peer, request, topic, group, wanted, check, notes)

    def _move(
        self,
        peer: Peer,
        request: int,
        topic: Topic,
        group: str,
        wanted: dict[int, int],
        check: Callable[[Partition], None],
        notes: Mapping[int, str],
    ) -> Work:
        """Move cursors. `check` raises when one may not be moved any more: members come and go between two portions."""
        targets: list[tuple[Partition, int]] = [(topic.partition(number), to) for number, to in wanted.items()]
        for partition, offset in targets:
            partition.check_cursor(offset)
        gather = Gather.reply(self._port, peer, request, Done(request))

        def move(target: tuple[Partition, int]) -> None:
            check(target[0])
            target[0].move_cursor(group, target[1], gather.one(), notes.get(target[0].number, ""))

        yield from spread(targets, gather, move)

    def _session(self, peer: Peer, message: Commit, topic: Topic, now: Now) -> Session:
        session = self._sessions.get(message.session, peer, now)
        if session.topic is not topic or session.group != message.group or not session.group:
            raise UnknownSession(f"session {session.id:#x} is not a member of group {message.group!r} on {topic.name}")
        return session

    def _known(self, topic_id: bytes, group: str) -> Generator[int | None, None, Topic]:
        topic = self._topics.get(topic_id)
        names = yield from group_names(self._memberships, topic)
        if group not in names:
            raise UnknownGroup(f"topic {topic.name} has no group {group!r}: list groups to see which it has")
        check_idle(self._memberships, topic, group)
        return topic


def _note(position: Position) -> str:
    """The note for a cursor. Raises InvalidRequest."""
    size = len(position.note.encode()) if position.note else 0
    if size > NOTE_BYTES_MAX:
        raise InvalidRequest(f"a note of {size} bytes is over {NOTE_BYTES_MAX}: keep what is large elsewhere")
    return position.note


def check_idle(memberships: Roster[Topic, str, Membership], topic: Topic, group: str) -> None:
    """Raise GroupActive while a group has members."""
    membership = memberships.of(topic).get(group)
    if membership is not None and membership.members:
        members = ", ".join(sorted(membership.members))
        raise GroupActive(f"group {group} of topic {topic.name} has members ({members}): stop them first")


def group_names(memberships: Roster[Topic, str, Membership], topic: Topic) -> Generator[int | None, None, list[str]]:
    """All groups of a topic, with a cursor, an owner or a member, sorted."""
    names = set(memberships.of(topic))
    for looks, partition in enumerate(list(topic.readable), 1):
        names.update(partition.committed.groups.by_name)
        if looks % LOOKS == 0:
            yield
    return sorted(names)


def begin_in_new(topic: Topic, partitions: list[Partition]) -> Work:
    """A topic has grown: groups that have begun read new partitions from their first record, whatever `start` they were
    made with. All of it came after they had begun, also what comes while they have no member."""
    known: dict[str, Partition] = {}
    for looks, partition in enumerate(list(topic.readable), 1):
        for name in partition.committed.groups.by_name:
            known.setdefault(name, partition)
        if looks % LOOKS == 0:
            yield
    for partition in partitions:
        for looks, (name, other) in enumerate(known.items(), 1):
            is_there = name in other.proposed.groups.by_name  # it may have been deleted meanwhile
            if is_there and name not in partition.proposed.groups.by_name:
                partition.propose(fx.OwnerSet(name, "", 0, 0))
            if looks % LOOKS == 0:
                yield


def describe(
    memberships: Roster[Topic, str, Membership], topic: Topic, name: str, now: Now
) -> Generator[int | None, None, Group]:
    """One group as it stands."""
    membership = memberships.of(topic).get(name)
    members: list[tuple[str, int]] = []
    readers: dict[int, str] = {}
    if membership is not None:
        for session in membership.members.values():
            assert isinstance(session, Session)
            members.append((session.member, round(max(0.0, now.monotonic_s - session.seen_s) * 1000)))
        readers = {number: claim.session.member for number, claim in membership.claims.items()}
    partitions: list[GroupPartition] = []
    for partition in list(topic.readable):
        state = partition.group(name)
        lag = state.lag(partition.first, partition.end)
        reader = readers.get(partition.number, "")
        oldest_us = partition.appended_us(state.resume(partition.first, partition.end)) if lag else -1
        partitions.append(
            GroupPartition(
                partition.number, state.cursor, partition.end, lag, reader, state.epoch, partition.first, oldest_us
            )
        )
        if len(partitions) % LOOKS == 0:
            yield
    return Group(topic.id, topic.name, name, sorted(members), partitions, topic.closed)
