"""Where a partition begins, for readers without a node.

Idea: the log says it, as everything about a partition: its newest snapshot, and the batches of effects behind that. A
question reads what was committed since the one before.

Contract: rises. What cannot be read, because it is damaged or of a newer version, leaves an earlier beginning: more is
read then, never less. Nothing is locked or written.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ...broker.engine.tables import effects as fx
from ...broker.engine.tables.entry import entry_of
from ...broker.engine.tables.state import VERSION, SnapshotBody, decode_body
from ...storage import snapshots
from ...storage.batch import Kind
from ...storage.errors import Error
from ...storage.files import Files
from ...storage.reader import LogReader


class PeekedFirst:
    """The beginning of one partition. Calling it tells the offset."""

    def __init__(self, reader: LogReader, files: Files) -> None:
        """`reader` is of the whole log, from its first segment on."""
        self._reader = reader
        self._files = files
        self._seq = -1  # up to which the log was read
        self._first = 0

    def __call__(self) -> int:
        with suppress(Error, OSError):
            limit = self._reader.limit()
            if self._seq < 0:
                self._begin(limit)
            if self._seq < limit:
                self._read_on(limit)
        return self._first

    def _begin(self, limit: int) -> None:
        self._reader.refresh()
        oldest = self._reader.names[0].base_seq
        self._seq = oldest - 1
        snapshot = snapshots.load_newest(self._files, self._reader.path, first_seq=oldest, last_seq=limit)
        if snapshot is not None:
            self._first = decode_body(snapshot.body, SnapshotBody, VERSION).first
            self._seq = snapshot.seq

    def _read_on(self, limit: int) -> None:
        cursor = self._reader.cursor_after(self._seq, whole=False)
        while (chunk := cursor.next(limit_seq=limit)) is not None:
            for batch in chunk.batches:
                if batch.kind == Kind.STATE:
                    self._apply(entry_of(batch).effects)
            self._seq = chunk.seq_last

    def _apply(self, effects: Iterable[fx.AnyEffect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.FirstOffset | fx.Trimmed):
                self._first = max(self._first, effect.offset)
