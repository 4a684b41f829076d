"""The board of a node inside this process: tells readers in other processes how far each log is committed.

Idea: the same board as a broker's, with rows but without a keeper or slots for sleeping readers. With it, readers
beside `file://` see records once they are synced, not already when they are in the page cache.

Contract: a sync is marked before and after, so that if this process is killed in between, the next node knows which
logs are in doubt. Without a board, readers verify the logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.board import Level
from ...storage.data_directory import open_board
from ...storage.errors import BoardUnavailable, StorageFull
from ...storage.layout import log_number, word

if TYPE_CHECKING:
    from ...storage.board import Board, Row
    from ...storage.files import Files
    from ...storage.log import LogWriter

ROWS = 8192
"""256 bytes each; logs beyond them are read as far as they verify."""


class LocalBoard:
    """The rows of one directory's logs."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._rows: dict[str, Row] = {}
        self._free = list(range(board.rows - 1, -1, -1))
        self._numbers: dict[str, int] = {}

    @classmethod
    def create(cls, files: Files, data: str) -> LocalBoard | None:
        """A board for a directory that the caller has locked; None where there can be none."""
        try:
            return cls(open_board(files, data, rows=ROWS, slots=0))
        except (BoardUnavailable, StorageFull, OSError):
            # It is a help for readers of other processes, not a part of the log: they go on without.
            return None

    def hold(self, log: LogWriter) -> None:
        """Add the row of an opened log."""
        if not self._free:
            return
        number = self._numbers[log.path] = self._free.pop()
        row = self._rows[log.path] = self._board.row(number)
        level = Level.WRITTEN if log.options.commit == "written" else Level.DURABLE
        row.assign(
            log_number(log.log_id), generation=log.generation, level=level, written=log.written, durable=log.durable,
            first=log.first_offset,
        )  # fmt: skip
        log.on_first = self.publish

    def let_go(self, path: str) -> None:
        """Remove the row of a deleted log."""
        row = self._rows.pop(path, None)
        if row is not None:
            row.release()
            self._free.append(self._numbers.pop(path))

    def sync(self, log: LogWriter) -> None:
        """Sync a log and publish it. Raises Poisoned."""
        row = self._rows.get(log.path)
        if row is not None:
            row.sync_started = word(log.generation, log.written)
        log.sync()
        if row is not None:
            row.synced = word(log.generation, log.durable)

    def publish(self, log: LogWriter) -> None:
        """Publish a log's progress: durable first, so that a row never looks dirty for synced batches."""
        row = self._rows.get(log.path)
        if row is not None:
            row.generation = log.generation
            row.durable = word(log.generation, log.durable)
            row.written = word(log.generation, log.written)
            row.first = log.first_offset

    def retire(self) -> None:
        """Say that there is no writer: readers verify the logs. Unmapped when it is dropped."""
        self._rows.clear()
        self._board.retire()
