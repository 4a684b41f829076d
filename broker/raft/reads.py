"""Reads that see everything committed before they were asked for. Pure.

Idea: the leader notes its commit, proves by a round of heartbeats that it still leads, and answers with that index; the
reader waits until it has applied it. A leader whose own term has no commit yet may lag behind the group, also when it
is the only voter, so such reads wait for that. A leader that is no voter cannot confirm a round itself.

Requests that wait when the lead is lost are dropped: the change of role says so.
"""

from __future__ import annotations

from . import heartbeats
from .messages import NONE, Kind, Message
from .read_rounds import ReadRequest, ReadState
from .state import RaftState, Role


def ask(state: RaftState, context: bytes) -> bool:
    """A read of this node, answered in a later Ready with `context`; False without a leader to ask."""
    if state.role is Role.LEADER:
        _begin(state, ReadRequest(state.node, context))
        return True
    if state.role is Role.FOLLOWER and state.leader != NONE:
        state.send(Message(Kind.READ, state.leader, context=context))
        return True
    return False


def asked(state: RaftState, message: Message) -> None:
    """A follower asks the leader for a read."""
    if state.role is Role.LEADER:
        _begin(state, ReadRequest(message.sender, message.context))


def answered(state: RaftState, message: Message) -> None:
    """The leader answered a read of this follower."""
    state.read_states.append(ReadState(message.index, message.context))


def acknowledged(state: RaftState, message: Message) -> None:
    """A member answered a heartbeat, and with it a round."""
    if message.round:
        state.reads.acknowledge(message.sender, message.round)
        _answer(state)


def released(state: RaftState) -> None:
    """The commit moved: reads that came too early in the term may begin."""
    if state.reads.early and state.committed_in_term():
        early, state.reads.early = state.reads.early, []
        for request in early:
            _begin(state, request)


def _begin(state: RaftState, request: ReadRequest) -> None:
    if not state.committed_in_term():
        state.reads.early.append(request)
        return
    if state.reads.add(request, state.log.committed, state.node):
        heartbeats.broadcast(state)
    _answer(state)


def _answer(state: RaftState) -> None:
    for index, request in state.reads.confirmed(state.configuration.voters, state.configuration.outgoing):
        if request.node == state.node:
            state.read_states.append(ReadState(index, request.context))
        else:
            state.send(Message(Kind.READ_ACK, request.node, index=index, context=request.context))


def leave(state: RaftState) -> None:
    """The heartbeats of this turn leave: requests from now on need another round."""
    state.reads.close()
