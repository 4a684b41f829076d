"""One segment opened for reading, and a bounded cache of such readers.

Idea: a `SegmentReader` returns bytes (copied, or views of a mapping), finds batches through the index, and falls back
to scanning when the index is wrong. Nothing is believed before a batch header agrees.

Contract: reading never locks, never writes, and never waits for a writer. A view of a mapping stays valid after its
reader was evicted from the cache. Not for use by several threads at once.
Must not know: which batches are committed, what comes before or after this segment.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from . import index, layout, log_ids
from .batch import HEADER_BYTES_MAX, Batch, parse
from .errors import InvalidBatch
from .files import File, Files
from .index import IndexRows
from .layout import DATA_START, IndexRow, SegmentName
from .recovery import LogEnd, before, end_before, next_good, read_batch, walk
from .segment import Page, read_page, reference
from .unreadable import PatientFile

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


class SegmentReader:
    """A segment and its index, open. Raises FileNotFoundError when the segment is gone."""

    def __init__(
        self, files: Files, directory: str, name: SegmentName, log_id: bytes | None = None, *, mapped: bool
    ) -> None:
        """`log_id`: bytes of another log are damage; None: as its first page says."""
        self.name = name
        self._log_id = log_id
        self.ref = reference(directory, name)
        self._files = files
        self._mapped = mapped
        self.file = files.open(self.ref.path)
        self._page: Page | None = None
        self._view = memoryview(b"")
        self._index: File | None = None
        self._found: list[tuple[int, IndexRow]] | None = None

    @property
    def page(self) -> Page:
        """Header and mark as they were when first asked for."""
        if self._page is None:
            self._page = self._page_now()
        return self._page

    def _page_now(self) -> Page:
        """Neither header nor mark where the disk cannot read them."""
        try:
            return read_page(self.file, self._log_id, name=self.name)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return Page(None, None, self.size)

    def mark_of(self, seq: int) -> layout.Mark | None:
        """The mark, as it is now, if it names the batch `seq`: it tells where a damaged one ends."""
        mark = self._page_now().mark
        return mark if mark is not None and mark.seq == seq else None

    @property
    def size(self) -> int:
        """Bytes reserved now: it grows while the segment is written."""
        return self.file.size()

    def start(self) -> LogEnd:
        """The place before the first batch, from the header or, when that is damaged, from the batch itself."""
        if self.page.header is not None:
            return end_before(self.page.header)
        first = read_batch(self.file.pread, DATA_START, self.size)
        if first.seq != self.name.base_seq or not self.has(first):
            raise InvalidBatch(f"batch {first.seq} stands where {self.name.base_seq} belongs, or is another log's")
        return before(first)

    def read(self, size: int, position: int) -> Buffer:
        """Read `size` bytes or what there is: a view of the mapping, or a copy."""
        if not self._mapped:
            return self.file.pread(size, position)
        if position + size > len(self._view) and len(self._view) < self.size:
            self._view = self.file.map()
        return self._view[position : position + size]

    def read_on(self, size: int, position: int) -> Buffer:
        """As `read`, but by what the file has grown since it was mapped there may be less: asking costs a system call.

        A caller that finds bytes missing calls `map_again` and reads again.
        """
        if position < len(self._view):
            return self._view[position : position + size]
        return self.read(size, position)

    @property
    def mapping(self) -> memoryview:
        """The mapping of the file, from its first byte on; the file may have grown since."""
        return self._view

    def map_again(self) -> None:
        """Forget the mapping: for a reader that misses what it was told is there."""
        self._view = memoryview(b"")

    def batch(self, position: int) -> Batch:
        """The batch at `position`. Raises InvalidBatch or BadChecksum."""
        return read_batch(self.read, position, self.size)

    def index_file(self) -> File | None:
        """The index, opened when first asked for; None when it is missing or another segment's.

        What the disk cannot read of it is no row.
        """
        if self._index is None:
            try:
                file = PatientFile(self._files.open(self.ref.index_path))
            except FileNotFoundError:
                return None
            if not self._is_index(file):
                file.close()
                return None
            self._index = file
        return self._index

    def _is_index(self, file: File) -> bool:
        found = layout.decode_index_header(file.pread(layout.INDEX_HEADER_BYTES, 0))
        if found is None:
            return False
        log_id, generation, base_seq = found
        return (base_seq, generation) == self.name and self.log_id in (None, log_id)

    def indexed(self, seq: int) -> IndexRow | None:
        """The row of `seq` if the index has it and the batch agrees."""
        file = self.index_file()
        if file is None:
            return None
        row = IndexRows(file, seq - self.name.base_seq + 1)[seq - self.name.base_seq]
        return row if self.agrees(seq, row) else None

    def row(self, seq: int) -> IndexRow | None:
        """The verified row of `seq`; None when no batch of that seq is in good order here."""
        row = self.indexed(seq)
        if row is not None:
            return row
        self._found = None  # the segment may have grown since it was scanned
        place = bisect_left(self.found(), seq, key=lambda pair: pair[0])
        known = self.found()[place : place + 1]
        return known[0][1] if known and known[0][0] == seq else None

    def agrees(self, seq: int, row: IndexRow) -> bool:
        """Whether the batch a row points to is the one it describes, and has this seq."""
        return self.described(row) == seq

    def described(self, row: IndexRow) -> int | None:
        """The seq of the batch that a row describes; None when another stands there, or none in good order.

        Batches may be large: of most rows the header says everything, so no more than that is read.
        """
        if row.position < DATA_START:
            return None
        available = self.size - row.position
        try:
            head = self.read(max(min(HEADER_BYTES_MAX, available), 0), row.position)
            batch = parse(head, available=available)
            if index.needs_columns(batch):
                batch = self.batch(row.position)
        except InvalidBatch:
            return None
        return batch.seq if self.has(batch) and index.row_of(batch, row.position) == row else None

    def candidates(self, count: int) -> list[Sequence[IndexRow]]:
        """The first `count` rows: as the index has them, and then as a scan finds them."""
        file = self.index_file()
        found = _FoundBatch(self, count)
        return [found] if file is None else [IndexRows(file, count), found]

    def found(self) -> list[tuple[int, IndexRow]]:
        """Seq and row of every good batch, by reading all of the segment; batches after damage included."""
        if self._found is None:
            self._found = self._scan()
        return self._found

    def _scan(self) -> list[tuple[int, IndexRow]]:
        size = self.size
        rows: list[tuple[int, IndexRow]] = []
        position, first = DATA_START, self.name.base_seq
        while True:
            good = takewhile(
                lambda found: found[1].seq >= first and self.has(found[1]), walk(self.read, position, size)
            )
            rows += [(batch.seq, index.row_of(batch, at)) for at, batch in good]
            end, seq = (rows[-1][1].end_position, rows[-1][0]) if rows else (DATA_START, self.name.base_seq - 1)
            resumed = self.next_good(end, seq)
            if resumed is None:
                return rows
            position = resumed[0]

    def next_good(self, position: int, after_seq: int) -> tuple[int, Batch] | None:
        """The first good batch at or after `position` with a seq above `after_seq`."""
        log_id = self.log_id
        if log_id is None:
            return None
        return next_good(self.read, position, self.size, log_id=log_id, after_seq=after_seq)

    def has(self, batch: Batch) -> bool:
        """Whether a batch is of this segment's log."""
        return self.log_id in (None, batch.log_id)

    @property
    def log_id(self) -> bytes | None:
        """The log this segment belongs to, as far as that is known, or its first page says."""
        if self._log_id is not None:
            return self._log_id
        header, mark = self.page.header, self.page.mark
        return header.log_id if header is not None else mark.log_id if mark is not None else None

    def close(self) -> None:
        """Close the files; views handed out stay good."""
        self.file.close()
        if self._index is not None:
            self._index.close()
            self._index = None


class _FoundBatch(Sequence[IndexRow]):
    """Scanned rows with a seq within the first `count` of a segment; the scan is made when first looked at."""

    def __init__(self, segment: SegmentReader, count: int) -> None:
        self._segment = segment
        self._limit = segment.name.base_seq + count
        self._rows: list[IndexRow] | None = None

    def _all(self) -> list[IndexRow]:
        if self._rows is None:
            self._rows = [row for seq, row in self._segment.found() if seq < self._limit]
        return self._rows

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, place: int) -> IndexRow:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._all()[place]


def log_of(files: Files, directory: str, names: Sequence[SegmentName]) -> bytes | None:
    """The log that the newest first page names, as a writer finds it; None when none names one.

    One that belongs in another directory does not count: where nothing else is named, it is the directory's own.
    """
    known: bytes | None = None
    for name in reversed(names):
        try:
            reader = SegmentReader(files, directory, name, mapped=False)
        except FileNotFoundError:
            continue  # retention took it
        try:
            found = reader.log_id
        finally:
            reader.close()
        if found is not None and not log_ids.is_misplaced(directory, found):
            return found
        known = known or (found and log_ids.own_id(directory))
    return known


class SegmentCache:
    """Segments open for reading, the longest unused one closed when there are too many.

    Share one between the readers of a process that has many logs: it bounds their descriptors.
    """

    def __init__(self, files: Files, limit: int = 8) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[tuple[str, SegmentName, bool], SegmentReader] = OrderedDict()

    def get(self, directory: str, name: SegmentName, log_id: bytes | None, *, mapped: bool) -> SegmentReader:
        """The segment of this log, open. Valid until others are asked for. Raises FileNotFoundError, StorageFull."""
        key = (directory, name, mapped)
        found = self._open.get(key)
        if found is not None:
            self._open.move_to_end(key)
            return found
        while len(self._open) >= self._limit:
            self._open.popitem(last=False)[1].close()
        found = self._open[key] = SegmentReader(self.files, directory, name, log_id, mapped=mapped)
        return found

    def give_way(self) -> bool:
        """Close the longest unused segment, for a process short of descriptors. False: only one in use may be left."""
        if len(self._open) > 1:
            self._open.popitem(last=False)[1].close()
            return True
        return False

    def drop(self, directory: str, *, but: Collection[SegmentName] = ()) -> None:
        """Close what is open of one log, `but` for these segments. A removed file takes space until it is closed."""
        for key in [key for key in self._open if key[0] == directory and key[1] not in but]:
            self._open.pop(key).close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
