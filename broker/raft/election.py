"""How a node becomes the leader. Pure.

Idea: a node that hears of no leader for its drawn timeout asks the voters for their vote in a new term. With pre-vote
it first asks whether it would get it, so that a node that was cut off does not end a working lead. A voter grants one
vote in a term, only to a log that has all that its own may have committed, and none while it hears from a leader.
"""

from __future__ import annotations

from . import proposals, replication
from .messages import Kind, Message
from .quorum import Result, joint_result
from .state import RaftState, Role


def begin(state: RaftState, *, handed_over: bool = False) -> bool:
    """Campaign, unless this node leads, may not lead, or has a change of the configuration to apply first."""
    if state.role is Role.LEADER or not state.promotable() or state.log.has_unapplied_change(state.log.committed):
        return False
    if state.options.pre_vote and not handed_over:
        _ask_before(state)
    else:
        _ask(state, force=handed_over)
    return True


def renew(state: RaftState, above: int) -> None:
    """As leader, stand again at once, in a term above `above` and the own one: nothing that was acknowledged in terms
    before counts any more. Other voters need not wait, as when a lead is handed over."""
    if state.role is Role.LEADER and state.promotable() and not state.log.has_unapplied_change(state.log.committed):
        state.term = max(state.term, above)
        _ask(state, force=True)


def _ask_before(state: RaftState) -> None:
    state.role = Role.PRE_CANDIDATE
    state.leader = 0
    state.votes = {}
    _request(state, Kind.PRE_VOTE, state.term + 1, force=False)


def _ask(state: RaftState, *, force: bool) -> None:
    state.enter(state.term + 1)
    state.role = Role.CANDIDATE
    state.vote = state.node
    _request(state, Kind.VOTE, state.term, force=force)


def _request(state: RaftState, kind: Kind, term: int, *, force: bool) -> None:
    """Ask all voters. The own answer is a message too: it counts when the vote is written."""
    index, last_term = state.log.last(), state.log.last_term()
    for node in state.configuration.all_voters():
        if node == state.node:
            state.send(Message(answer_to(kind), node, term=term))
        else:
            state.send(Message(kind, node, term=term, index=index, log_term=last_term, force=force))


def answer_to(kind: Kind) -> Kind:
    """The kind that answers a request for a vote."""
    return Kind.VOTE_ACK if kind is Kind.VOTE else Kind.PRE_VOTE_ACK


def leased(state: RaftState) -> bool:
    """A leader was heard of so recently that a vote would disturb its work."""
    options = state.options
    return options.check_quorum and state.leader != 0 and state.elapsed < options.election_ticks


def handle(state: RaftState, message: Message) -> None:
    """A candidate asks for a vote, in this term or, for a pre-vote, perhaps a later one."""
    free = state.vote == message.sender or (state.vote == 0 and state.leader == 0)
    free = free or (message.kind is Kind.PRE_VOTE and message.term > state.term)
    if free and state.log.up_to_date(message.index, message.log_term):
        # A pre-vote is answered in the term it asks about: in an older one the candidate would ignore the answer.
        state.send(Message(answer_to(message.kind), message.sender, term=message.term))
        if message.kind is Kind.VOTE:
            state.elapsed = 0
            state.vote = message.sender
    else:
        refuse(state, message)


def refuse(state: RaftState, message: Message) -> None:
    """No vote, in the term of this node."""
    state.send(Message(answer_to(message.kind), message.sender, term=state.term, reject=True))


def answered(state: RaftState, message: Message) -> None:
    """A voter answered; the first answer of each counts."""
    state.votes.setdefault(message.sender, not message.reject)
    result = joint_result(state.configuration.voters, state.configuration.outgoing, state.votes)
    if result is Result.WON:
        if state.role is Role.PRE_CANDIDATE:
            _ask(state, force=False)
        else:
            _lead(state)
    elif result is Result.LOST:
        state.follow(state.term, 0)


def _lead(state: RaftState) -> None:
    """Lead, beginning with an entry of the own term: it commits what earlier terms left."""
    state.enter(state.term)
    state.role = Role.LEADER
    state.leader = state.node
    own = state.peers[state.node]
    own.replicate()
    own.active = True
    state.pending_change = state.log.last()  # one may be among them; no other before they are applied
    state.own_from = state.log.last() + 1
    proposals.append(state, [b""])
    replication.broadcast(state)


def hears_quorum(state: RaftState) -> bool:
    """A quorum has been heard of since the last time this was asked."""
    active = {node: peer.active for node, peer in state.peers.items()}
    heard = joint_result(state.configuration.voters, state.configuration.outgoing, active)
    for node, peer in state.peers.items():
        peer.active = node == state.node
    state.heard = active
    return heard is Result.WON


def spares(state: RaftState, node: int) -> bool:
    """The others have a quorum without a node, by what this leader heard of them of late."""
    heard = {each: is_heard(state, each) for each in state.peers} | {node: False}
    return joint_result(state.configuration.voters, state.configuration.outgoing, heard) is Result.WON


def is_heard(state: RaftState, node: int) -> bool:
    """This leader heard of a member in this period or the one before: the count of a quorum begins a new period."""
    return state.peers[node].active or state.heard.get(node, False)
