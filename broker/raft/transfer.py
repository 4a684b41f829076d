"""Handing the lead over. Pure.

Idea: the leader brings the chosen voter up to date and tells it to campaign at once, which voters grant although they
hear from a leader. No proposal is accepted meanwhile. Without success within an election timeout the leader goes on.
"""

from __future__ import annotations

from . import replication
from .messages import NONE, Kind, Message
from .state import RaftState, Role


def begin(state: RaftState, node: int) -> bool:
    """Hand over to a voter; another transfer that is under way ends. False when this node does not lead, or `node`
    is no voter that stays one, or itself."""
    if state.role is not Role.LEADER or node == state.node or node not in state.configuration.voters:
        return False
    if state.transferee == node:
        return True
    state.transferee = node
    state.elapsed = 0
    if not finish(state, node):
        replication.send_append(state, node)
    return True


def finish(state: RaftState, node: int) -> bool:
    """Tell the chosen voter to campaign if it has the whole log; True when it was told."""
    if node != state.transferee or state.peers[node].match != state.log.last():
        return False
    state.send(Message(Kind.CAMPAIGN_NOW, node))
    return True


def end(state: RaftState) -> None:
    """Give up; proposals are accepted again."""
    state.transferee = NONE
