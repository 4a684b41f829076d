"""One Raft node, whose peers are played by the test."""

from __future__ import annotations

from typing import Any

from penstock.broker.raft.messages import Change, ConfState, Entry, EntryKind, Kind, Message, Promise, Snapshot
from penstock.broker.raft.node import RaftNode, RaftStatus
from penstock.broker.raft.ready import Ready
from penstock.broker.raft.state import RaftOptions, RaftState, Role
from support import raft_text
from support.raft_log import MemoryLog

TICKS = 10


def entry(index: int, term: int, data: bytes = b"x") -> Entry:
    return Entry(index, term, data)


def change(text: str) -> Change:
    """A change, as in `v4 r1`."""
    return Change(raft_text.steps_of(text.split()))


class Rig:
    """A node with a log in memory. `terms` are those of the entries it opens with, from index 1 on."""

    def __init__(
        self,
        *terms: int,
        voters: tuple[int, ...] = (1, 2, 3),
        learners: tuple[int, ...] = (),
        node: int = 1,
        promise: Promise | None = None,
        **options: Any,
    ) -> None:
        self.log = MemoryLog()
        self.log.base = Snapshot(0, 0, ConfState(voters, learners))
        self.log.stored = [entry(index, term) for index, term in enumerate(terms, 1)]
        self.log.promise = promise or Promise(max(terms, default=0))
        self.applied: list[Entry] = []
        self.reads: list[Any] = []
        options = {"draw_timeout": lambda: TICKS, "election_ticks": TICKS, **options}
        self.node = RaftNode(RaftOptions(node=node, **options), self.log)

    @property
    def state(self) -> RaftState:
        return self.node._state

    @property
    def status(self) -> RaftStatus:
        return self.node.status()

    def hears(self, kind: Kind, sender: int, **fields: Any) -> list[Message]:
        """A message arrives, in the node's own term unless it says another; what the node then sends."""
        self.hears_only(kind, sender, **fields)
        return self.turn()

    def hears_only(self, kind: Kind, sender: int, **fields: Any) -> None:
        """A message arrives, and nothing is carried out yet."""
        self.node.step(Message(kind, self.state.node, sender, **{"term": self.node.term, **fields}))

    def turn(self) -> list[Message]:
        """Carry out what there is to do, at once; what the node sends."""
        sent: list[Message] = []
        while self.node.has_ready():
            ready = self.node.ready()
            self.write(ready)
            self.apply(ready)
            self.reads += ready.reads
            sent += ready.messages + ready.responses
            self.node.advance()
        return sent

    def write(self, ready: Ready) -> None:
        if ready.snapshot:
            self.log.install(ready.snapshot)
        self.log.append(ready.entries)
        self.log.promise = ready.promise or self.log.promise

    def apply(self, ready: Ready) -> None:
        for one in ready.committed:
            if one.kind is EntryKind.CHANGE:
                self.node.apply_change(raft_text.change_of(one.data), one.index)
        self.applied += ready.committed

    def ticks(self, count: int) -> list[Message]:
        sent: list[Message] = []
        for _ in range(count):
            self.node.tick()
            sent += self.turn()
        return sent

    def lead(self, *, commit: bool = True) -> Rig:
        """Win an election by the votes of all voters; unless `commit` is False, the first entry is committed."""
        self.node.campaign()
        self.turn()
        others = [node for node in self.state.configuration.all_voters() if node != self.state.node]
        for kind, term in ((Kind.PRE_VOTE_ACK, self.node.term + 1), (Kind.VOTE_ACK, self.node.term + 1)):
            for other in others:
                self.hears(kind, other, term=term)
        assert self.node.role is Role.LEADER
        if commit:
            for other in others:
                self.hears(Kind.APPEND_ACK, other, index=self.status.last)
        return self

    def propose_change(self, text: str) -> Any:
        wanted = change(text)
        return self.node.propose_change(wanted, raft_text.change_data(wanted, simple=False))


def of(kind: Kind, messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.kind is kind]


def one_of(kind: Kind, messages: list[Message]) -> Message:
    (found,) = of(kind, messages)
    return found
