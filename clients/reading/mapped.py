"""Mapped delivery: a consumer that reads the broker's files itself.

    raise the slot -> look once more -> sleep on it         (the broker wakes only where a slot is raised)

Idea: the board says how far each partition is committed; everything below is mapped and handed out zero-copy,
without a broker round trip. The broker assigns partitions and keeps cursors as for any other member. A watch says
which partitions moved; one that moved by one batch has it right behind the last one, mapped already.

Contract: nothing above the committed word of the log's own row is read. `sleep` may run beside everything else;
what it uses is closed when it is back.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from ...storage.batch import Batch
from ...storage.board import Board, boot_id
from ...storage.board_row import ROW_WORD
from ...storage.errors import AcceptedLoss, Corrupt, Error, OutOfBounds
from ...storage.files import Files
from ...storage.layout import LOCK, log_number
from ...storage.lending.incarnation import CurrentNode
from ...storage.reader import Cursor, LogReader
from ...storage.segment_reader import SegmentCache
from ...transport.consumer_session import REMOVED
from ..errors import MappedUnavailable
from .watch import Blind, Watch, watch

if TYPE_CHECKING:
    from ...storage.futex import Futex
    from ...transport.consumer_session import ConsumerSession, Delivery, PartitionView
    from ...transport.messages import Joined, Partition, Topic, Welcome

CHUNK_BYTES = 8 << 20
"""Looked at in one go; nothing is copied, and what is checked is checked when it is handed out."""

POLL_S = 0.002
"""How often a reader looks that has no slot on a board to sleep on."""

OPEN_SEGMENTS = 64
"""Segments that one session keeps open, two descriptors each. Every mapping in use has one more."""


FIRST_PLACE = ROW_WORD["first"]
"""Which of a row's words says where its log begins."""

AGAIN = -1
"""No epoch: of a partition that has to be found again."""


class Followed(msgspec.Struct, eq=False):
    """One partition being read under one epoch."""

    log: MappedLog
    cursor: Cursor
    epoch: int


class MappedLog(NamedTuple):
    """One log's reader, its present committed word, and the first offset by the board; None and 0 without one."""

    reader: LogReader
    committed: Callable[[], int | None]
    first: Callable[[], int]


class LogSource(Protocol):
    """The logs of a mapped session."""

    def open(self, partition: Partition) -> MappedLog:
        """One partition's log. Raises MappedUnavailable."""
        ...

    def watch(self, partitions: Sequence[Partition]) -> Watch:
        """A watch that tells which logs moved."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class MappedSource:
    """The files of one mapped session: `logs` finds them, `waiter` is slept on."""

    def __init__(self, topic: Topic, logs: LogSource, waiter: SlotWaiter | None = None) -> None:
        self._topic = topic
        self._logs = logs
        self._waiter = waiter
        self._watch: Watch = Blind(())
        self._changes = -1  # of the session, that the watch is made for
        self._ready: dict[int, None] = {}  # partitions that may have more, each in its turn
        self._followed: dict[int, Followed] = {}

    # -- reading ----------------------------------------------------------------------------------------

    def next(self, session: ConsumerSession, *, look: bool) -> tuple[Delivery, list[Batch]] | None:
        """The next batches of any partition of `session`, each in its turn; None when all are at their end.

        `look`: whether to ask the watch what moved. A call of the application does so once: where records come one by
        one, as fast as they are read, it would else collect them without end and return none.

        Raises MappedUnavailable, and what reading a log raises; the next call raises it again.
        """
        if self._changes != session.changes:
            self._watch_all(session)
            look = True
        ready = self._ready
        if look:
            for partition in self._watch.moved():
                ready[partition] = None
        while ready:
            partition = next(iter(ready))
            try:
                found = self._next_of(session, session.partitions[partition])
            except OSError as error:  # out of descriptors, mostly
                raise MappedUnavailable(
                    f"partition {partition} cannot be mapped, use delivery='auto': {error}"
                ) from error
            del ready[partition]
            if found is not None:
                if found[0].missing or not self._followed[partition].cursor.at_limit:
                    ready[partition] = None  # the others come first
                return found
        return None

    def _watch_all(self, session: ConsumerSession) -> None:
        """Watch the partitions that the session reads now, and look at each."""
        self._changes = session.changes
        self._ready.clear()
        reading = [self._topic.partitions[view.partition] for view in session.partitions.values() if not view.closed]
        self._watch = self._logs.watch(reading)

    def _next_of(self, session: ConsumerSession, view: PartitionView) -> tuple[Delivery, list[Batch]] | None:
        followed = self._followed.get(view.partition)
        if followed is None or followed.epoch != view.epoch:
            try:
                followed = self._follow(view)
            except Corrupt as damage:
                return self._around(session, view, damage)
        if followed.cursor.offset < followed.log.first():
            followed = self._follow(view)
        if followed.cursor.offset > view.fetched:
            return session.take(view, view.fetched, followed.cursor.offset, b"", REMOVED), []
        committed = followed.log.committed()
        batch = None if committed is None else followed.cursor.follow(committed)
        if batch is None:
            return self._next_chunk(session, view, followed)
        end = batch.base_offset + batch.record_count
        return session.take(view, view.fetched, end, batch.buffer), [batch]

    def _next_chunk(
        self, session: ConsumerSession, view: PartitionView, followed: Followed
    ) -> tuple[Delivery, list[Batch]] | None:
        """The next batches, as many as are read at once."""
        while True:
            try:
                chunk = followed.cursor.next(CHUNK_BYTES)
            except OutOfBounds:
                self._follow(view)
                return self._next_of(session, view)
            except Corrupt as damage:
                return self._around(session, view, damage)
            if chunk is None:
                return None
            if chunk.next_offset > view.fetched:
                offset = max(chunk.offset, view.fetched)
                return session.take(view, offset, chunk.next_offset, chunk.buffer), chunk.batches

    def _around(self, session: ConsumerSession, view: PartitionView, damage: Corrupt) -> tuple[Delivery, list[Batch]]:
        """A delivery that names the records damage hides. Raises `damage` when nothing behind it can be read."""
        if damage.next_offset is None or damage.next_offset <= view.fetched:
            raise damage
        known = self._followed.get(view.partition)
        if known is not None:
            known.epoch = AGAIN
        accepted = isinstance(damage, AcceptedLoss)
        return session.take(view, view.fetched, damage.next_offset, b"", damage.message, accepted), []

    def _follow(self, view: PartitionView) -> Followed:
        """Begin to read a partition at its view's position, or behind what retention removed. Raises Corrupt."""
        known = self._followed.get(view.partition)
        log = known.log if known is not None else self._logs.open(self._topic.partitions[view.partition])
        cursor = log.reader.cursor(max(view.fetched, log.reader.first_offset))
        followed = self._followed[view.partition] = Followed(log, cursor, view.epoch)
        return followed

    # -- waiting ----------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """See Sleeper."""
        if self._waiter is None:
            time.sleep(min(seconds, POLL_S))
        else:
            self._waiter.sleep(seconds, self._watch)

    def wake(self) -> None:
        """See Sleeper."""
        if self._waiter is not None:
            self._waiter.wake()

    def close(self) -> None:
        """Release everything; batches handed out stay good. Idempotent."""
        for followed in self._followed.values():
            followed.log.reader.close()
        self._followed.clear()
        self._logs.close()
        if self._waiter is not None:
            self._waiter.close()


class SlotWaiter:
    """A slot on a broker's board. The board is closed when no thread sleeps any more."""

    def __init__(self, board: Board, slot: Futex) -> None:
        self._board = board
        self._slot = slot
        self._guard = threading.Lock()
        self._sleepers: set[int] = set()  # threads
        self._woken = False  # by this process: a sleep that comes a moment later is over too
        self._closed = False

    def sleep(self, seconds: float, watch: Watch) -> None:
        """Sleep until the broker wakes its readers, unless something was committed since `watch` told what moved."""
        me = threading.get_ident()
        try:  # from here on: Ctrl-C may come with the return of any call
            with self._guard:
                self._sleepers.add(me)
            self._slot.sleep(seconds, lambda: not (self._woken or self._closed) and watch.still())
        finally:
            with self._guard:
                self._sleepers.discard(me)
                if not self._sleepers:
                    self._woken = False
                    if self._closed:
                        self._board.close()

    def wake(self) -> None:
        """End a sleep."""
        with self._guard:
            if not self._closed:
                self._woken = True
                self._slot.wake_all()

    def close(self) -> None:
        """Release the slot, now or when the last sleeper is back. Repeating it finishes an interrupted one."""
        with self._guard:
            self._closed = True
            self._slot.wake_all()
            if not self._sleepers:
                self._board.close()


class BoardLogs:
    """The logs of a broker's topic, found over its board. As LogSource."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._files = Files()
        self._cache = SegmentCache(self._files, OPEN_SEGMENTS)
        self._lock: CurrentNode | None = None

    def open(self, partition: Partition) -> MappedLog:
        """See LogSource. The log says itself how far it may be read as long as the row is its own."""
        log_id = log_number(partition.log_id)
        row = self._board.row(partition.row) if partition.row >= 0 else None
        if row is None or row.committed_of(log_id) is None:
            raise MappedUnavailable(
                f"partition {partition.partition} is not on the broker's board, use delivery='auto'"
            )
        readable = partial(row.readable_word_of, log_id, self._lock_of(partition).is_current)
        last = 0

        def committed() -> int | None:
            """The highest word so far: a log that is taken back from a producer by force shows less for a moment."""
            nonlocal last
            found = readable()
            if found is None or found < last:
                return found and last
            last = found
            return found

        def limit() -> int:
            """The committed word; the last one known once the row changed hands, which ends the session soon."""
            committed()
            return last

        def first() -> int:
            found = row.words[FIRST_PLACE]
            return found if found and committed() is not None else 0

        try:
            reader = LogReader(
                partition.directory, self._files, mapped=True, limit=limit, first=first, cache=self._cache
            )
            reader.segment(reader.names[-1])
        except (Error, OSError) as error:
            raise MappedUnavailable(f"{partition.directory} cannot be read, use delivery='auto': {error}") from error
        return MappedLog(reader, committed, first)

    def _lock_of(self, partition: Partition) -> CurrentNode:
        """The lock of the data directory that a partition is in: DATA/topics/<topic>/<number>."""
        if self._lock is None:
            data = partition.directory.rsplit("/", 3)[0]
            self._lock = CurrentNode(f"{data}/{LOCK}", self._board)
        return self._lock

    def watch(self, partitions: Sequence[Partition]) -> Watch:
        """See LogSource."""
        return watch(
            self._board, {partition.partition: partition.row for partition in partitions if partition.row >= 0}
        )

    def close(self) -> None:
        """See Source; the last sleeper closes the board."""
        self._cache.close()


def is_local(welcome: Welcome | None) -> bool:
    """Whether a broker runs on this machine and shows a board."""
    return (
        sys.platform == "linux"
        and welcome is not None
        and bool(welcome.board)
        and welcome.boot_id == f"{boot_id():032x}"
    )


def board_source(welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
    """The source of a session with a broker on this machine.

    Raises MappedUnavailable, with the reason, when its files cannot be read from here.
    """
    _check_local(welcome)
    try:
        board, slot = Board.attach_slot(welcome.board, joined.slot)
    except (Error, OSError) as error:
        raise _no_board(welcome, error) from error
    return MappedSource(topic, BoardLogs(board), SlotWaiter(board, slot))


def board_logs(welcome: Welcome) -> BoardLogs:
    """The logs of a broker on this machine, for callers that do not wait. Raises MappedUnavailable, with the reason."""
    _check_local(welcome)
    try:
        return BoardLogs(Board.attach(welcome.board))
    except (Error, OSError) as error:
        raise _no_board(welcome, error) from error


def _check_local(welcome: Welcome) -> None:
    if not is_local(welcome):
        raise MappedUnavailable(
            'delivery="mapped" reads the files of a broker on this machine, and this one runs on another: use "auto"'
        )


def _no_board(welcome: Welcome, error: Exception) -> MappedUnavailable:
    return MappedUnavailable(f"the broker's board {welcome.board} cannot be opened, use delivery='auto': {error}")
