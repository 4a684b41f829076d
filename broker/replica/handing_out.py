"""Hands out single batches to a member in whose copy of a log they have rotted.

Idea: any member can, in any role, as the chain of the asking member's own log says what belongs there (mending.py):
what is not committed, or is void by now, does not fit. So a member that has lost something itself hands out what it
still has.

Contract: reads only, and verifies every byte of what leaves. A piece is bounded by `PIECE_BYTES` or one batch, and what
leaves in one tick by `TICK_BYTES`; a question above that is dropped, and will be asked again.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ...storage import layout
from ...storage.errors import InvalidBatch, StorageError
from ...storage.reader import LogReader
from .catchup_messages import PIECE_BYTES, AskWhole, WholeBatches
from .shipping import TICK_BYTES, SendPiece

if TYPE_CHECKING:
    from ...storage.batch import Batch
    from ...storage.files import Files


class HandingOut:
    """See the module."""

    def __init__(self, files: Files, data: str, send: SendPiece) -> None:
        self._files = files
        self._data = data
        self._send = send
        self._left = TICK_BYTES

    def tick(self) -> None:
        """Time passed: more may leave."""
        self._left = TICK_BYTES

    def asked(self, member: int, ask: AskWhole) -> None:
        """A member asks for batches."""
        if self._left <= 0:
            return
        try:
            found = self._read(ask)
        except (StorageError, OSError):
            found = []
        self._left -= sum(map(len, found))
        self._send(member, WholeBatches(ask.log_id, ask.seq), found)

    def _read(self, ask: AskWhole) -> list[bytes]:
        """What there is of it, up to what does not verify. Raises StorageError, OSError."""
        path = f"{self._data}/{ask.log}"
        names, _ = layout.live_segments(self._files.listdir(path))
        if not names or ask.seq < names[0].base_seq:
            return []
        end = layout.word(names[-1].generation, ask.last)
        with closing(LogReader(path, self._files, limit=lambda: end, log_id=ask.log_id)) as reader:
            chunk = reader.cursor_at(ask.seq).next(PIECE_BYTES, ask.last)
            return [] if chunk is None else [bytes(batch.buffer) for batch in _whole(chunk.batches)]


def _whole(batches: list[Batch]) -> list[Batch]:
    """The batches before the first that does not verify."""
    for at, batch in enumerate(batches):
        try:
            batch.check()
        except InvalidBatch:
            return batches[:at]
    return batches
