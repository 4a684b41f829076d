"""Mapped delivery: a consumer that reads the broker's files itself.

    set the slot -> look once more -> sleep on the semaphore         (the broker posts only where a slot is set)

Idea: the board says how far each partition is committed; whatever lies below is mapped and handed on without a
copy and without asking. The broker assigns partitions and keeps cursors as for any other member.

Contract: nothing above the committed word of the log's own row is read. `sleep` may run beside everything else;
what it uses is closed when it is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import posix_ipc

from ..storage.batch import Batch
from ..storage.board import Board, boot_id
from ..storage.board_row import Row
from ..storage.errors import Corrupt, Error, OutOfBounds
from ..storage.files import Files
from ..storage.layout import log_number
from ..storage.reader import Cursor, LogReader
from .errors import MappedUnavailable

if TYPE_CHECKING:
    from ..transport.consumer_session import ConsumerSession, Delivery, PartitionView
    from ..transport.messages import Joined, Partition, Topic, Welcome

CHUNK_BYTES = 1 << 20
POLL_S = 0.002
"""How often a reader without a semaphore looks."""


class Followed(msgspec.Struct, eq=False):
    """One partition being read under one epoch."""

    reader: LogReader
    cursor: Cursor
    epoch: int


class MappedSource:
    """The files of one mapped session; `open_reader` gives the reader of a partition, `waiter` what to sleep on."""

    def __init__(
        self, topic: Topic, open_reader: Callable[[Partition], LogReader], waiter: SlotWaiter | None = None
    ) -> None:
        self._topic = topic
        self._open_reader = open_reader
        self._waiter = waiter
        self._followed: dict[int, Followed] = {}
        self._turn = 0

    # -- reading ----------------------------------------------------------------------------------------

    def next(self, session: ConsumerSession) -> tuple[Delivery, list[Batch]] | None:
        """The next batches of any partition of `session`, each in its turn; None when all are at their end."""
        if self._waiter is not None:
            self._waiter.look()
        views = [view for view in session.partitions.values() if not view.revoked]
        for step in range(len(views)):
            view = views[(self._turn + step) % len(views)]
            found = self._next_of(session, view)
            if found is not None:
                self._turn = (self._turn + step + 1) % len(views)
                return found
        return None

    def _next_of(self, session: ConsumerSession, view: PartitionView) -> tuple[Delivery, list[Batch]] | None:
        followed = self._followed.get(view.partition)
        if followed is None or followed.epoch != view.epoch:
            followed = self._follow(view)
        while True:
            if self._waiter is not None:
                self._waiter.looked(view.partition)
            try:
                chunk = followed.cursor.next(CHUNK_BYTES)
            except OutOfBounds:
                followed = self._move(view, followed.reader.first_offset)
                continue
            except Corrupt as damage:
                if damage.next_offset is None or damage.next_offset <= view.fetched:
                    raise
                followed = self._move(view, damage.next_offset)
                continue
            if chunk is None:
                return None
            if chunk.next_offset > view.fetched:
                offset, end = max(chunk.offset, view.fetched), chunk.next_offset
                return session.take(view.partition, offset, end, end, chunk.buffer), chunk.batches

    def _follow(self, view: PartitionView) -> Followed:
        """Begin to read a partition where its view stands."""
        known = self._followed.pop(view.partition, None)
        reader = known.reader if known is not None else self._open_reader(self._topic.partitions[view.partition])
        try:
            cursor = reader.cursor(view.fetched)
        except OutOfBounds:
            view.fetched = max(view.fetched, reader.first_offset)
            cursor = reader.cursor(view.fetched)
        followed = self._followed[view.partition] = Followed(reader, cursor, view.epoch)
        return followed

    def _move(self, view: PartitionView, offset: int) -> Followed:
        """Go on behind what retention took or damage hides."""
        view.fetched = max(view.fetched, offset)
        view.end = max(view.end, view.fetched)
        return self._follow(view)

    # -- waiting ----------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """See Sleeper."""
        if self._waiter is None:
            time.sleep(min(seconds, POLL_S))
        else:
            self._waiter.sleep(seconds)

    def wake(self) -> None:
        """See Sleeper."""
        if self._waiter is not None:
            self._waiter.wake()

    def close(self) -> None:
        """Let go of everything; batches handed out stay good. Repeating it does nothing."""
        for followed in self._followed.values():
            followed.reader.close()
        self._followed.clear()
        if self._waiter is not None:
            self._waiter.close()


class SlotWaiter:
    """A slot on a broker's board and its semaphore. Closed only when nobody sleeps on it any more."""

    def __init__(self, board: Board, slot: int, semaphore: posix_ipc.Semaphore, rows: dict[int, Row]) -> None:
        self._board = board
        self._slot = slot
        self._semaphore = semaphore
        self._rows = rows
        self._seen: dict[int, int] = {}
        self._guard = threading.Lock()
        self._sleepers = 0
        self._closed = False

    def look(self) -> None:
        """All partitions are about to be looked at. One that is not, because it was given back, wakes nobody."""
        self._seen.clear()

    def looked(self, partition: int) -> None:
        """What is committed now is about to be read."""
        self._seen[partition] = self._rows[partition].committed_word()

    def sleep(self, seconds: float) -> None:
        """Until the broker posts, unless something was committed since it was looked at."""
        with self._guard:
            if self._closed:
                return
            self._sleepers += 1
        try:
            self._board.set_slot(self._slot, 1)
            if all(self._rows[partition].committed_word() == seen for partition, seen in list(self._seen.items())):
                self._acquire(seconds)
            self._board.set_slot(self._slot, 0)
        finally:
            with self._guard:
                self._sleepers -= 1
                if self._closed:
                    self._release()

    def _acquire(self, seconds: float) -> None:
        try:
            self._semaphore.acquire(seconds)
        except posix_ipc.BusyError:
            return  # nothing came in time

    def wake(self) -> None:
        """End a sleep."""
        with self._guard:
            if not self._closed:
                self._semaphore.release()

    def close(self) -> None:
        """Let go, now or when the last sleeper is back. Repeating it does nothing."""
        self.wake()
        with self._guard:
            if not self._closed:
                self._closed = True
                self._release()

    def _release(self) -> None:
        """Lock held."""
        if self._closed and not self._sleepers:
            self._semaphore.close()
            self._rows.clear()
            self._board.close()


def board_source(welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
    """The source of a session with a broker on this machine.

    Raises MappedUnavailable, with the reason, when its files cannot be read from here.
    """
    if welcome.boot_id != f"{boot_id():032x}" or not welcome.board:
        raise MappedUnavailable(
            'delivery="mapped" reads the files of a broker on this machine, and this one runs on another: use "auto"'
        )
    try:
        board = Board.attach(welcome.board, write=bool(joined.semaphore))
        rows = {partition.partition: board.row(partition.row) for partition in topic.partitions if partition.row >= 0}
        waiter = None
        if joined.semaphore:
            waiter = SlotWaiter(board, joined.slot, posix_ipc.Semaphore(joined.semaphore), rows)
    except (Error, OSError, posix_ipc.Error) as error:
        raise MappedUnavailable(
            f"the broker's board {welcome.board} cannot be opened, use delivery='auto': {error}"
        ) from error
    files = Files()
    return MappedSource(topic, lambda partition: _reader(files, partition, rows), waiter)


def _reader(files: Files, partition: Partition, rows: dict[int, Row]) -> LogReader:
    log_id = log_number(partition.log_id)
    row = rows.get(partition.partition)
    if row is None or row.committed_of(log_id) is None:
        raise MappedUnavailable(f"partition {partition.partition} is not on the broker's board, use delivery='auto'")

    last = 0

    def limit() -> int:
        """A row that changed hands says nothing any more: the session that it belongs to is about to be lost."""
        nonlocal last
        found = row.committed_word_of(log_id)
        if found is not None:
            last = found
        return last

    try:
        return LogReader(partition.directory, files, mapped=True, limit=limit)
    except (Error, OSError) as error:
        raise MappedUnavailable(f"{partition.directory} cannot be read, use delivery='auto': {error}") from error
