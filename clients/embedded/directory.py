"""The channel of `file:///directory`: reads without the lock, and becomes the directory's node at the first change.

    reading without a group, topics, offsets, ends       answered by peek.py, beside a running broker, too
    anything else                                        takes the lock, opens the node, and stays with it

Contract: a client that only reads never locks, writes or creates anything. If another process holds the directory, the
first change is answered with AlreadyOpen, which names that process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...broker.engine.turns.replies import failure
from ...storage.board import boot_id
from ...storage.data_directory import check_alone, identify
from ...storage.errors import Error, OutOfBounds, ReadFailed
from ...storage.files import Files
from ...transport.bell import Bell
from ...transport.codec import VERSION
from ...transport.messages import (
    Answer,
    AskEnds,
    Assigned,
    Assignment,
    Credit,
    Done,
    FindOffsets,
    Hello,
    Join,
    Joined,
    Leave,
    ListTopics,
    Measure,
    Message,
    Offsets,
    Partition,
    Ping,
    Release,
    SeekTo,
    Topic,
    Topics,
    Welcome,
)  # fmt: skip
from ..connection.steps import FOREVER
from ..connection.unavailable import is_closed
from ..connection.wall_clock import wall_us
from ..errors import InvalidArgument
from ..reading.mapped import LogSource, MappedLog, MappedSource
from ..reading.watch import Blind, Watch
from .local import LocalChannel, directory_channel, is_held
from .peek import Peek
from .peeked_ends import PeekedEnds, measured

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


class DirectoryChannel:
    """See the module."""

    remote = False
    together = nullcontext
    refusal = None
    unreachable = False
    more = True

    def __init__(self, data: str, *, clock: Callable[[], float]) -> None:
        """Raises ForeignDirectory, NewerFormat."""
        self._data = os.path.realpath(data)
        self._files = Files()
        check_alone(identify(self._files, self._data), self._data)
        self._peek = Peek(self._data, self._files)
        self._ends = PeekedEnds(self._peek, clock)
        self._node: LocalChannel | None = None
        self._inbox: deque[tuple[Answer, Buffer]] = deque()
        self._sessions: dict[int, Any] = {}
        self._session = 0
        self._wake = Bell()
        self._begun = 1
        self._broken_off = False
        self._closed = False
        self._handlers: dict[type, Callable[[Any], Answer | None]] = {
            Hello: self._hello, Ping: lambda asked: Done(asked.request), ListTopics: self._topics,
            FindOffsets: self._offsets, Join: self._join, SeekTo: self._seek, Leave: self._leave,
            AskEnds: self._ends.ask, Measure: lambda asked: measured(self._peek, asked),
        }  # fmt: skip

    # -- as ClientChannel ---------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        return self._begun if self._node is None else self._begun - 1 + self._node.connections

    @property
    def connected(self) -> bool:
        return not self._broken_off

    def now_us(self) -> int:
        return wall_us()

    def choose_delivery(self, group: str, wanted: str) -> str:
        """Let a reader without a group map the files unless this process serves them. See ClientChannel."""
        serves = self._serves()
        if wanted == "mapped" and (group or serves):
            why = "which this process changes" if serves else f"which group={group!r} has this process change"
            raise InvalidArgument(
                f'delivery="mapped" cannot read {self._data}, {why}: leave delivery at "auto", or run penstock serve '
                "and connect to it"
            )
        return "control" if group or serves else "mapped"

    def send(self, message: Message, payload: Buffer = b"") -> bool:
        if self._broken_off:
            return False
        session = getattr(message, "session", 0)
        if session in self._sessions or (not session and not self._needs_node(message)):
            self._answer(message)
            return True
        try:
            node = self._node or self._open_node()
        except Error as error:
            self._inbox.append((failure(getattr(message, "request", 0), error), b""))
            return True
        return node.send(message, payload)

    def receive(self) -> tuple[Answer, Buffer] | None:
        if self._broken_off:
            self._inbox.clear()
            self._begun += 1
            self._broken_off = False
        self._inbox.extend((answer, b"") for answer in self._ends.look())
        if self._inbox:
            return self._inbox.popleft()
        self._wake.hush()
        return None if self._node is None else self._node.receive()

    def listen(self, endpoint: str) -> None:
        raise AssertionError("a directory has no endpoints of its own")

    def unlisten(self, endpoint: str) -> None:
        raise AssertionError("a directory has no endpoints of its own")

    def open_source(self, welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
        """See ClientChannel."""
        return MappedSource(topic, PeekedLogs(self._peek))

    def open_logs(self, welcome: Welcome) -> LogSource:
        """See ClientChannel."""
        return PeekedLogs(self._peek)

    def due(self) -> float:
        if self._inbox or self._broken_off:
            return 0.0
        return min(self._ends.due(), FOREVER if self._node is None else self._node.due())

    def fileno(self) -> int:
        return self._wake.fileno()

    def look_again(self) -> None:
        """Do nothing: no message is ever missed here. See ClientChannel."""

    def break_off(self) -> None:
        self._broken_off = True
        if self._node is not None:
            self._node.break_off()

    def wake(self) -> None:
        if not self._closed:
            self._wake.ring()

    def close(self) -> None:
        self._closed = True
        self._peek.close()
        if self._node is not None:
            self._node.close()
        self._wake.close()

    # -- the node -----------------------------------------------------------------------------------------

    def _serves(self) -> bool:
        return self._node is not None or is_held(self._data)

    def _needs_node(self, message: Message) -> bool:
        if type(message) is Hello:
            return False
        if self._serves():
            return True
        return type(message) not in self._handlers or (isinstance(message, Join) and bool(message.group))

    def _open_node(self) -> LocalChannel:
        """Become (or share) the node of this directory. Raises AlreadyOpen."""
        self._node = directory_channel(self._data, self._files, self.wake)
        return self._node

    # -- answers ------------------------------------------------------------------------------------------

    def _answer(self, message: Message) -> None:
        if isinstance(message, (Credit, Release)):
            return  # a session that reads by itself needs neither
        request = getattr(message, "request", 0)
        try:
            answer = self._handlers[type(message)](message)
        except Error as error:
            answer = failure(request, error)
        except OSError as error:
            answer = failure(request, ReadFailed(f"{self._data} cannot be read now: {error}"))
        if answer is not None:
            self._inbox.append((answer, b""))

    def _hello(self, asked: Hello) -> Answer:
        self._sessions.clear()  # those of an earlier connection
        return Welcome(
            asked.request, VERSION, "penstock, in process", "", "", 1, 64 << 20, 16 << 20, f"{boot_id():032x}",
            self._data, "",
        )  # fmt: skip

    def _topics(self, asked: ListTopics) -> Answer:
        return Topics(asked.request, self._peek.topics(asked.names))

    def _offsets(self, asked: FindOffsets) -> Answer:
        topic = self._peek.topic(asked.topic)
        readers = [self._peek.reader(partition.directory) for partition in topic.partitions]
        found = [(reader, self._peek.find(reader, asked.time_us)) for reader in readers]
        return Offsets(asked.request, [(offset, self._peek.term_before(reader, offset)) for reader, offset in found])

    def _join(self, asked: Join) -> Answer:
        topic = self._peek.topic(asked.topic)
        given = dict(asked.positions)
        assignments: list[Assignment] = []
        for partition in topic.partitions:
            if is_closed(partition):
                continue  # the consumer says so
            offset = given.get(partition.partition)
            if offset is None:
                offset = self._peek.find(self._peek.reader(partition.directory), asked.start)
            what = f"partition {partition.partition} of topic {topic.name}"
            _check(0, partition.end, offset, what)  # the reader is told what retention took
            assignments.append(Assignment(partition.partition, 1, offset, 0))
        self._session += 1
        self._sessions[self._session] = {a.partition: a.epoch for a in assignments}
        return Joined(asked.request, self._session, "", -1, assignments)

    def _seek(self, asked: SeekTo) -> Answer:
        epochs = self._sessions[asked.session]
        epochs[asked.partition] += 1
        moved = Assignment(asked.partition, epochs[asked.partition], asked.offset, 0)
        self._inbox.append((Assigned(asked.session, [moved], []), b""))
        return Done(asked.request)

    def _leave(self, asked: Leave) -> Answer:
        self._sessions.pop(asked.session, None)
        return Done(asked.request)


class PeekedLogs:
    """The logs of a directory, with or without a broker beside us. As mapped.Source."""

    def __init__(self, peek: Peek) -> None:
        self._peek = peek

    def open(self, partition: Partition) -> MappedLog:
        """Open a log; the reader finds out itself how far it may read. See mapped.Source."""
        return MappedLog(self._peek.reader(partition.directory, mapped=True), lambda: None, lambda: 0)

    def watch(self, partitions: Sequence[Partition]) -> Watch:
        """See mapped.Source."""
        return Blind([partition.partition for partition in partitions])

    def close(self) -> None:
        """Do nothing: the peek belongs to the channel. See mapped.Source."""


def _check(first: int, end: int, offset: int, what: str) -> None:
    if not first <= offset <= end:
        raise OutOfBounds(f"offset {offset} of {what} is out of range: {first} to {end} are valid")
