"""When a follower needs what the log no longer has: snapshots. Pure.

Idea: only the place travels here: index, term and configuration. The surroundings move the bytes, and step a SNAPSHOT
on the receiver once its files are synced. The sender waits in SNAPSHOT until `report`, which must always come: lost,
it would pause that follower for ever.

A snapshot from before the configuration that it is sent under is useless: a node that it does not name ignores it,
each time. So the storage is asked for one at or above the last change.
"""

from __future__ import annotations

from .membership import restored
from .messages import Kind, Message, Snapshot
from .progress import FollowerPace
from .state import RaftState, Role


def send(state: RaftState, node: int) -> bool:
    """Send the newest snapshot; False while there is none that helps, or the follower has not been heard of."""
    peer = state.peers[node]
    if not peer.active:
        return False
    snapshot = state.log.snapshot(max(state.last_change, state.log.first() - 1))
    if snapshot is None or node not in restored(snapshot.configuration).members():
        return False
    peer.await_snapshot(snapshot.index)
    state.send(Message(Kind.SNAPSHOT, node, snapshot=snapshot))
    return True


def report(state: RaftState, node: int, *, installed: bool) -> None:
    """What became of the snapshot that was sent to a follower. The next heartbeat's answer resumes it."""
    peer = state.peers.get(node)
    if state.role is Role.LEADER and peer is not None and peer.pace is FollowerPace.SNAPSHOT:
        if not installed:
            peer.pending_snapshot = 0
        peer.probe()
        peer.paused = True


def handle(state: RaftState, message: Message) -> None:
    """A leader sent a snapshot, whose bytes have been staged."""
    snapshot = message.snapshot
    if snapshot is not None:
        index = snapshot.index if restore(state, snapshot) else state.log.committed
        state.send(Message(Kind.APPEND_ACK, message.sender, index=index))


def restore(state: RaftState, snapshot: Snapshot) -> bool:
    """Begin behind the snapshot; False when it is old, does not name this node, or the log has its entry already,
    which is committed then."""
    if snapshot.index <= state.log.committed:
        return False
    configuration = restored(snapshot.configuration)
    if state.node not in configuration.members():
        return False
    if state.log.has(snapshot.index, snapshot.term):
        state.log.commit(snapshot.index)
        return False
    state.log.restore(snapshot)
    state.peers = {}
    state.configure(configuration)
    return True


def installed(state: RaftState, snapshot: Snapshot) -> None:
    """The surroundings have installed a snapshot and begun their log behind it."""
    state.log.unstable.stored_snapshot(snapshot.index)
    state.last_change = max(state.last_change, snapshot.index)
