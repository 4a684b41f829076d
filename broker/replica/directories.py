"""Which data directory each member has: a table that entries of the order hold, so that a wiped disk is no member.

Idea: a node that lost its disk and begins anew under its old number has forgotten what it acknowledged. Together with
a member that lacks the same entries it would be a majority without them. So members know each other's directories by
random ids. The first leader that has met every member commits the table of these ids, and once every member has that
entry on its disk it commits that too. Only then does the shard serve for the first time.

A directory is replaced by one entry, which removes the member and names the new directory. Members that have applied
it let that directory in and no longer count its vote. The leader adds it as a learner, and as a voter once it has
nearly everything.

Contract: a member notes a first table durably before it acknowledges the entry, any later one when it is applied.
Changes travel as Raft's changes of the configuration, in `context`. Must not know links or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from ..raft.membership import changed, restored
from ..raft.messages import Change, ChangeStep, ConfState, EntryKind, Operation
from ..raft.progress import FollowerPace
from ..raft.state import Role

if TYPE_CHECKING:
    from ..raft.messages import Entry
    from ..raft.node import RaftStatus


VOTES_BEHIND = 100
"""A learner that lacks no more of the committed entries than this becomes a voter. Voters have the ones behind these on
their way, too: on a slow disk and under load, more than this at any time."""


class DirectoryTable(Struct, array_like=True, frozen=True):
    """The id of each member's directory, by number. `met`: every member has had the table on its disk."""

    uuids: dict[int, bytes] = {}
    met: bool = False


class Members(NamedTuple):
    """The members at one entry: the configuration as Raft has it, and the table."""

    configuration: ConfState
    directories: DirectoryTable

    def after(self, change: Change) -> Members:
        """The members once a change is applied."""
        configuration = changed(restored(self.configuration), change).stored()
        return Members(configuration, table_of(change) if change.context else self.directories)


class KnownDirectories(Protocol):
    """What this node knows of the directories of all members, on its disk."""

    def uuid_of(self, node: int) -> bytes:
        """The id of a member's directory; b"" as long as it is unknown."""
        ...

    def note(self, uuids: Mapping[int, bytes]) -> None:
        """From now on these are the directories of the members. Durable on return. Raises StorageFull, OSError."""
        ...


class Directories:
    """The table of one replica."""

    def __init__(self, known: KnownDirectories, members: Members, entry: int) -> None:
        """`members`: of what is applied; a peer that has `entry` has the table too. Raises StorageFull, OSError."""
        self.members = members
        self._known = known
        self._entry = entry
        self._note(self.table)

    @property
    def table(self) -> DirectoryTable:
        """As of what is applied."""
        return self.members.directories

    @property
    def is_settled(self) -> bool:
        """Whether the shard serves, and every directory of the table is that of a voter."""
        return self.table.met and self.table.uuids.keys() <= set(self.members.configuration.voters)

    def _note(self, table: DirectoryTable) -> None:
        if table.uuids:
            self._known.note(table.uuids)

    def appended(self, entry: Entry) -> None:
        """An entry is being written, and is not acknowledged yet. Raises StorageFull, OSError."""
        if entry.kind is EntryKind.CHANGE and not self.table.met:
            self._note(table_of(change_of(entry)))

    def applied(self, change: Change, entry: int) -> None:
        """A change of the members is applied. Raises StorageFull, OSError."""
        self.members = self.members.after(change)
        if change.context:
            self._entry = entry
            self._note(self.table)

    def missing(self, status: RaftStatus) -> list[int]:
        """The members that a leader waits for before the shard serves for the first time."""
        if self.table.met:
            return []
        if not self.table.uuids:
            return [node for node in status.configuration.members() if not self._known.uuid_of(node)]
        return [node for node, peer in status.members.items() if peer.match < self._entry]

    def next_change(self, status: RaftStatus) -> Change | None:
        """What a leader is to propose: the table once it has met all members, then that all of them have it; later
        what makes a replaced member a learner, and a learner a voter."""
        if self.is_settled or status.role is not Role.LEADER or self.missing(status):
            return None
        if self.table.met:
            return self._joining(status)
        found = self.table.uuids or {node: self._known.uuid_of(node) for node in status.configuration.members()}
        table = DirectoryTable(found, met=bool(self.table.uuids))
        return _bringing(table, ChangeStep(Operation.VOTER, status.node))  # a step that changes nothing

    def _joining(self, status: RaftStatus) -> Change | None:
        for node in self.table.uuids:
            peer = status.members.get(node)
            if peer is None:
                return Change((ChangeStep(Operation.LEARNER, node),))
            lacks = status.committed - peer.match
            if peer.learner and peer.pace is FollowerPace.REPLICATE and lacks <= VOTES_BEHIND:
                return Change((ChangeStep(Operation.VOTER, node),))
        return None

    def entry_of(self, node: int, applied: int) -> int:
        """The entry that this node, `node`, greets peers with: up to which it has applied; 0 where the table has not
        the directory that it runs on, so that none takes its word for it."""
        return applied if self.table.uuids.get(node) == self._known.uuid_of(node) else 0

    def replacement(self, status: RaftStatus, node: int, uuid: bytes) -> Change:
        """What makes another directory that of a member, which is removed until it has joined with it."""
        table = DirectoryTable({**self.table.uuids, node: uuid}, met=True)
        is_member = node in status.configuration.members()
        step = ChangeStep(Operation.REMOVE, node) if is_member else ChangeStep(Operation.VOTER, status.node)
        return _bringing(table, step)


def _bringing(table: DirectoryTable, step: ChangeStep) -> Change:
    return Change((step,), context=msgspec.msgpack.encode(table))


def change_of(entry: Entry) -> Change:
    """The change that an entry of the kind CHANGE holds; of entry 1, which holds the first members, none."""
    if entry.index == 1 or not len(entry.data):
        return Change()
    return msgspec.msgpack.decode(entry.data, type=Change)


def table_of(change: Change) -> DirectoryTable:
    """The table that a change brings; an empty one if it brings none."""
    return msgspec.msgpack.decode(change.context, type=DirectoryTable) if change.context else DirectoryTable()
