"""Changing who is a member, while the group works. Pure.

Idea: a configuration counts from the moment its entry is applied, on each node by itself. One change is in flight at a
time. A joint configuration that leaves by itself is left by an empty change that the leader proposes.

A leader is never demoted or removed: the node that loses the lead by its own entry may hold the longer log, refuse its
vote, and stand for nothing itself, while the voters have not heard that the entry is committed. It hands over first
(`transfer.py`).
"""

from __future__ import annotations

from . import proposals, reads, replication, transfer
from .errors import Unfit
from .membership import Configuration, changed
from .messages import NONE, Change, ConfState, Data, EntryKind
from .proposals import EntryPlace
from .state import RaftState, Role

LEAVE = Change()


def refusal(state: RaftState, change: Change) -> str:
    """Why this leader may not propose a change now; empty when it may."""
    if state.role is not Role.LEADER:
        return f"node {state.node} does not lead"
    if state.pending_change > state.log.applied:
        return f"the change at entry {state.pending_change} is not applied yet"
    try:
        after = changed(state.configuration, change)
    except Unfit as unfit:
        return str(unfit)
    if state.node not in after.voters:
        return f"node {state.node} leads: it has to hand over before it is demoted or removed"
    return ""


def propose(state: RaftState, data: Data) -> EntryPlace | None:
    """Append a change, whose `data` the surroundings made; the place it took, or None."""
    place = proposals.propose(state, [data], EntryKind.CHANGE)
    if place is not None:
        state.pending_change = place.index
    return place


def apply(state: RaftState, change: Change, index: int) -> ConfState:
    """A change at entry `index` is applied; the configuration it leads to."""
    state.last_change = max(state.last_change, index)
    switch(state, changed(state.configuration, change))
    return state.configuration.stored()


def switch(state: RaftState, configuration: Configuration) -> None:
    """Take over a configuration, and do as a leader what follows from it."""
    state.configure(configuration)
    if state.role is not Role.LEADER:
        return
    own = state.peers.get(state.node)
    if own is None or own.learner:
        if state.options.step_down_on_removal:
            state.follow(state.term, NONE)
        return
    if replication.commit_reached(state):
        reads.released(state)
        replication.broadcast(state)
    else:
        replication.broadcast(state, empty=False)  # to members that are new
    if state.transferee not in state.configuration.all_voters():
        state.transferee = NONE


def leave_by_itself(state: RaftState) -> None:
    """End a joint configuration that leaves by itself, once that is applied. A leader that would not be a voter any
    more hands over first."""
    if state.role is not Role.LEADER or not state.configuration.auto_leave:
        return
    voters = [node for node in state.peers if node in state.configuration.voters]
    if state.node not in voters:
        transfer.begin(state, max(voters, key=lambda node: state.peers[node].match))
    elif not refusal(state, LEAVE):
        propose(state, b"")
