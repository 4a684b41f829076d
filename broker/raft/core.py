"""What a node does with a message, a tick, and the word that something is written. Pure.

Idea: first the term decides. A higher one makes a follower of any node, a lower one is an old message. Then the role
decides which part takes the message. Whatever does not fit is dropped: Raft lives with loss.
"""

from __future__ import annotations

from collections.abc import Callable

from . import changes, election, heartbeats, proposals, reads, replication, snapshots, transfer
from .messages import NONE, Kind, Message, total_bytes
from .state import RaftState, Role

FROM_LEADER = frozenset((Kind.APPEND, Kind.HEARTBEAT, Kind.SNAPSHOT))
VOTING = frozenset((Kind.PRE_VOTE, Kind.VOTE))
ANSWERS = frozenset((Kind.APPEND_ACK, Kind.HEARTBEAT_ACK, Kind.PRE_VOTE_ACK, Kind.VOTE_ACK))


def step(state: RaftState, message: Message) -> None:
    """Take one message."""
    if message.term > state.term:
        if not _follow_higher(state, message):
            return
    elif message.term < state.term:
        _answer_lower(state, message)
        return
    if message.kind in VOTING:
        election.handle(state, message)
    else:
        _BY_ROLE[state.role](state, message)


def _follow_higher(state: RaftState, message: Message) -> bool:
    """A message of a higher term; False when it is to be dropped."""
    if message.kind in VOTING and not message.force and election.leased(state):
        return False
    if message.kind is Kind.PRE_VOTE or (message.kind is Kind.PRE_VOTE_ACK and not message.reject):
        return True  # of a term that has not begun
    state.follow(message.term, message.sender if message.kind in FROM_LEADER else NONE)
    return True


def _answer_lower(state: RaftState, message: Message) -> None:
    """A message of a lower term. Where terms do not always grow by themselves (a vote is not granted beside a leader),
    a leader that was left behind, or a candidate, would never hear of the newer one without an answer."""
    if message.kind in (Kind.APPEND, Kind.HEARTBEAT):
        if state.options.check_quorum or state.options.pre_vote:
            state.send(Message(Kind.APPEND_ACK, message.sender))
    elif message.kind is Kind.PRE_VOTE:
        election.refuse(state, message)


def _as_leader(state: RaftState, message: Message) -> None:
    if message.kind is Kind.READ:
        reads.asked(state, message)
    elif message.sender not in state.peers:
        return
    elif message.kind is Kind.APPEND_ACK:
        if replication.acknowledged(state, message):
            reads.released(state)
        if not message.reject and message.sender == state.transferee:
            transfer.finish(state, message.sender)
    elif message.kind is Kind.HEARTBEAT_ACK:
        heartbeats.acknowledged(state, message)
        reads.acknowledged(state, message)


def _as_follower(state: RaftState, message: Message) -> None:
    if message.kind in FROM_LEADER:
        state.elapsed = 0
        state.leader = message.sender
        _HANDLERS[message.kind](state, message)
    elif message.kind is Kind.CAMPAIGN_NOW:
        election.begin(state, handed_over=True)
    elif message.kind is Kind.READ_ACK:
        reads.answered(state, message)


def _as_candidate(state: RaftState, message: Message) -> None:
    if message.kind in FROM_LEADER:
        state.follow(message.term, message.sender)
        _HANDLERS[message.kind](state, message)
    elif message.kind is (Kind.PRE_VOTE_ACK if state.role is Role.PRE_CANDIDATE else Kind.VOTE_ACK):
        election.answered(state, message)


_HANDLERS: dict[Kind, Callable[[RaftState, Message], None]] = {
    Kind.APPEND: replication.handle,
    Kind.HEARTBEAT: heartbeats.handle,
    Kind.SNAPSHOT: snapshots.handle,
}
_BY_ROLE: tuple[Callable[[RaftState, Message], None], ...] = (_as_follower, _as_candidate, _as_candidate, _as_leader)


def tick(state: RaftState) -> None:
    """Time passed."""
    state.elapsed += 1
    if state.role is Role.LEADER:
        _tick_leader(state)
    elif state.elapsed >= state.timeout:
        state.elapsed = 0
        if not election.begin(state):
            forget_leader(state)  # a learner, for example: it stands for nothing, and hears of no leader either


def _tick_leader(state: RaftState) -> None:
    state.heartbeat_elapsed += 1
    if state.elapsed >= state.options.election_ticks:
        state.elapsed = 0
        if state.options.check_quorum and not election.hears_quorum(state):
            state.follow(state.term, NONE)
            return
        transfer.end(state)
        changes.leave_by_itself(state)  # a transfer may have been in its way
    if state.heartbeat_elapsed >= state.options.heartbeat_ticks:
        state.heartbeat_elapsed = 0
        heartbeats.broadcast(state)


def stored(state: RaftState, message: Message) -> None:
    """A write is done. One of an older term says nothing of the entries here: a newer write may replace them."""
    if message.index and message.term == state.term:
        state.log.unstable.stored(message.index, message.log_term)
    if message.snapshot is not None:
        snapshots.installed(state, message.snapshot)
        _advance(state, message.snapshot.index, 0)


def applied(state: RaftState, message: Message) -> None:
    """Entries are applied."""
    size = total_bytes(message.entries)
    _advance(state, message.entries[-1].index, size)
    proposals.applied(state, size)


def _advance(state: RaftState, index: int, size: int) -> None:
    state.log.applied_to(index, size)
    changes.leave_by_itself(state)


def forget_leader(state: RaftState) -> None:
    """Behave as if this follower had not heard of a leader, until the next message of one."""
    if state.role is Role.FOLLOWER:
        state.leader = NONE
