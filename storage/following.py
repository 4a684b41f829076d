"""Publishes how far an embedded log may be read to readers in other processes, and follows such a publication.

Idea: an embedded log has a board of one row and one slot as a plain file beside its segments. The writer publishes on
it after every append and sync, and wakes the threads and processes that sleep on the slot; a reader follows its commit
word, and without a writer falls back to verifying the log itself, and to looking now and then.

Contract: a board of another boot or another log, or a retired one, is ignored. Following never blocks the writer. Must
not know: records, buffers.
"""

from __future__ import annotations

from . import layout
from .board import Board, boot_id
from .board_row import Level, Row
from .errors import BoardUnavailable
from .files import Files
from .first import read_first
from .futex import MISSING, Futex
from .layout import word
from .log import LogWriter
from .memory_files import MemoryFiles
from .opening import find_end

SLOTS = 1
"""One for all followers: a futex wakes any number of them."""


class BoardPublisher:
    """The writer's end. Made when it is known where the log begins: a reader never sees less of that."""

    def __init__(self, writer: LogWriter, files: Files) -> None:
        self._writer = writer
        if isinstance(files, MemoryFiles):
            self._board = Board.private(1, slots=SLOTS)
        else:
            self._board = Board.create(1, slots=SLOTS, file=f"{writer.path}/{layout.BOARD}")
        self.slot = None if MISSING else self._board.slot(0)
        level = Level.WRITTEN if writer.options.commit == "written" else Level.DURABLE
        self._row = self._board.row(0)
        self._row.assign(
            layout.log_number(writer.log_id), generation=writer.generation, level=level, written=writer.written,
            durable=writer.durable, first=writer.first_offset,
        )  # fmt: skip
        writer.on_first = self._begin
        if self.slot is not None:  # a writer before this one may have left sleepers
            self.slot.wake_all()

    def publish(self) -> None:
        """Publish the current end of the log."""
        writer, row = self._writer, self._row
        row.generation = writer.generation
        row.written = word(writer.generation, writer.written)
        row.durable = word(writer.generation, writer.durable)
        if self.slot is not None:
            self.slot.wake()

    def _begin(self, writer: LogWriter) -> None:
        """Publish where the log begins."""
        self._row.first = writer.first_offset

    def close(self) -> None:
        """Retire the board: without a writer, readers verify the log themselves."""
        self._board.retire()
        if self.slot is not None:
            self.slot.wake_all()
        self.slot = None
        self._board.close()


class Follower:
    """A reader's end: `limit` and `first` are what LogReader asks."""

    def __init__(self, path: str, files: Files) -> None:
        self._path = path
        self._files = files
        self._board: Board | None = None
        self._row: Row | None = None  # of that board
        self._slot: Futex | None = None
        self._epoch = 0
        self._id = find_end(files, path).log_id
        self._log_id = layout.log_number(self._id)

    def limit(self) -> int | None:
        """The commit word of a live writer; None without one: the reader goes by what verifies."""
        board, row = self._attached(), self._row
        if board is not None and row is not None:
            found = row.committed_word_of(self._log_id)
            if found is not None and board.epoch == self._epoch:
                return found
        return None

    def first(self) -> int:
        """The first offset that may be read, by the board of a live writer, else by the log's own file."""
        board, row = self._attached(), self._row
        if board is not None and row is not None:
            found = row.first if row.log_id == self._log_id else None
            if found is not None and board.epoch == self._epoch:
                return found
        return read_first(self._files, self._path, self._id)

    def slot(self) -> Futex | None:
        """The slot that a live writer wakes; None without one, or where this process may not write to its board."""
        self._attached()
        return self._slot

    def _attached(self) -> Board | None:
        board = self._board
        if board is not None and board.epoch == self._epoch:
            return board
        self.close()
        name = f"{self._path}/{layout.BOARD}"
        if isinstance(self._files, MemoryFiles):
            return None
        board = self._attach(name)
        if board is None:
            return None
        self._board, self._row, self._epoch = board, board.row(0), board.epoch
        if board.boot_id != boot_id():
            self.close()
        return self._board

    def _attach(self, name: str) -> Board | None:
        """The board there, with its slot where it has one and this process may write to that."""
        try:
            board, self._slot = Board.attach_slot(name, 0)
            return board
        except (BoardUnavailable, OSError):
            self._slot = None
        try:
            return Board.attach(name)
        except BoardUnavailable:
            return None

    def close(self) -> None:
        board, self._board, self._row, self._slot = self._board, None, None, None
        if board is not None:
            board.close()
