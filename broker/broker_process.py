"""The broker process: assembles its parts, serves, and shuts them down in order.

Idea: starting has a fixed order, so that errors are found before anything is changed: limits, identity of the
directory, its lock, the addresses, then the board, the logs, the keeper. A failure goes to the supervisor as one
sentence, and a directory created by this start is removed again.

Contract: `ready` is sent only when the node's logs are open, the sockets are bound and the keeper watches. Must not
know: what a message means.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..storage import layout, lock
from ..storage.board import boot_id, is_alive
from ..storage.data_directory import METADATA, check_alone, claim, identify, open_board
from ..storage.errors import AlreadyOpen, Error
from ..storage.files import Files
from ..storage.lending.incarnation import renew
from ..storage.promises import Promises
from ..storage.range_locks import RangeLocks
from ..storage.segment_reader import SegmentCache
from ..transport.keys import Key
from ..transport.sockets import Sockets
from ..transport.url import listen_url, local_address
from . import control
from .access import BrokerAccess
from .admission import Admission
from .broker import Broker, now
from .cold_reads import Warmer
from .diagnostics import crashed, say
from .engine import DiskReserve, Node, NodeConfig
from .frugal_files import FrugalFiles, connection_room, peer_room
from .keeper.jobs import KeeperJobs
from .keeper.link import KeeperLink
from .keeper.unresolved_syncs import UnresolvedSyncs
from .lenders import Lenders
from .packets import PacketSocket
from .poller import Poller
from .port import SocketPort
from .refusals import Refusals
from .store import DirectoryStore
from .system import calm_collector, die_with_parent, set_file_limit
from .wakes import Wakes
from .watermarks import Watermarks

if TYPE_CHECKING:
    from ..storage.board import Board
    from ..storage.data_directory import Identity
    from ..storage.files import FileLock
    from ..transport.zmq_curve import Guarded
    from .config import ServeConfig
    from .member.member import ShardMember
    from .member.recovering import RecoveringMember
    from .member.starting import LinkedPeers
    from .member.store import MemberStore
    from .replica.replicated import Replicated

LOCK_PATIENCE_S = 2.0
"""The keeper of a broker that was just killed holds the lock until it has synced."""

TELL_FULL_S = 30.0
"""Between two lines of the log that say that the disk is full."""

READ_SEGMENTS = 256
"""Segments kept open for reading; two descriptors each. They give way to files that are written."""

GRACE_S = 3600.0
"""At most, after a start or a change of the leader: see engine/logs/grace.py."""

FRAME_SPARE_BYTES = 1 << 20
LAST_ANSWERS_S = 0.05
"""ZeroMQ's sockets drop what they hold when closed: the last answers get so long to leave."""


class Assembly:
    """Everything of one broker; `close` takes it apart in the reverse order."""

    def __init__(self, config: ServeConfig, supervisor: PacketSocket, link: KeeperLink, signals: int) -> None:
        self._config = config
        limit = set_file_limit(config.limit_files)
        self._files = FrugalFiles(limit, always=f"{config.data}/{METADATA}/")
        self._room, self._peer_room = connection_room(limit), peer_room(limit)
        self._stack = ExitStack()
        self.listen: list[str] = []
        self.advertise: list[str] = []
        self._is_assembled = False
        try:
            self.broker = self._assemble(supervisor, link, signals)
        except BaseException:
            self._stack.close()
            raise

    def _assemble(self, supervisor: PacketSocket, link: KeeperLink, signals: int) -> Broker:
        config, files, stack = self._config, self._files, self._stack
        addresses = config.addresses()
        above = _first_missing(files, config.data)
        files.mkdir(config.data)
        self._known()
        held = self._lock()
        known = self._known()
        identity = self._take(known)
        if above is not None and known is None:
            stack.callback(self._remove_unless_assembled, above)
        access = BrokerAccess(config.access) if config.access else None
        admission = None if access is None else Admission(access)
        guarded = None if admission is None else self._guarded(admission)
        sockets = self._sockets = stack.enter_context(Sockets(self._room, guarded))
        servers = [
            sockets.server(address, max_bytes=self._frame_bytes(), is_open=access is not None) for address in addresses
        ]
        if (gate := sockets.gate) is not None:
            gate.check()
        self.listen = [endpoint for server in servers for endpoint in server.endpoints]
        self.advertise = list(config.advertise) or self.listen
        holder = lock.Holder(os.getpid(), self.advertise[0], f"{boot_id():032x}", local_address(self.listen))
        held.note(msgspec.json.encode(holder))
        had_bytes = lock.take_bytes(held)  # the note has ended all grants
        incarnation, lock_file = renewed(held.path)
        doubts = UnresolvedSyncs(files, config.data)
        peers = self._peers(identity)
        board = open_board(
            files, config.data, rows=config.board_rows, slots=config.mapped_readers, is_owned=_is_another_alive
        )
        stack.callback(board.retire)
        board.incarnation = incarnation
        warmer = Warmer()
        stack.callback(warmer.close)
        jobs = KeeperJobs(files)
        watermarks = Watermarks(board, jobs, replicated=config.cluster is not None)
        wakes = Wakes(board, watermarks.number_of)
        stack.callback(wakes.close_all)
        port = SocketPort(sockets, servers, wakes, warmer, config.advertise, admission)
        stack.callback(port.close)
        lenders = Lenders(board, watermarks, RangeLocks(held.path), lock_file)
        stack.callback(lenders.close)
        node, store = self._node(
            identity, board, peers, port, watermarks, jobs, doubts, lenders, supervisor, cut=not had_bytes
        )
        for place, reason in node.unavailable.items():
            say(f"{place} is unavailable, the others serve: {reason}")
        doubts.save()
        store.empty_trash()
        held.free_bytes()
        poller = Poller()
        stack.callback(poller.close)
        broker = Broker(
            config, node=node, port=port, servers=servers, poller=poller, watermarks=watermarks,
            jobs=jobs, warmer=warmer, supervisor=supervisor, signals=signals, room=self._room,
            lock=held.fileno(), lenders=lenders, access=access, admission=admission, gate=gate,
            watched=() if peers is None else (peers.links.fd,),
        )  # fmt: skip
        broker.attach(link)
        self._is_assembled = True
        return broker

    def _guarded(self, admission: Admission) -> Guarded | None:
        """What ZeroMQ's listeners need. Raises InvalidKey."""
        if not any(listen_url(each).scheme in ("tcp", "ipc") for each in self._config.listen):
            return None
        from ..transport.zmq_curve import Guarded  # ZeroMQ is loaded where an address asks for it

        return Guarded(Key.read(self._config.broker_key) if self._config.broker_key else None, admission)

    def _remove_unless_assembled(self, above: str) -> None:
        """Remove what a failed first start created, up to the directory `above`. It still holds the lock, so no other
        start has begun in its own; in those above it, others may have."""
        path = self._config.data
        if not self._is_assembled:
            self._files.remove_tree(path)
            with suppress(OSError):  # of one that is not empty
                while path != above:
                    path = os.path.dirname(path)
                    os.rmdir(path)

    def _lock(self) -> FileLock:
        """The directory's lock. Raises AlreadyOpen, which names the holder."""
        path = f"{self._config.data}/{layout.LOCK}"
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                held = lock.take_head(path, self._files, boot=f"{boot_id():032x}")
            except AlreadyOpen:
                if _holder_lives(self._files, path) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                self._stack.callback(held.release)
                return held

    def _known(self) -> Identity | None:
        """Whose directory it is, if any. Raises ForeignDirectory, NewerFormat."""
        config = self._config
        found = identify(self._files, config.data, node=config.node_id)
        if config.cluster is None:
            check_alone(found, config.data)
        else:
            from .member.directory import check

            check(found, config.data, config.cluster)
        return found

    def _take(self, known: Identity | None) -> Identity:
        """Make the locked directory this node's. Raises PromisesLost, StorageFull."""
        config = self._config
        if config.cluster is None:
            return known or claim(self._files, config.data)
        from .member.directory import take

        return take(self._files, config.data, known, config.cluster)

    def _peers(self, identity: Identity) -> LinkedPeers | None:
        """What a member hears its peers by; None for a broker that is alone.

        Raises AddressInUse, CannotListen, InvalidKey.
        """
        config = self._config
        if config.cluster is None:
            return None
        from .member.starting import PeerLines, link, peers_context

        lines = PeerLines()
        context = self._stack.enter_context(peers_context(self._peer_room, config.broker_key, lines))
        limits = msgspec.convert(config.node, NodeConfig).limits
        return link(self._files, config.data, identity, config.cluster, context, tuple(self.advertise), limits, lines)

    def _node(
        self, identity: Identity, board: Board, peers: LinkedPeers | None, port: SocketPort, watermarks: Watermarks,
        jobs: KeeperJobs, doubts: UnresolvedSyncs, lenders: Lenders, supervisor: PacketSocket, *, cut: bool,
    ) -> tuple[Node | ShardMember | RecoveringMember, DirectoryStore]:  # fmt: skip
        """What the broker drives, with its store. Raises PromisesLost."""
        config = self._node_config(identity, board)
        promises = Promises(f"{self._config.data}/{layout.PROMISES}", self._files)
        self._stack.callback(promises.close)
        if peers is None:
            store = self._store(promises, watermarks, jobs, doubts, cut=cut, order=None)
            refusals = Refusals("the disk is full: refusals of records", period_s=TELL_FULL_S)
            reserve = DiskReserve(partial(self._files.free, self._config.data), refusals.refused)
            return Node(
                store, port, randomness=os.urandom, config=config, now=now(), lenders=lenders, reserve=reserve
            ), store
        from .member.starting import begin_member

        stores: list[Any] = []

        def store_of(order: Replicated) -> MemberStore:
            stores.append(self._store(promises, watermarks, jobs, doubts, cut=cut, order=order))
            return stores[0]

        member = begin_member(
            self._files, self._config.data, identity, peers, port, watermarks, store_of, promises, config, now(),
            doubts, lambda role, term: supervisor.send([control.encode(control.RoleChanged(role, term))]),
        )  # fmt: skip
        store = stores[0] if stores else self._store(promises, watermarks, jobs, doubts, cut=cut, order=None)
        return member, store

    def _store(
        self, promises: Promises, watermarks: Watermarks, jobs: KeeperJobs, doubts: UnresolvedSyncs, *, cut: bool,
        order: Replicated | None,
    ) -> DirectoryStore:  # fmt: skip
        files = self._files
        cache = SegmentCache(files, READ_SEGMENTS)
        files.give_way = cache.give_way
        options: dict[str, Any] = {
            "promises": promises, "cache": cache, "watermarks": watermarks, "jobs": jobs, "doubts": doubts,
            "max_batch_bytes": self._frame_bytes(), "check_log": files.check_log, "cut": cut,
        }  # fmt: skip
        if order is None:
            store = DirectoryStore(self._config.data, files, **options)
        else:
            from .member.store import MemberStore  # with all of a replica, which a broker that is alone does not load

            store = MemberStore(self._config.data, files, **options, order=order)
        self._stack.callback(store.close)
        return store

    def _frame_bytes(self) -> int:
        return int(self._config.node.get("max_frame_bytes", NodeConfig().max_frame_bytes)) + FRAME_SPARE_BYTES

    def _node_config(self, identity: Identity, board: Board) -> NodeConfig:
        named: dict[str, Any] = {"node": identity.node, "cluster": identity.cluster, "boot_id": f"{boot_id():032x}"}
        places = {"data": self._config.data, "board": board.name, "advertise": self.advertise}
        named["grace_s"] = GRACE_S
        if self._config.cluster is not None:
            named["members"] = len(self._config.cluster.peers)
        if self._config.advertise:
            places["endpoint"] = self.advertise[0]
        return msgspec.convert({**named, **places, **self._config.node}, NodeConfig)

    def ended_by(self, error: BaseException) -> str:
        """Note what an error says of a member's files, so that the next broker fetches what is lost. Returns why
        another broker opens them; "" for an error that should not happen."""
        if self._config.cluster is None:
            return ""
        from .replica.damage import note_of, why_anew

        if kept := note_of(self._files, self._config.data, error):
            say(f"{error}: that could not be noted ({kept}), so this node goes on with it until it is met again")
        return why_anew(error)

    def close(self) -> None:
        """After the drain: let the last answers out, close sockets, retire the board, unlock."""
        if self._sockets.has_threads:
            time.sleep(LAST_ANSWERS_S)
        self._stack.close()


def renewed(path: str) -> tuple[int, tuple[int, int]]:
    """A new incarnation of the node, written into its lock; 0 where that is not possible: no log is lent then."""
    number = int.from_bytes(os.urandom(8), "little") or 1
    try:
        return number, renew(path, number)
    except OSError as error:
        say(f"{path} cannot be written, so that logs cannot be lent to producers: {error}")
        return 0, (0, 0)


def _first_missing(files: Files, path: str) -> str | None:
    """The highest directory that has to be made for `path`; None when it is there."""
    missing = None
    while not files.exists(path):
        missing, path = path, os.path.dirname(path)
    return missing


def _holder_lives(files: Files, path: str) -> bool:
    """Whether the broker that took the lock still runs; if not, it is its keeper that holds it, and not for long."""
    try:
        holder = lock.holder_of(files.read(path))
    except (msgspec.MsgspecError, FileNotFoundError):
        return False
    return is_alive(holder.pid)


def _is_another_alive(pid: int) -> bool:
    """Whether another process may use a board. In a container this one has the id of the broker before it."""
    return pid != os.getpid() and is_alive(pid)


def _watch_signals() -> int:
    """A descriptor that becomes readable at SIGTERM."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    return reading


def _refused(error: OSError, data: str) -> str:
    """The system's error at the start of the broker, its file, and the way out."""
    reason = (error.strerror or str(error)).lower()
    shown = f"{error.filename}: {reason}" if error.filename else reason
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"cannot start in {data}: {shown}: raise the limit of open files (LimitNOFILE of the service, ulimit -n)"
    return (
        f"cannot start in {data}: {shown}: the broker has to be able to make and lock files there; penstock doctor "
        "looks at it, and --data names another directory"
    )


def main(config: ServeConfig, *, control_fd: int, link: int, doorbell: int, bell_back: int, parent_pid: int) -> int:
    """Run the broker of a supervisor's child process; returns its exit code."""
    signals = _watch_signals()
    supervisor = PacketSocket(control_fd)
    # Killed, not asked: a broker that is busy, or was stopped, would keep its addresses from the next one.
    if not die_with_parent(parent_pid, signal.SIGKILL):
        return 1
    try:
        assembly = Assembly(config, supervisor, KeeperLink(link, doorbell, bell_back), signals)
    except (Error, OSError) as error:
        code = error.code if isinstance(error, Error) else "cannot_start"
        message = error.message if isinstance(error, Error) else _refused(error, config.data)
        supervisor.send([control.encode(control.StartFailed(code, message))])
        return 1
    calm_collector()
    try:
        serving = control.Serving(assembly.listen, config.data, assembly.advertise)
        say(f"serving {config.data} on {', '.join(assembly.listen)}", logging.INFO)
        assembly.broker.run(lambda: supervisor.send([control.encode(serving)]))
        say("draining", logging.INFO)
        assembly.broker.drain()
    except BaseException as error:
        # As after SIGKILL: nothing is retired or marked clean, the next broker recovers.
        if reason := assembly.ended_by(error):
            say(reason)
        else:
            crashed(error)
        os._exit(1)
    assembly.close()
    return 0
