"""Doubts: the syncs that a dead broker and keeper left unresolved, kept until every such log is open again.

Idea: the board says which syncs failed (poison), and which may have begun and never answered: the keeper's
(`sync_started`) or the broker's own, wherever anything is written and not synced. What a producer appended to a log
that is lent to it counts as that, because the board need not know of it. The next broker sets the board up
anew, so it first writes the doubts into DATA/doubts: a crash during its start must not forget them, since the kernel
will not report a failed write-back twice. A file of doubts that cannot be read puts every log in doubt, and so does a
note of where the board is.

Contract: a doubt goes only when its log was opened with it taken into account. A reboot settles all doubts of
`written` bytes (the page cache is gone), but a doubt too many costs only a copy. Must not know: where logs are, how
they are opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ...storage.board import boot_id, split
from ...storage.data_directory import DOUBTS, is_board_unread, previous_board
from ...storage.errors import is_damage
from ...storage.layout import BOARD
from ..diagnostics import say

if TYPE_CHECKING:
    from ...storage.board import Board
    from ...storage.files import Files

EVERY_LOG = "*"
"""In place of the id of a log: nothing says which are in doubt."""


class Doubt(Struct, frozen=True):
    """One log in doubt. Not poisoned: its last sync never answered."""

    log_id: str
    poisoned: bool
    durable: int = 0  # last seq that a sync is known to have covered


class UnresolvedSyncs:
    """All of a data directory."""

    def __init__(self, files: Files, data: str) -> None:
        """Gather those of the last board and those an earlier start did not settle, and make them durable."""
        self._files = files
        self._data = data
        self._open = {doubt.log_id: doubt for doubt in _saved(files, data)}
        board = previous_board(files, data)
        if board is not None:
            if board.boot_id == boot_id():
                self._open.update((doubt.log_id, doubt) for doubt in doubts_of(board))
            board.close()
        elif is_board_unread(files, data):
            say(f"{data}/{BOARD} cannot be read, so every log is in doubt")
            self._open[EVERY_LOG] = Doubt(EVERY_LOG, False)
        self._save()

    def __bool__(self) -> bool:
        return bool(self._open)

    def about(self, log_id: bytes) -> Doubt | None:
        """The doubt about a log, if any."""
        name = log_id.hex()
        if EVERY_LOG in self._open and name not in self._open:
            self._open[name] = Doubt(name, False)
        return self._open.get(name)

    def settled(self, log_id: bytes) -> None:
        """The log is open, and what was in doubt is copied or cut."""
        self._open.pop(log_id.hex(), None)

    def save(self) -> None:
        """After a start: keep only what is still in doubt."""
        self._open.pop(EVERY_LOG, None)
        self._save()

    def _save(self) -> None:
        path = f"{self._data}/{DOUBTS}"
        if self._open:
            self._files.rewrite(path, msgspec.json.encode(list(self._open.values())))
        elif self._files.exists(path):
            self._files.unlink(path)
            self._files.sync_dir(self._data)


def doubts_of(board: Board) -> list[Doubt]:
    """The logs that a board without a writer leaves in doubt."""
    found: list[Doubt] = []
    for number in range(board.rows):
        row = board.row(number)
        unsynced = max(row.written, row.sync_started) > max(row.synced, row.durable)
        if row.log_id and (row.poison or row.lent or unsynced):
            durable = split(max(row.synced, row.durable))[1]
            found.append(Doubt(row.log_id.to_bytes(16, "little").hex(), bool(row.poison), durable))
    return found


def _saved(files: Files, data: str) -> list[Doubt]:
    """Doubts that an earlier start did not settle: about every log if they cannot be read. Raises OSError where that
    cannot be told now."""
    path = f"{data}/{DOUBTS}"
    if not files.exists(path):
        return []
    try:
        return msgspec.json.decode(files.read(path), type=list[Doubt])
    except (msgspec.MsgspecError, ValueError, OSError) as error:
        if isinstance(error, OSError) and not is_damage(error):
            raise
        say(f"{path} cannot be read, so every log is in doubt: {error}")
        return [Doubt(EVERY_LOG, False)]
