"""What a node knows at this moment, and the few steps that every part of Raft takes. Pure.

Idea: one object, and functions over it in the modules above: each of those decides one thing. Messages leave through
`send`, which sorts them: what promises something (a vote, an acknowledged append) waits for the write that keeps the
promise, anything else may go before it.

It must not know how anything is written or sent; time comes as ticks, randomness from `RaftOptions.draw_timeout`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from .errors import Broken, Unfit
from .inflight import Inflight
from .log_view import UNBOUNDED, LogView
from .membership import Configuration, restored
from .messages import NONE, Kind, Message, Promise
from .progress import PeerProgress
from .quorum import jointly_committed
from .read_rounds import ReadRounds, ReadState
from .storage import Storage


class Role(IntEnum):
    """What a node is in its term."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1  # asks whether it would win, before it disturbs others with a new term
    CANDIDATE = 2
    LEADER = 3


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """How one node works. Ticks are the only time it has; bytes are counted by `total_bytes`.

    `draw_timeout` returns the ticks without a leader after which the node campaigns, at least `election_ticks`, drawn
    anew for each term: members that draw the same collide. `applied` is the last entry that was applied before the
    node opened; the configuration in the storage's initial state is of that entry.
    """

    node: int
    draw_timeout: Callable[[], int]
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    applied: int = 0
    pre_vote: bool = True
    check_quorum: bool = True  # a leader that hears of no quorum for `election_ticks` steps down
    step_down_on_removal: bool = True
    asynchronous: bool = False  # writes and applying are confirmed one by one, not by `advance`
    max_append_bytes: int = UNBOUNDED  # of the entries of one append; one entry always fits
    max_inflight: int = 256  # appends on their way to one follower
    max_inflight_bytes: int = UNBOUNDED
    max_uncommitted_bytes: int = UNBOUNDED  # of a leader's proposals; the first always fits
    max_applying_bytes: int = UNBOUNDED  # handed out for applying and not applied

    def __post_init__(self) -> None:
        if self.node <= NONE:
            raise Unfit(f"node {self.node}: an id is above {NONE}")
        if not 0 < self.heartbeat_ticks < self.election_ticks:
            raise Unfit(f"{self.heartbeat_ticks} heartbeat ticks: between 0 and {self.election_ticks} election ticks")


AFTER_WRITE = frozenset((Kind.APPEND_ACK, Kind.VOTE_ACK, Kind.PRE_VOTE_ACK))


class RaftState:
    """One node's view of its group."""

    __slots__ = (
        *("after_write", "configuration", "elapsed", "heard", "heartbeat_elapsed", "last_change", "leader", "log"),
        *(
            "node",
            "own_from",
            "options",
            "outbox",
            "peers",
            "pending_change",
            "read_states",
            "reads",
            "role",
            "term",
            "timeout",
        ),
        *("transferee", "uncommitted_bytes", "vote", "votes"),
    )

    def __init__(self, options: RaftOptions, storage: Storage) -> None:
        promise, members = storage.initial_state()
        self.options = options
        self.node = options.node
        self.log = LogView(storage, promise.commit, options.applied, options.max_applying_bytes)
        self.term = promise.term
        self.vote = promise.vote
        self.role = Role.FOLLOWER
        self.leader = NONE
        self.outbox: list[Message] = []
        self.after_write: list[Message] = []
        self.read_states: list[ReadState] = []
        self.configuration = Configuration()
        self.peers: dict[int, PeerProgress] = {}  # of all members, this one too, in ascending order
        self.last_change = 0  # the entry of the newest change that is applied
        self.configure(restored(members))
        self.follow(self.term, NONE)

    # --- what follows from the rest

    def promise(self) -> Promise:
        """What this node must not forget."""
        return Promise(self.term, self.vote, self.log.committed)

    def member(self) -> bool:
        """This node is part of the configuration it knows."""
        return self.node in self.peers

    def promotable(self) -> bool:
        """It may become a leader: a voter, with all of its state at hand."""
        own = self.peers.get(self.node)
        return own is not None and not own.learner and self.log.unstable.snapshot is None

    def committed_in_term(self) -> bool:
        """Something of this leader's own term is committed, so that its commit is the group's."""
        return self.log.committed >= self.own_from

    def reached(self) -> int:
        """The last entry that a quorum has."""
        peers = self.peers
        return jointly_committed(
            self.configuration.voters, self.configuration.outgoing, lambda voter: peers[voter].match
        )

    # --- steps

    def send(self, message: Message) -> None:
        """Let a message of this node leave, in its term unless it names another."""
        message.sender = self.node
        if message.term == 0:
            message.term = self.term
        if message.kind in AFTER_WRITE:
            self.after_write.append(message)
        elif message.to == self.node:
            raise Broken(f"a {message.kind.name} of node {self.node} to itself")
        else:
            self.outbox.append(message)

    def follow(self, term: int, leader: int) -> None:
        """Become a follower in a term."""
        self.enter(term)
        self.role = Role.FOLLOWER
        self.leader = leader

    def enter(self, term: int) -> None:
        """Begin anew in a term: nothing of an election, a transfer, or a lead goes on."""
        if term != self.term:
            self.term = term
            self.vote = NONE
        self.leader = NONE
        self.elapsed = 0  # ticks since the leader was heard of, or, of a leader, since it counted its quorum
        self.heartbeat_elapsed = 0
        self.timeout = self.options.draw_timeout()
        self.transferee = NONE
        self.votes: dict[int, bool] = {}
        self.heard: dict[int, bool] = {}  # of a leader: who was heard of before the last check of the quorum
        self.pending_change = 0  # the entry of the newest change that may not be applied yet
        self.uncommitted_bytes = 0
        self.own_from = UNBOUNDED  # the first entry of this term, of a leader
        self.reads = ReadRounds()
        last = self.log.last()
        for node, peer in self.peers.items():
            self.peers[node] = self._progress(last + 1, learner=peer.learner)
        if self.member():
            self.peers[self.node].match = last

    def configure(self, configuration: Configuration) -> None:
        """Take over a configuration; members that stay keep their progress."""
        upcoming = max(self.log.last(), 1)
        before, self.configuration = self.peers, configuration
        self.peers = {}
        for node in configuration.members():
            peer = before.get(node) or self._progress(upcoming, learner=False, active=True)
            peer.learner = node in configuration.learners
            self.peers[node] = peer

    def _progress(self, upcoming: int, *, learner: bool, active: bool = False) -> PeerProgress:
        inflight = Inflight(self.options.max_inflight, self.options.max_inflight_bytes)
        return PeerProgress(upcoming, inflight, learner=learner, active=active)
