"""Publishes how far an embedded log may be read to readers in other processes, and follows such a publication.

Idea: an embedded log has a board of one row as a plain file beside its segments. The writer publishes on it after
every append and sync; a reader follows its commit word, and without a writer falls back to verifying the log itself.

Contract: a board of another boot or another log, or a retired one, is ignored. Following never blocks the writer. Must
not know: records, buffers.
"""

from __future__ import annotations

from . import layout
from .board import Board, boot_id
from .board_row import Level
from .errors import BoardUnavailable
from .files import Files
from .layout import word
from .log import LogWriter
from .memory_files import MemoryFiles
from .opening import find_end


class BoardPublisher:
    """The writer's end."""

    def __init__(self, writer: LogWriter, files: Files) -> None:
        self._writer = writer
        if isinstance(files, MemoryFiles):
            self._board = Board.private(1, slots=0)
        else:
            self._board = Board.create(1, slots=0, file=f"{writer.path}/{layout.BOARD}")
        level = Level.WRITTEN if writer.options.commit == "written" else Level.DURABLE
        self._row = self._board.row(0)
        self._row.assign(layout.log_number(writer.log_id), generation=writer.generation, level=level)
        self.publish()

    def publish(self) -> None:
        """Publish the current end of the log."""
        writer, row = self._writer, self._row
        row.generation = writer.generation
        row.written = word(writer.generation, writer.written)
        row.durable = word(writer.generation, writer.durable)

    def close(self) -> None:
        """Retire the board: without a writer, readers verify the log themselves."""
        self._board.retire()
        self._board.close()


class Follower:
    """A reader's end: `limit` is what LogReader asks."""

    def __init__(self, path: str, files: Files) -> None:
        self._path = path
        self._files = files
        self._board: Board | None = None
        self._epoch = 0
        self._log_id = layout.log_number(find_end(files, path).log_id)

    def limit(self) -> int | None:
        """The commit word of a live writer; None without one: the reader goes by what verifies."""
        board = self._attached()
        if board is not None:
            found = board.row(0).committed_of(self._log_id)
            if found is not None and board.epoch == self._epoch:
                return word(*found)
        return None

    def _attached(self) -> Board | None:
        board = self._board
        if board is not None and board.epoch == self._epoch:
            return board
        self.close()
        name = f"{self._path}/{layout.BOARD}"
        if isinstance(self._files, MemoryFiles):
            return None
        try:
            board = Board.attach(name)
        except BoardUnavailable:
            return None
        self._board, self._epoch = board, board.epoch
        if board.boot_id != boot_id():
            self.close()
        return self._board

    def close(self) -> None:
        board, self._board = self._board, None
        if board is not None:
            board.close()
