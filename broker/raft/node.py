"""One node of a Raft group: the way into the core. Pure.

Idea: the surroundings feed messages and ticks in, and carry out what `ready` says. Nothing here waits, and nothing is
thread-safe: one thread drives a node.

A turn of the surroundings, when a write is done before the turn ends (`asynchronous=False`):

    for message in received: node.step(message)
    node.tick()                                 # when one is due
    if place := node.next_place(size):          # a leader, and it may
        node.propose(stamped(place))            # nothing of the core is called in between
    while node.has_ready():
        ready = node.ready()
        send(ready.messages)                    # now, unless ready.hold
        write(ready.snapshot, ready.entries, ready.promise)
        sync()                                  # when ready.must_sync
        send(ready.responses)                   # and ready.messages, when held
        for entry in ready.committed:           # a change of the configuration is applied by node.apply_change
            apply(entry)
        node.advance()

With `asynchronous=True` there is no `advance`, and several Readys may be under way. When the write of one is synced,
its `responses` leave, those to this node through `settle`. When its `committed` are applied, its `applied` goes through
`settle`. Writes are confirmed in their order, and so is applying; entries are handed out for applying only when their
write was confirmed.

What the surroundings owe the core: a `Broken` that it raises closes the node; ids of members are never used again;
a snapshot that a node was sent is reported to the leader in any case; waiting reads and proposals fail when the
standing changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import changes, core, election, proposals, reads, replication, snapshots, transfer
from .errors import Broken
from .membership import Configuration
from .messages import NONE, Change, ConfState, Data, Kind, Message, Promise
from .progress import FollowerPace
from .proposals import EntryPlace
from .ready import Ready, ReadyQueue
from .state import RaftOptions, RaftState, Role
from .storage import Storage

LOCAL = frozenset((Kind.STORED, Kind.APPLIED, Kind.SHIP, Kind.PIECE))
FROM_MEMBERS = core.ANSWERS | {Kind.READ_ACK}


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as its leader sees it."""

    match: int  # its log agrees up to this entry
    next: int
    pace: FollowerPace
    learner: bool
    is_heard: bool  # of late: since the last check of the quorum but one


@dataclass(frozen=True, slots=True)
class RaftStatus:
    """A node at this moment."""

    node: int
    role: Role
    term: int
    vote: int
    leader: int
    first: int
    last: int
    committed: int
    applied: int
    transferee: int
    configuration: Configuration
    members: dict[int, MemberStatus]  # empty unless it leads


class RaftNode:
    """One member of one group."""

    def __init__(self, options: RaftOptions, storage: Storage) -> None:
        """Open a node over its log, as a follower.

        `storage.initial_state()` has the promise, with the commit that is known and a term that is no lower than that
        of the last entry (`opening_promise`). Raises `Broken` when its marks contradict the log.
        """
        self._state = RaftState(options, storage)
        self._handout = ReadyQueue(self._state)

    # --- what comes in

    def step(self, message: Message) -> None:
        """Take a message of another node. Kinds that never leave a node, and answers of strangers, are dropped."""
        state = self._state
        if message.kind in LOCAL or message.sender in (NONE, state.node):
            return
        if message.kind in FROM_MEMBERS and message.sender not in state.peers:
            return
        core.step(state, message)

    def tick(self) -> None:
        """Time passed: one tick."""
        core.tick(self._state)

    def settle(self, message: Message) -> None:
        """Asynchronous: what a Ready's `responses` or `applied` says to this node itself is done."""
        if message.kind is Kind.STORED:
            core.stored(self._state, message)
        elif message.kind is Kind.APPLIED:
            core.applied(self._state, message)
        else:
            core.step(self._state, message)

    # --- what is to be done

    def has_ready(self) -> bool:
        """There is something to do."""
        return self._handout.waits()

    def ready(self) -> Ready:
        """What is to be done; each thing is handed out once."""
        return self._handout.take()

    def advance(self) -> None:
        """All of the last Ready is done: written, synced and applied. Not when asynchronous."""
        if self._state.options.asynchronous:
            raise Broken("an asynchronous node is told by `settle` what is done, not by `advance`")
        for message in self._handout.settled():
            self.settle(message)

    # --- a leader's log

    def next_place(self, size: int = 0) -> EntryPlace | None:
        """Index and term of the next entry, if a proposal of `size` bytes would be accepted now; else None."""
        return proposals.next_place(self._state, size)

    def propose(self, *datas: Data) -> EntryPlace | None:
        """Append one entry for each of `datas`; the place of the first, or None when nothing was appended."""
        return proposals.propose(self._state, list(datas))

    def refusal(self, change: Change) -> str:
        """Why this node may not propose a change of the configuration now; empty when it may."""
        return changes.refusal(self._state, change)

    def propose_change(self, change: Change, data: Data) -> EntryPlace | None:
        """Append a change of the configuration as an entry with this data; its place, or None when it was refused."""
        return None if changes.refusal(self._state, change) else changes.propose(self._state, data)

    def apply_change(self, change: Change, index: int) -> ConfState:
        """The entry at `index` is a change that is applied now. One whose data is empty is `Change()`: it ends a joint
        configuration. The configuration from here on, for the checkpoint."""
        return changes.apply(self._state, change, index)

    # --- reads and the lead

    def read(self, context: bytes) -> bool:
        """Ask for an index that a read which arrived before now must have applied. A later Ready answers with
        `context`, or never, when the lead is lost. All reads of a turn share one round. False without a leader."""
        return reads.ask(self._state, context)

    def campaign(self) -> bool:
        """Stand for election now; False when this node leads, is no voter, or has a change to apply first."""
        return election.begin(self._state)

    def renew(self, above: int) -> None:
        """As leader, begin a new term above `above`, in which no answer of an earlier one counts. Its lead is another
        one: what was proposed is committed or lost as when it had passed to another node."""
        election.renew(self._state, above)

    def transfer(self, node: int) -> bool:
        """Hand the lead over to a voter; False when this node does not lead or the other is no voter."""
        return transfer.begin(self._state, node)

    def forget_leader(self) -> None:
        """The leader is known to be gone: let this follower vote for another at once."""
        core.forget_leader(self._state)

    # --- reports about peers

    def report_unreachable(self, node: int) -> None:
        """Messages to a follower were lost."""
        replication.unreachable(self._state, node)

    def report_snapshot(self, node: int, *, installed: bool) -> None:
        """What became of the snapshot sent to a follower. Owed for every one, also after a time without word."""
        snapshots.report(self._state, node, installed=installed)

    # --- looking at it

    @property
    def role(self) -> Role:
        """What this node is."""
        return self._state.role

    @property
    def term(self) -> int:
        """Its term."""
        return self._state.term

    @property
    def leader(self) -> int:
        """The leader it knows; 0 without one."""
        return self._state.leader

    @property
    def committed(self) -> int:
        """The last entry it knows to be committed."""
        return self._state.log.committed

    def has_unapplied_change(self, last: int) -> bool:
        """A change of the configuration stands in the log up to entry `last` that is not applied."""
        return self._state.log.has_unapplied_change(last)

    @property
    def is_settled(self) -> bool:
        """Something of its term is known to be committed: the leader of this term serves, or did."""
        log = self._state.log
        return log.has(log.committed, self._state.term)

    def spares(self, node: int) -> bool:
        """The other members have a quorum without one of them, as far as a leader has heard of late."""
        return election.spares(self._state, node)

    def status(self) -> RaftStatus:
        """Everything that is worth showing."""
        state = self._state
        members = {
            node: MemberStatus(peer.match, peer.next, peer.pace, peer.learner, election.is_heard(state, node))
            for node, peer in (state.peers.items() if state.role is Role.LEADER else ())
        }
        return RaftStatus(
            node=state.node,
            role=state.role,
            term=state.term,
            vote=state.vote,
            leader=state.leader,
            first=state.log.first(),
            last=state.log.last(),
            committed=state.log.committed,
            applied=state.log.applied,
            transferee=state.transferee,
            configuration=state.configuration,
            members=members,
        )


def opening_promise(kept: Promise, last_term: int, known_commit: int) -> Promise:
    """The promise that a node opens with: its term is no lower than that of its last entry, and a term that is raised
    so has no vote; the commit is the highest that is known, of the promise or of a checkpoint."""
    commit = max(kept.commit, known_commit)
    if last_term > kept.term:
        return Promise(last_term, NONE, commit)
    return Promise(kept.term, kept.vote, commit)
