"""A replica's part in comparing what members add up to: it tells its digests, and closes where a majority has others.

Idea: digests travel with the answers to heartbeats, and what a majority has with heartbeats, to members that differ.
The leader tells itself.

Contract: a member that differs raises Corrupt with the log's path, which notes damage: the log is fetched whole. A
leader that differs does so only where the others can go on without it (held_answers.py). Where no majority agrees, as
with two members left, the leader shows it and nothing is closed. Must not know logs or batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from ...storage.errors import InvalidBatch
from ..raft.messages import Kind, Message
from ..raft.state import Role
from . import digests
from .digests import DigestReport, DigestVotes, OwnDigests
from .entries import asks_digests
from .errors import StateDiffers

if TYPE_CHECKING:
    from ...storage.errors import Corrupt
    from ..engine.logs.history import History
    from ..engine.node import Node
    from ..raft.messages import Entry
    from ..raft.node import RaftNode
    from .places import Places


class Compared(Protocol):
    """A replica, as far as digests concern it."""

    node: Node
    core: RaftNode
    places: Places

    def met(self, damage: Corrupt) -> None:
        """This leader has something else than the others."""
        ...


def parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Entries in parts, each of which ends where digests are asked for."""
    begin = 0
    for at, entry in enumerate(entries, 1):
        if asks_digests(entry.kind, entry.data):
            yield entries[begin:at]
            begin = at
    if begin < len(entries):
        yield entries[begin:]


class Digesting:
    """See the module."""

    def __init__(self, replica: Compared, every: int) -> None:
        """`every`: entries between two that ask for digests."""
        self._replica = replica
        self._own = OwnDigests(replica.places.entry, every, self._state_of)
        self._votes = DigestVotes()
        self.asks, self.moving, self.work = self._own.asks, self._own.moving, self._own.work

    def _state_of(self, log_id: bytes) -> Any:
        history = self._replica.node.history_of(log_id)
        return None if history is None else history.committed

    def applied(self, entry: Entry) -> None:
        """An entry is applied."""
        if asks_digests(entry.kind, entry.data):
            self._own.begin(entry.index, self._replica.places.applied)

    def tick(self) -> None:
        """Time passed: a leader compares its own digests, a member that leads no more forgets those of others."""
        core = self._replica.core
        if core.role is not Role.LEADER:
            self._votes = DigestVotes()
            return
        node, voters = core.status().node, core.status().configuration.voters
        while (own := self._own.take()) is not None:
            self._votes.heard(node, own, voters)
        while (right := self._votes.right(node)) is not None:
            if (damage := self._damage(right)) is not None:
                self._replica.met(damage)

    def leaves(self, message: Message) -> None:
        """A message of the core leaves: heartbeats and their answers take digests along."""
        said = None
        if message.kind is Kind.HEARTBEAT_ACK:
            said = self._own.take()
        elif message.kind is Kind.HEARTBEAT:
            said = self._votes.right(message.to)
        if said is not None:
            message.context = digests.encode(said.entry, said.logs)

    def take(self, message: Message) -> None:
        """A message came, perhaps with digests. Raises Corrupt where a majority has something else than this member."""
        if not message.context or message.kind not in (Kind.HEARTBEAT, Kind.HEARTBEAT_ACK):
            return
        try:
            said = digests.decode(message.context)
        except InvalidBatch:
            return
        core = self._replica.core
        if message.kind is Kind.HEARTBEAT_ACK:
            self._votes.heard(message.sender, said, core.status().configuration.voters)
        elif (damage := self._damage(said)) is not None:
            raise damage

    def _damage(self, right: DigestReport) -> Corrupt | None:
        log_id = self._own.differing(right)
        history = None if log_id is None else self._history(log_id)
        if history is None:
            return None
        path = history.log.path
        return StateDiffers(
            f"what {path} adds up to at entry {right.entry} differs from what a majority of the nodes has", path=path
        )

    def _history(self, log_id: bytes) -> History[Any] | None:
        return self._replica.node.history_of(log_id)

    def undecided(self) -> dict[str, list[int]]:
        """Logs of which members differ without a majority for either, by path, and these members."""
        found = ((self._history(log_id), nodes) for log_id, nodes in self._votes.undecided.items())
        return {history.log.path: nodes for history, nodes in found if history is not None}
