"""A segment: one preallocated file of batches behind a page with a header and two marks, and its index.

Idea: the writer's side (`Segment`) knows where the next byte goes and keeps room ahead of it; the page
functions read and write what FORMAT.md calls "segment page". Reading batches is reader.py's business.

Contract: a segment has its header, synced, before it has its name, so a name without a header is damage. The name is
durable before any batch counts as durable.
Bytes once written are never written again, except the two marks, each in a sector of its own.
Must not know: which batches are committed, readers, what happens after a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from . import layout
from .files import File, Files
from .layout import DATA_START, Mark, SegmentHeader, SegmentName

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


_VOID_BYTES = 64
"""Of a batch's header: its checksum and magic number are among them, and they lie within one sector."""

NEWEST_BYTES_MAX = 4096
"""A batch up to this size is kept until the next one is written: each open log has one."""


class SegmentRef(msgspec.Struct, frozen=True, gc=False):
    """A segment's identity for syncing or unlinking it. `path` is the segment file."""

    path: str
    base_seq: int
    generation: int

    @property
    def name(self) -> SegmentName:
        return SegmentName(self.base_seq, self.generation)

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(layout.SEGMENT_SUFFIX) + layout.INDEX_SUFFIX


class Page(msgspec.Struct, frozen=True, gc=False):
    """A segment's first page; a part that does not verify is None.

    `marks_overwritten`: something stands in the places of both marks, and neither of them verifies.
    """

    header: SegmentHeader | None
    mark: Mark | None
    size: int
    marks_overwritten: bool = False


class Newest(msgspec.Struct, frozen=True, gc=False):
    """The batch that was written last, as it stands at `position`, and the one before it, if that is small, too.

    A queue's reader finds two: the effects of the last ack, and the record after them.
    """

    seq: int
    position: int
    batch: bytes
    before: bytes = b""


class Segment:
    """The writer's hold on one segment: open files, the next position, the room reserved."""

    __slots__ = ("_names", "allocated", "file", "index", "last_seq", "newest", "position", "ref")

    def __init__(
        self, ref: SegmentRef, file: File, index: File, *, position: int, last_seq: int, names: Files | None = None
    ) -> None:
        """`names`: the name may not be durable yet, and the first sync makes it so."""
        self._names = names
        self.ref = ref
        self.file = file
        self.index = index
        self.position = position
        self.last_seq = last_seq
        self.newest: Newest | None = None
        self.allocated = file.size()

    def allocate(self, size: int) -> None:
        """Have blocks for `size` bytes. Raises StorageFull."""
        self.file.allocate(size)
        self.allocated = size

    def reserve_rows(self, seq: int) -> None:
        """Have blocks for the index rows up to `seq`. Raises StorageFull."""
        self.index.allocate(layout.index_position(self.ref.base_seq, seq + 1))

    def write_rows(self, seq: int, rows: Sequence[Buffer]) -> None:
        """Write the index rows of `seq` and those after it."""
        whole = rows if len(rows) == 1 else (b"".join(rows),)
        self.index.pwritev(whole, layout.index_position(self.ref.base_seq, seq))

    def write_batch(self, seq: int, buffers: Sequence[Buffer], end: int) -> None:
        """Write one batch behind the others, and keep a small one for readers that follow."""
        position, newest = self.position, None
        if end - position <= NEWEST_BYTES_MAX:
            last = self.newest
            before = last.batch if last is not None and last.seq == seq - 1 else b""
            newest = Newest(seq, position, b"".join(buffers), before)
            buffers = (newest.batch,)
        self.file.pwritev(buffers, position)
        self.position, self.last_seq, self.newest = end, seq, newest

    def sync(self) -> None:
        """Make all that is written durable, and the segment's name. Raises OSError (see `File.sync`), StorageFull."""
        self.file.sync()
        if self._names is not None:
            self._names.sync_dir(self.ref.directory)

    def name_is_durable(self) -> None:
        """The directory was synced since the segment has its name: no sync needs to do it again."""
        self._names = None

    def close(self) -> None:
        self.file.close()
        self.index.close()


def create(
    files: Files,
    directory: str,
    header: SegmentHeader,
    *,
    size: int,
    mark: Mark | None = None,
    spare: str | None = None,
    body: Sequence[Buffer] = (),
    durably: bool = True,
) -> Segment:
    """Make a segment: reserved, header synced, named, name synced. Raises StorageFull and leaves no segment then.

    Args:
        mark: written with the header when all before this segment is known to be durable.
        spare: a file prepared for this, renamed instead of making one; it need not exist any more.
        body: batches to begin with, durable before the segment has its name.
        durably: False leaves the name to the segment's first sync: until then a power cut may take all of it.
    """
    ref = reference(directory, SegmentName(header.base_seq, header.generation))
    file = _prepared(files, directory, size, spare)
    opened = [file]
    try:
        file.pwritev([layout.encode_segment_header(header)], 0)
        if mark is not None:
            file.pwritev([layout.encode_mark(mark)], layout.MARK_POSITIONS[0])
        if body:
            file.pwritev(body, DATA_START)
        file.sync()
        index = _create_index(files, ref, header)
        opened.append(index)
        files.rename(file.path, ref.path)
        file.path = ref.path
        if durably:
            files.sync_dir(directory)
    except BaseException:
        for each in opened:
            each.close()
        # An interrupt may come when the file has its name already and its path here does not say so yet.
        _discard(files, file.path if files.exists(file.path) else ref.path)
        _discard(files, ref.index_path)
        raise
    position, names = DATA_START + sum(map(len, body)), None if durably else files
    return Segment(ref, file, index, position=position, last_seq=header.base_seq - 1, names=names)


def void(files: Files, path: str, position: int) -> None:
    """Make what was begun at `position`, behind the end of the log, no batch, durably. Raises OSError, StorageFull.

    Through a descriptor of its own: one that another thread syncs may be told of a failure only once.
    """
    with files.open(path, write=True) as file:
        if any(file.pread(_VOID_BYTES, position)):
            file.pwritev([bytes(_VOID_BYTES)], position)
            file.sync()


def reopen(files: Files, ref: SegmentRef, mark: Mark) -> Segment:
    """A segment that was closed at `mark`, to go on in: no clean mark is left on the disk. Raises OSError."""
    file = files.open(ref.path, write=True)
    try:
        index = open_index(files, ref, mark.log_id)
        write_open_marks(file, mark)
        file.sync()
    except BaseException:
        file.close()
        raise
    return Segment(ref, file, index, position=mark.end_position, last_seq=mark.seq, names=files)


def remove(files: Files, segment: Segment) -> None:
    """Close and unlink a segment that holds nothing; what cannot be unlinked now the next generation removes."""
    segment.close()
    for path in (segment.ref.path, segment.ref.index_path):
        with suppress(OSError):
            files.unlink(path)


def _prepared(files: Files, directory: str, size: int, spare: str | None) -> File:
    # A spare may be gone again: the keeper that prepared it cleans up when it ends.
    # Nothing is reserved in it again: ext4 notes the call, and the next fdatasync would wait for its journal.
    if spare is not None and files.exists(spare):
        return files.open(spare, write=True)
    return files.create(f"{directory}/{layout.spare_name(files.new_id().hex())}", size)


def _create_index(files: Files, ref: SegmentRef, header: SegmentHeader) -> File:
    """An empty index; one left by a segment of this name that never came to be is overwritten from its start."""
    _discard(files, ref.index_path)
    index = files.create(ref.index_path)
    index.pwritev([layout.encode_index_header(header.log_id, header.generation, header.base_seq)], 0)
    return index


def open_index(files: Files, ref: SegmentRef, log_id: bytes) -> File:
    """The index of a segment, to be written; an empty one when it is missing."""
    if files.exists(ref.index_path):
        return files.open(ref.index_path, write=True)
    index = files.create(ref.index_path)
    index.pwritev([layout.encode_index_header(log_id, ref.generation, ref.base_seq)], 0)
    return index


def _discard(files: Files, path: str) -> None:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return


def reference(directory: str, name: SegmentName) -> SegmentRef:
    """The reference of a segment known by name."""
    return SegmentRef(f"{directory}/{name.segment_file}", name.base_seq, name.generation)


def read_page(file: File, log_id: bytes | None = None, *, name: SegmentName | None = None) -> Page:
    """Header and newest mark of a segment; neither when they are another segment's than `name`, or of another log.

    Raises NewerFormat.
    """
    page = file.pread(DATA_START, 0)
    header = layout.decode_segment_header(page)
    if header is not None and (
        name not in (None, (header.base_seq, header.generation)) or log_id not in (None, header.log_id)
    ):
        return Page(None, None, file.size())
    mark, _ = layout.newest_mark(page, log_id if header is None else header.log_id)
    return Page(header, mark, file.size(), mark is None and layout.both_marks_written(page))


def write_mark(file: File, mark: Mark) -> bool:
    """Write `mark` beside the newest one, unless that already says as much. The next sync makes it durable.

    Both the writer and its keeper come here; what loses a race is a true but older statement.
    """
    newest, slot = layout.newest_mark(file.pread(DATA_START, 0), mark.log_id)
    if newest is not None:
        if newest.word > mark.word or (newest.word == mark.word and (newest.clean or not mark.clean)):
            return False
        mark = msgspec.structs.replace(mark, counter=newest.counter + 1)
    file.pwritev([layout.encode_mark(mark)], layout.MARK_POSITIONS[slot])
    return True


def leave_mark(files: Files, path: str, mark: Mark, *, durably: bool = False) -> None:
    """As `write_mark`, into a segment that is not open."""
    with files.open(path, write=True) as file:
        write_mark(file, mark)
        if durably:
            file.sync()


def write_open_marks(file: File, mark: Mark) -> None:
    """Replace both marks by one that is not clean: no late writer of an older mark can uncover the clean one."""
    newest, _ = layout.newest_mark(file.pread(DATA_START, 0), mark.log_id)
    counter = 0 if newest is None else newest.counter
    for slot, position in enumerate(layout.MARK_POSITIONS):
        stale = msgspec.structs.replace(mark, clean=False, counter=counter + 1 + slot)
        file.pwritev([layout.encode_mark(stale)], position)
