"""A broker inside this process: `mem://name` and `file:///directory`.

Idea: the same node as in a broker process, driven by calling threads: a message goes in, proposals are appended and
synced in the caller's thread, and the answers are in the channels when the call returns.

Contract: one node per name or directory and process, shared by all its clients and threads under one lock. Messages
sent before a thread looks for answers share one append and one sync. An exception out of the node, Ctrl-C for example,
leaves it half-way, so it is dropped as if its broker was killed: the next call opens a new node over the same files,
and all channels begin anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ...broker.engine import DiskReserve, Node, NodeConfig, Now
from ...storage import forks, lock
from ...storage.data_directory import check_alone, claim, identify
from ...storage.errors import Closed, Poisoned, StorageError
from ...storage.memory_files import MemoryFiles
from ...transport.bell import Bell
from ..connection.steps import FOREVER
from ..errors import InvalidArgument
from .store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...storage.files import FileLock, Files
    from ...storage.log import LogWriter
    from ...storage.reader import Chunk, Cursor
    from ...transport.messages import Answer, Deliver, Joined, Message, Topic, Welcome
    from ..reading.mapped import LogSource, MappedSource

Clock = Callable[[], Now]

LAZY_S = 1.0
"""How long records of a topic with commit="written" may stay unsynced."""


def system_clock() -> Now:
    """Both clocks of the machine."""
    return Now(time.time_ns() // 1000, time.monotonic())


class LocalPort:
    """The node's output: answers go to channels. As `engine.ports.Port`."""

    def reply(self, peer: Hashable, message: Answer, payload: Buffer = b"") -> bool:
        assert isinstance(peer, LocalChannel), "only channels of this process ask"
        return peer.put(message, payload)

    def is_behind(self, peer: Hashable) -> bool:
        return False

    def open_delivery(self, session: int, peer: Hashable, owner: str = "") -> str:
        return ""

    def deliver(self, session: int, message: Deliver, payload: Buffer) -> bool:
        return False

    def close_delivery(self, session: int) -> None:
        """Do nothing: there are no delivery sockets."""

    def open_wake(self, session: int) -> int:
        return -1

    def begin_reading(self, session: int, log: LogWriter) -> None:
        """Do nothing: nor is any log lent."""

    def end_reading(self, session: int, log: LogWriter) -> None:
        """Do nothing; see `begin_reading`."""

    def wake(self, session: int) -> None:
        """Do nothing: mapped readers of this process look by themselves."""

    def asleep(self) -> set[int]:
        return set()

    def close_wake(self, session: int) -> None:
        """Do nothing: no slots are opened."""

    def stats(self) -> dict[str, Any]:
        return {}

    def read(self, cursor: Cursor, max_bytes: int, limit_seq: int, token: Hashable) -> Chunk | None:
        return cursor.next(max_bytes, limit_seq)


class LocalBroker:
    """A node, its files and its lock. `clock` tells it the time; with a clock of its own, nothing happens by itself."""

    def __init__(self, data: str, files: Files, *, clock: Clock | None = None, guard: FileLock | None = None) -> None:
        """Open the node of a directory. `guard` is the directory's lock, already held."""
        self.lock = threading.RLock()
        self.closed = False
        self.driving: LocalChannel | None = None
        self._channels: WeakSet[LocalChannel] = WeakSet()
        self._clock = clock or system_clock
        self._follows_time = clock is None
        self._guard = guard
        self._files = files
        found = identify(files, data)
        check_alone(found, data)
        identity = found or claim(files, data)
        self._config = NodeConfig(
            node=identity.node, cluster=identity.cluster, data=data, server="penstock, in process"
        )
        self._open()

    def _open(self) -> None:
        """Open a node over the present files."""
        config, now = self._config, self._clock()
        self._store = LocalStore(config.data, self._files, max_batch_bytes=config.max_frame_bytes)
        reserve = DiskReserve(lambda: self._files.free(config.data))
        self._node = Node(self._store, LocalPort(), randomness=os.urandom, config=config, now=now, reserve=reserve)
        self._store.opened()
        self._lazy: dict[LogWriter, None] = {}
        self._lazy_at = FOREVER
        self._pending = True
        self._due = 0.0
        self._broken = False

    def _mend(self) -> None:
        """Replace a node that raised an exception."""
        for channel in self._channels:
            channel.break_off()
        self._store.close()
        self._open()

    @property
    def used(self) -> bool:
        """Whether it has open channels."""
        return bool(self._channels)

    def connect(
        self, on_message: Callable[[], None] | None = None, on_close: Callable[[], None] | None = None
    ) -> LocalChannel:
        """A new channel to this broker; `on_message` wakes its user instead of the channel's own descriptor."""
        with self.lock:
            channel = LocalChannel(self, on_message=on_message, on_close=on_close)
            self._channels.add(channel)
            return channel

    def now_us(self) -> int:
        """The node's time of day."""
        return self._clock().wall_us

    def receive(self, channel: LocalChannel, message: Message, payload: Buffer) -> bool:
        """Take one message; its effects happen at the next `drive`. Returns False if the node is broken."""
        with self.lock:
            if self._broken:
                return False
            self._pending = True
            self.driving = channel
            try:
                self._node.receive(channel, message, payload, self._clock())  # pyright: ignore[reportArgumentType]
            except BaseException:
                self._broken = True
                raise
            finally:
                self.driving = None
            return True

    def drive(self, channel: LocalChannel | None) -> None:
        """Append, sync, answer and do due work on behalf of `channel`, which needs no waking."""
        now = self._clock()
        if not self._pending and now.monotonic_s < self._due:
            return
        with self.lock:
            if self.closed:
                return
            if self._broken:
                self._mend()
            self.driving = channel
            try:
                self._turn(now)
            except BaseException:
                self._broken = self._pending = True
                raise
            finally:
                self.driving = None

    def _turn(self, now: Now) -> None:
        wait = 0.0
        while self._pending or wait <= 0.0:
            self._pending = False
            for log in self._node.flush(now):
                with suppress(Poisoned):  # the log keeps the reason, and the node answers with it
                    self._store.sync(log)
                if log.options.commit == "written":
                    self._lazy[log] = None
                    self._lazy_at = min(self._lazy_at, now.monotonic_s + LAZY_S)
            if now.monotonic_s >= self._lazy_at:
                self._sync_lazy()
            self._node.advance(now)
            wait = self._node.tick(now)
        self._due = min(now.monotonic_s + wait, self._lazy_at)

    def _sync_lazy(self) -> None:
        """Sync logs that no request waits for: snapshots, retention and open files of full segments need it."""
        lazy, self._lazy, self._lazy_at = self._lazy, {}, FOREVER
        for log in lazy:
            with suppress(Poisoned, Closed):
                self._store.make_durable(log)

    def due(self) -> float:
        """When `drive` has work of its own."""
        if self._pending:
            return 0.0
        return self._due if self._follows_time else FOREVER

    def disconnect(self, channel: LocalChannel) -> None:
        """Drop the requests that the channel waits for."""
        with self.lock:
            if self.closed or self._broken:
                return
            try:
                self._node.disconnect(channel)
            except BaseException:
                self._broken = self._pending = True
                raise

    def leave(self, channel: LocalChannel) -> None:
        """Remove a closed channel."""
        with self.lock:
            self._channels.discard(channel)
            self.disconnect(channel)

    def close(self) -> None:
        """Close all logs cleanly and give the directory back. Repeating it finishes what an interrupt left."""
        with self.lock:
            begun, self.closed = self.closed, True
            try:
                if not begun and not self._broken:
                    self._node.close(self._clock())
            finally:
                self._store.close()
                if self._guard is not None:
                    self._guard.release()


class LocalChannel:
    """A channel to a node in this process."""

    remote = False
    together = nullcontext  # it works when one looks for answers
    refusal = None
    unreachable = False
    more = True

    def __init__(
        self,
        broker: LocalBroker,
        *,
        on_close: Callable[[], None] | None = None,
        on_message: Callable[[], None] | None = None,
    ) -> None:
        self.connections = 1
        self._on_close = on_close
        self._on_message = on_message
        self._broker = broker
        self._inbox: deque[tuple[Answer, Buffer]] = deque()
        self._wake = Bell()
        self._broken_off = False
        self._closed = False

    @property
    def connected(self) -> bool:
        return not self._broken_off

    def put(self, message: Answer, payload: Buffer) -> bool:
        """Take a message of the node for this channel."""
        if self._closed:
            return False
        self._inbox.append((message, payload))
        if self._broker.driving is not self:
            (self._on_message or self.wake)()
        return True

    def now_us(self) -> int:
        return self._broker.now_us()

    def choose_delivery(self, group: str, wanted: str) -> str:
        """Choose the only way there is in one process. See ClientChannel."""
        if wanted == "mapped":
            raise InvalidArgument('delivery="mapped" reads files, and there are none: leave it at "auto"')
        return "control"

    def open_source(self, welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
        raise AssertionError("this channel never chooses mapped delivery")

    def open_logs(self, welcome: Welcome) -> LogSource:
        raise AssertionError("this channel never chooses mapped delivery")

    def send(self, message: Message, payload: Buffer = b"") -> bool:
        return not self._broken_off and self._broker.receive(self, message, payload)

    def receive(self) -> tuple[Answer, Buffer] | None:
        if not self._inbox:
            self._broker.drive(self)
        if self._broken_off:
            self._begin_anew()
        if self._inbox:
            return self._inbox.popleft()
        self._wake.hush()
        return self._inbox.popleft() if self._inbox else None

    def _begin_anew(self) -> None:
        self._broker.disconnect(self)
        self._inbox.clear()
        self.connections += 1
        self._broken_off = False

    def listen(self, endpoint: str) -> None:
        raise AssertionError("a node in this process has no endpoints of its own")

    def unlisten(self, endpoint: str) -> None:
        raise AssertionError("a node in this process has no endpoints of its own")

    def due(self) -> float:
        return 0.0 if self._broken_off else self._broker.due()

    def fileno(self) -> int:
        return self._wake.fileno()

    def look_again(self) -> None:
        """Do nothing: no message is ever missed here. See ClientChannel."""

    def break_off(self) -> None:
        self._broken_off = True
        (self._on_message or self.wake)()

    def wake(self) -> None:
        if not self._closed:
            self._wake.ring()

    def close(self) -> None:
        self._closed = True
        self._broker.leave(self)
        self._wake.close()
        if self._on_close is not None:
            self._on_close()


# -- brokers of this process ------------------------------------------------------------------------------

_brokers: dict[str, LocalBroker] = {}
_brokers_lock = threading.Lock()


def memory_broker(name: str, clock: Clock | None = None) -> LocalBroker:
    """The broker of `mem://name`: the same for all in this process until `forget`; without a name, a new one."""
    with _brokers_lock:
        broker = _brokers.get(f"mem://{name}") if name else None
        if broker is None or broker.closed:
            files = MemoryFiles()
            files.mkdir("/data")
            broker = LocalBroker("/data", files, clock=clock)
            if name:
                _brokers[f"mem://{name}"] = broker
        return broker


def forget(name: str) -> None:
    """Drop the broker of `mem://name` and all it holds."""
    with _brokers_lock:
        broker = _brokers.pop(f"mem://{name}", None)
    if broker is not None:
        broker.close()


def directory_channel(data: str, files: Files, on_message: Callable[[], None]) -> LocalChannel:
    """A channel to the node of a directory, opened by the first and closed with the last of this process.

    Raises AlreadyOpen, which names the holder; ForeignDirectory, NewerFormat; StorageError when its files cannot be
    opened.
    """
    path = os.path.realpath(data)
    with _brokers_lock:
        broker = _brokers.get(path)
        if broker is None or broker.closed:
            broker = _brokers[path] = _open_directory(path, files)
        return broker.connect(on_message, lambda: _leave(path, broker))


def _open_directory(path: str, files: Files) -> LocalBroker:
    try:
        files.mkdir(path)
        check_alone(identify(files, path), path)
        guard = lock.take(f"{path}/lock", files)
        try:
            return LocalBroker(path, files, guard=guard)
        except BaseException:
            guard.release()
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error}") from error


def _leave(path: str, broker: LocalBroker) -> None:
    with _brokers_lock:
        if not broker.used:
            if _brokers.get(path) is broker:
                del _brokers[path]
            broker.close()


def _forget_all() -> None:
    """Drop a forked child's brokers, which are its parent's."""
    global _brokers_lock
    _brokers.clear()
    _brokers_lock = threading.Lock()


forks.in_child(_forget_all)


def is_held(path: str) -> bool:
    """Whether this process has the node of a directory open."""
    broker = _brokers.get(path)
    return broker is not None and not broker.closed
