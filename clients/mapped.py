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
from typing import TYPE_CHECKING

import msgspec
import posix_ipc

from ..storage.board import Board, boot_id
from ..storage.board_row import Row
from ..storage.errors import Corrupt, Error, OutOfBounds
from ..storage.files import Files
from ..storage.layout import log_number, word
from ..storage.reader import Cursor, LogReader
from ..storage.segment_reader import SegmentCache
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
    """The files of one mapped session. Raises MappedUnavailable, with the reason, when they cannot be read here."""

    def __init__(self, welcome: Welcome, topic: Topic, joined: Joined) -> None:
        if welcome.boot_id != f"{boot_id():032x}" or not welcome.board:
            raise MappedUnavailable(
                'delivery="mapped" reads the files of a broker on this machine; this one runs on another: use "auto"'
            )
        self._topic = topic
        self._slot = joined.slot
        self._files = Files()
        self._cache = SegmentCache(self._files)
        self._followed: dict[int, Followed] = {}
        self._seen: dict[int, int] = {}
        self._turn = 0
        self._closing = threading.Lock()
        self._sleepers = 0
        self._closed = False
        self._semaphore: posix_ipc.Semaphore | None = None
        self._board = self._attach(welcome.board, joined.semaphore)

    def _attach(self, name: str, semaphore: str) -> Board:
        try:
            board = Board.attach(name, write=bool(semaphore))
            if semaphore:
                self._semaphore = posix_ipc.Semaphore(semaphore)
        except (Error, OSError, posix_ipc.Error) as error:
            raise MappedUnavailable(f"the broker's board {name} cannot be opened ({error}); use delivery=\"auto\"") from error
        return board

    # -- reading ----------------------------------------------------------------------------------------

    def next(self, session: ConsumerSession) -> Delivery | None:
        """The next batches of any partition of `session`, each in its turn; None when all are at their end."""
        views = [view for view in session.partitions.values() if not view.revoked]
        for step in range(len(views)):
            view = views[(self._turn + step) % len(views)]
            found = self._next_of(session, view)
            if found is not None:
                self._turn = (self._turn + step + 1) % len(views)
                return found
        return None

    def _next_of(self, session: ConsumerSession, view: PartitionView) -> Delivery | None:
        followed = self._followed.get(view.partition)
        if followed is None or followed.epoch != view.epoch:
            followed = self._follow(view)
        while True:
            self._seen[view.partition] = self._row(view.partition).committed_word()
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
                return session.take(view.partition, offset, end, end, chunk.buffer)

    def _follow(self, view: PartitionView) -> Followed:
        """Begin to read a partition where its view stands."""
        known = self._followed.pop(view.partition, None)
        reader = known.reader if known is not None else self._open(self._topic.partitions[view.partition])
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

    def _open(self, partition: Partition) -> LogReader:
        row, log_id = self._row(partition.partition), log_number(partition.log_id)
        if row.committed_of(log_id) is None:
            raise MappedUnavailable(f"partition {partition.partition} is not on the broker's board any more: join again")

        def limit() -> int | None:
            found = row.committed_of(log_id)
            return None if found is None else word(*found)

        try:
            return LogReader(partition.directory, self._files, mapped=True, limit=limit, cache=self._cache)
        except (Error, OSError) as error:
            raise MappedUnavailable(f"{partition.directory} cannot be read ({error}); use delivery=\"auto\"") from error

    def _row(self, partition: int) -> Row:
        return self._board.row(self._topic.partitions[partition].row)

    # -- waiting ----------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """See Sleeper."""
        with self._closing:
            if self._closed:
                return
            self._sleepers += 1
        try:
            if self._semaphore is None:
                time.sleep(min(seconds, POLL_S))
            else:
                self._sleep_on(self._semaphore, seconds)
        finally:
            with self._closing:
                self._sleepers -= 1
                self._release()

    def _sleep_on(self, semaphore: posix_ipc.Semaphore, seconds: float) -> None:
        self._board.set_slot(self._slot, 1)
        if all(self._row(partition).committed_word() == seen for partition, seen in list(self._seen.items())):
            try:
                semaphore.acquire(seconds)
            except posix_ipc.BusyError:
                self._board.set_slot(self._slot, 0)
                return
        self._board.set_slot(self._slot, 0)

    def wake(self) -> None:
        """See Sleeper."""
        if self._semaphore is not None and not self._closed:
            self._semaphore.release()

    def close(self) -> None:
        """Let go of everything; batches handed out stay good. Repeating it does nothing."""
        self.wake()
        with self._closing:
            if not self._closed:
                self._closed = True
                self._release()

    def _release(self) -> None:
        """Close once nobody sleeps any more (lock held)."""
        if not self._closed or self._sleepers:
            return
        semaphore, self._semaphore = self._semaphore, None
        if semaphore is not None:
            semaphore.close()
        self._followed.clear()
        self._cache.close()
        self._board.close()
