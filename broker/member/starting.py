"""Puts a member together: its directory, its links, its replica.

Contract: the caller has locked the directory, and closes what it gets. Where something is gone that was durable, the
member recovers instead of taking part. Raises PromisesLost, InvalidPeers, AddressInUse, CannotListen.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...transport.keys import Key
from ...transport.zmq_sockets import Context
from ..diagnostics import say
from ..peers.gate import shared
from ..peers.greeting import PeerIdentity
from ..peers.links import PeerLinks
from ..raft.state import RaftOptions
from ..replica.damage import NotedDamage, noted
from ..replica.errors import PromisesLost, ReplicaDamaged
from ..replica.recovering import Recovery
from ..replica.start import open_files, start
from .directory import KnownPeers, shard_ids
from .doubts import suspects
from .member import PeerSending, ShardMember
from .pace import ELECTION_TICKS, HEARTBEAT_TICKS
from .recovering import RecoveringMember, empty_node
from .standing import ShownRole
from .view import MemberView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.data_directory import Identity
    from ...storage.errors import Corrupt
    from ...storage.files import Files
    from ...storage.promises import Promises
    from ...transport.descriptors import DescriptorRoom
    from ..cluster_config import ClusterConfig
    from ..engine.ports import NodeConfig, Now
    from ..keeper.unresolved_syncs import UnresolvedSyncs
    from ..port import SocketPort
    from ..raft.messages import Message
    from ..replica.replicated import Replicated
    from ..watermarks import Watermarks
    from .store import MemberStore

APPEND_BYTES = 1 << 20
INFLIGHT = 64
"""Appends on their way to one follower."""

TELL_AGAIN_S = 10.0
"""Between two equal lines about a peer that is refused: it tries again at once."""

LINES_MOST = 20
"""In that time: a hostile peer comes with another key each time, which makes another line."""


class PeerLines:
    """Says what is new, the same line again only after a while, and no more than `LINES_MOST` lines meanwhile."""

    def __init__(self, tell: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._said: dict[str, float] = {}
        self._left_out = 0

    def __call__(self, line: str) -> None:
        now_s = self._clock()
        self._said = {each: said_s for each, said_s in self._said.items() if now_s - said_s < TELL_AGAIN_S}
        key = line.partition(" (")[0]
        if key in self._said:
            return
        if len(self._said) >= LINES_MOST:
            self._left_out += 1
            return
        self._said[key] = now_s
        left_out, self._left_out = self._left_out, 0
        self._tell(f"{line}; {left_out} lines like it are left out" if left_out else line)


def peers_context(room: DescriptorRoom, key_file: str, say: Callable[[str], None]) -> Context:
    """ZeroMQ for the links: with a key, nodes without it are refused. Raises InvalidKey, CannotListen."""
    if not key_file:
        return Context(room=room)
    key, guarded = shared(Key.read(key_file), say)
    context = Context(room=room, key=key, guarded=guarded)
    assert context.gate is not None
    context.gate.check()
    return context


class LinkedPeers(NamedTuple):
    """The links to the peers, and what is known of their directories."""

    links: PeerLinks
    known: KnownPeers


def link(
    files: Files, data: str, identity: Identity, cluster: ClusterConfig, context: Context, advertise: tuple[str, ...],
    limits: Mapping[str, int], say: Callable[[str], None],
) -> LinkedPeers:  # fmt: skip
    """Listen for peers and connect to them. `limits`: of what this node accepts.

    Raises AddressInUse, CannotListen, InvalidUrl.
    """
    known = KnownPeers(files, data, identity)
    own = PeerIdentity(
        cluster=cluster.name, node=cluster.node, uuid=bytes.fromhex(identity.node),
        incarnation=int.from_bytes(os.urandom(7), "little"), peers=cluster.peers, advertise=advertise,
        limits=limits,
    )  # fmt: skip
    links = PeerLinks(own, context, cluster.own_address, uuid_of=known.uuid_of, say=say, on_greeted=known.heard)
    return LinkedPeers(links, known)


def begin_member(
    files: Files, data: str, identity: Identity, peers: LinkedPeers, port: SocketPort, watermarks: Watermarks,
    store: Callable[[Replicated], MemberStore], promises: Promises, config: NodeConfig, now: Now,
    doubts: UnresolvedSyncs, tell: Callable[[str, int], None],
) -> ShardMember | RecoveringMember:  # fmt: skip
    """Open the replica, and join it with its links; or fetch what it has lost. `tell` hears of roles and terms.

    Raises PromisesLost.
    """
    try:
        member = _begin(files, data, identity, peers, port, watermarks, store, promises, config, now, doubts, tell)
    except PromisesLost:
        raise
    except ReplicaDamaged as error:
        member = _begin_recovering(files, data, identity, peers, port, promises, config, now, error, tell)
    port.counting.append(member.stats)
    return member


def _begin(
    files: Files, data: str, identity: Identity, peers: LinkedPeers, port: SocketPort, watermarks: Watermarks,
    store: Callable[[Replicated], MemberStore], promises: Promises, config: NodeConfig, now: Now,
    doubts: UnresolvedSyncs, tell: Callable[[str, int], None],
) -> ShardMember:  # fmt: skip
    doubtful = suspects(files, data, doubts)
    opened = open_files(files, data, shard_ids(identity), suspect=doubtful)
    for log_id in doubtful.values():
        doubts.settled(log_id)
    for moved in opened.set_aside:
        say(f"set aside {moved}: no entry of the order names this log")
    watermarks.hold(opened.order.log, lazy=False)
    sending = PeerSending()
    chance = random.SystemRandom()
    options = RaftOptions(
        node=identity.number, draw_timeout=lambda: chance.randint(ELECTION_TICKS, 2 * ELECTION_TICKS - 1),
        election_ticks=ELECTION_TICKS, heartbeat_ticks=HEARTBEAT_TICKS, asynchronous=True,
        max_append_bytes=APPEND_BYTES, max_inflight=INFLIGHT, max_inflight_bytes=INFLIGHT * APPEND_BYTES // 4,
    )  # fmt: skip
    replica = start(
        opened, store, port, promises=promises, known=peers.known, randomness=os.urandom, config=config,
        options=options, now=now, send=sending.send, publish=watermarks.publish,
        on_damage=_say_of_damage,
    )  # fmt: skip
    links = peers.links
    sending.links, sending.replica = links, replica
    links.entry = lambda: replica.directories.entry_of(identity.number, replica.places.entry)
    standing = ShownRole(replica.node, replica.core, links, port, tuple(config.advertise), tell)
    room = partial(files.free, data)
    replica.node.clustering.view = MemberView(replica, links, standing, room)
    return ShardMember(replica, links, standing, now, room)


def _say_of_damage(damage: Corrupt) -> None:
    say(f"{damage.message}: this node goes on, as the other nodes have no majority without it; bring them back first")


def _begin_recovering(
    files: Files, data: str, identity: Identity, peers: LinkedPeers, port: SocketPort, promises: Promises,
    config: NodeConfig, now: Now, lost: ReplicaDamaged, tell: Callable[[str, int], None],
) -> RecoveringMember:  # fmt: skip
    say(f"{lost.message}: this node fetches that from the leader, and votes again once it has it")
    links = peers.links

    def send(message: Message, bodies: list[bytes]) -> None:
        links.put(message, bodies)  # what is lost is asked for again

    found = noted(files, data) or NotedDamage(lost.message)
    recovery = Recovery(
        files, data, shard_ids(identity).order, node=identity.number, damage=found, promises=promises, send=send,
    )  # fmt: skip
    return RecoveringMember(recovery, empty_node(port, config, now), links, partial(files.free, data), tell, now)
