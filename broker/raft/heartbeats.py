"""How a leader shows that it is there. Pure.

Idea: a heartbeat tells a follower no more of the commit than its log is known to have, and carries the newest round of
reads that waits. Its answer wakes a paused stream.
"""

from __future__ import annotations

from . import replication
from .messages import Kind, Message
from .progress import FollowerPace
from .state import RaftState


def broadcast(state: RaftState) -> None:
    """Send every other member a heartbeat."""
    number = state.reads.pending()
    for node, peer in state.peers.items():
        if node != state.node:
            commit = min(peer.match, state.log.committed)
            state.send(Message(Kind.HEARTBEAT, node, commit=commit, round=number))
            peer.sent_commit = commit


def handle(state: RaftState, message: Message) -> None:
    """The leader is there."""
    state.log.commit(message.commit)
    state.send(Message(Kind.HEARTBEAT_ACK, message.sender, round=message.round))


def acknowledged(state: RaftState, message: Message) -> None:
    """A member answered a heartbeat."""
    peer = state.peers[message.sender]
    peer.active = True
    peer.paused = False
    if peer.match < state.log.last() or peer.pace is FollowerPace.PROBE:
        replication.send_append(state, message.sender)
