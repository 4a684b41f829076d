"""How entries reach followers, and when they are committed. Pure.

Idea: the leader sends entries behind the place where it believes the logs agree; a follower refuses when they do not,
and proposes where they could. An entry of the leader's own term is committed once a quorum has it, and everything
before it with it. Entries of earlier terms are never committed by counting.
"""

from __future__ import annotations

from . import snapshots
from .messages import Entry, Kind, Message, total_bytes
from .progress import FollowerPace, PeerProgress
from .state import RaftState


def send_append(state: RaftState, node: int, *, empty: bool = True) -> bool:
    """Send a follower what it lacks, or a snapshot; with `empty` also when that is only the commit. False when
    nothing was sent."""
    peer = state.peers[node]
    if peer.blocked:
        return False
    log = state.log
    before = peer.next - 1
    term = log.term(before)
    entries: list[Entry] | None = []
    if peer.pace is not FollowerPace.REPLICATE or not peer.inflight.full:
        entries = log.entries(peer.next, log.last() + 1, state.options.max_append_bytes)
    if term is None or entries is None:
        return snapshots.send(state, node)
    if not entries and not empty:
        return False
    state.send(Message(Kind.APPEND, node, index=before, log_term=term, commit=log.committed, entries=entries))
    peer.sent(len(entries), total_bytes(entries), log.committed)
    return True


def broadcast(state: RaftState, *, empty: bool = True) -> None:
    """Send each follower what it lacks."""
    for node in state.peers:
        if node != state.node:
            send_append(state, node, empty=empty)


def commit_reached(state: RaftState) -> bool:
    """Commit what a quorum has, if the newest of it is of this term; False when that is no news."""
    reached = state.reached()
    return reached >= state.own_from and state.log.commit(reached)


def handle(state: RaftState, message: Message) -> None:
    """Entries from the leader."""
    log = state.log
    if message.index < log.committed:  # sent long ago; below the commit the logs agree
        state.send(Message(Kind.APPEND_ACK, message.sender, index=log.committed))
        return
    agreed = log.agree(message.index, message.log_term, message.entries)
    if agreed is None:
        _refuse(state, message)
        return
    log.commit(min(message.commit, agreed))  # what stands behind `agreed` here may be another leader's
    state.send(Message(Kind.APPEND_ACK, message.sender, index=agreed))


def _refuse(state: RaftState, message: Message) -> None:
    hint, term = state.log.agreement(min(message.index, state.log.last()), message.log_term)
    refusal = Message(Kind.APPEND_ACK, message.sender, index=message.index, reject=True, hint=hint, log_term=term)
    state.send(refusal)


def acknowledged(state: RaftState, message: Message) -> bool:
    """A member acknowledged or refused an append; True when the commit moved."""
    peer = state.peers[message.sender]
    peer.active = True
    if message.reject:
        _step_back(state, peer, message)
        return False
    if not peer.acknowledged(message.index) and not (peer.match == message.index and peer.pace is FollowerPace.PROBE):
        return False
    _speed_up(state, peer, message.index)
    moved = commit_reached(state)
    if moved:
        broadcast(state)
    if message.sender != state.node:
        if not moved and peer.commit_is_news(state.log.committed):
            send_append(state, message.sender)
        while send_append(state, message.sender, empty=False):
            pass  # fills the window
    return moved


def _step_back(state: RaftState, peer: PeerProgress, message: Message) -> None:
    hint = message.hint
    if message.log_term > 0:  # entries of higher terms here cannot be the follower's
        hint, _ = state.log.agreement(hint, message.log_term)
    if peer.rejected(message.index, hint):
        if peer.pace is FollowerPace.REPLICATE:
            peer.probe()
        send_append(state, message.sender)


def _speed_up(state: RaftState, peer: PeerProgress, index: int) -> None:
    if peer.pace is FollowerPace.PROBE:
        peer.replicate()
    elif peer.pace is FollowerPace.REPLICATE:
        peer.inflight.free(index)
    elif peer.match + 1 >= state.log.first():  # the log takes over from the snapshot
        peer.replicate()


def unreachable(state: RaftState, node: int) -> None:
    """Messages to a follower were lost: find out where it is before streaming again."""
    peer = state.peers.get(node)
    if peer is not None and node != state.node and peer.pace is FollowerPace.REPLICATE:
        peer.probe()
