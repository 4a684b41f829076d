"""A segment's two files as the keeper holds them.

Idea: the keeper needs little of a segment: to sync it, to find where a seq ends (its index row, believed only
when the batch's header agrees), and to write the mark into the first page. The mark goes to the slot that
does not hold the newest one, read anew each time, since the broker writes marks as well when it syncs inline.

Contract: both descriptors live from `open` to `close`. The first sync makes the segment's name durable, too.
Must not know: boards, rounds, other holders of the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import layout, segment
from ...storage.header import CHECKSUM_STRUCT
from ...storage.layout import INDEX_ROW_BYTES, INDEX_ROW_STRUCT, IndexRow, SegmentName

if TYPE_CHECKING:
    from ...storage.files import File, Files


class SegmentFiles:
    """One registered segment."""

    __slots__ = ("_index", "_log_id", "_names", "base_seq", "data", "device")

    def __init__(self, data: File, index: File, log_id: bytes, base_seq: int, names: Files) -> None:
        self._names: Files | None = names
        self.data = data
        self.device, _ = data.identity()
        self.base_seq = base_seq
        self._index = index
        self._log_id = log_id

    @classmethod
    def open(cls, files: Files, directory: str, log_id: bytes, base_seq: int, generation: int) -> SegmentFiles:
        """Raises StorageFull without descriptors for them, OSError."""
        ref = segment.reference(directory, SegmentName(base_seq, generation))
        data = files.open(ref.path, write=True)
        try:
            index = files.open(ref.index_path)
        except BaseException:
            data.close()
            raise
        return cls(data, index, log_id, base_seq, files)

    def index_row(self, seq: int) -> IndexRow | None:
        """The index row of batch `seq`; None if it is not (yet) in this segment."""
        raw = self._index.pread(INDEX_ROW_BYTES, layout.index_position(self.base_seq, seq))
        if len(raw) < INDEX_ROW_BYTES:
            return None
        row = IndexRow(*INDEX_ROW_STRUCT.unpack(raw))
        if row.position == 0:
            return None
        checksum = self.data.pread(CHECKSUM_STRUCT.size, row.position)
        return row if checksum == CHECKSUM_STRUCT.pack(row.header_checksum) else None

    def write_mark(self, word: int, row: IndexRow) -> None:
        """Say in the file that everything up to the batch of `row` is durable."""
        segment.write_mark(self.data, layout.mark_from_row(self._log_id, word, row))

    def sync(self) -> None:
        """Raises OSError, StorageFull: never call it again for the same bytes."""
        self.data.sync()
        if self._names is not None:
            self._names.sync_dir(self.data.path.rpartition("/")[0])
            self._names = None

    def sync_index(self) -> None:
        """Make the index durable, once, when the segment is sealed."""
        self._index.sync()

    def close(self) -> None:
        self.data.close()
        self._index.close()
