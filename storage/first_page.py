"""Rebuilds the unreadable first page of a segment from its neighbours and its index.

Idea: seq 1, its index, or the batch before it says where a segment begins; its last good batch, or the last row of its
index, says how far it was durable. With a header and a mark that say so, the segment is merely damaged: its good
batches are read, and missing ones are known by number.

Contract: writes only the first page. Believes an index as far as its rows are consecutive.
"""

from __future__ import annotations

from . import layout, log_ids, segment, snapshots
from .files import Files
from .layout import DATA_START, INDEX_HEADER_BYTES, INDEX_ROW_BYTES, INDEX_ROW_STRUCT, IndexRow, SegmentName
from .recovery import NOTHING, LogEnd, end_after
from .scan import owner
from .segment import reference
from .segment_reader import SegmentReader
from .unreadable import PatientFile


def log_id_of(files: Files, directory: str, names: list[SegmentName]) -> bytes | None:
    """The id of a log whose segments do not say it: from its snapshots and indexes; None where none says it either.

    One that belongs in another directory does not count.
    """
    whole = (each.name for each in snapshots.scan(files, directory) if each.problem is None)
    stated = [snapshots.load(files, directory, name).log_id for name in whole]
    found = owner(directory, [*stated, *(_index_header(files, directory, name) for name in names)])
    return None if found is None or log_ids.is_misplaced(directory, found) else found


def stated(files: Files, path: str) -> SegmentName | None:
    """The name that a segment's own header gives it; None when that does not verify."""
    with PatientFile(files.open(path)) as file:
        header = layout.decode_segment_header(file.pread(DATA_START, 0))
    return None if header is None else SegmentName(header.base_seq, header.generation)


def start_of(files: Files, directory: str, name: SegmentName, log_id: bytes, last: IndexRow | None) -> LogEnd | None:
    """The log's end at the start of a segment, None if unknown; `last` is the row of the batch before it, if known."""
    if name.base_seq == 1:
        return NOTHING
    if last is not None:
        return end_after(name.base_seq - 1, last)
    rows = _rows(files, directory, name, log_id)
    if not rows:
        return None
    return LogEnd(name.base_seq - 1, DATA_START, rows[0].base_offset, 0, rows[0].append_time_us, rows[0].term)


def write(files: Files, directory: str, name: SegmentName, log_id: bytes, start: LogEnd, before: int) -> None:
    """Give a segment from `start` to before seq `before` its first page. Raises OSError, StorageFull."""
    with files.open(reference(directory, name).path, write=True) as file:
        file.allocate(DATA_START)
        file.pwritev([bytes(DATA_START)], 0)
        file.pwritev([layout.encode_segment_header(start.header(log_id, name.generation))], 0)
        found = last_of(files, directory, name, log_id, before)
        if found is not None:
            seq, row = found
            segment.write_mark(file, layout.mark_from_row(log_id, layout.word(name.generation, seq), row))
        file.sync()


def last_of(files: Files, directory: str, name: SegmentName, log_id: bytes, before: int) -> tuple[int, IndexRow] | None:
    """Seq and row of the last batch that is or was in the segment."""
    reader = SegmentReader(files, directory, name, log_id, mapped=False)
    try:
        good = [found for found in reader.found() if found[0] < before]
    finally:
        reader.close()
    rows = list(enumerate(_rows(files, directory, name, log_id), name.base_seq))
    return max([*good[-1:], *rows[: before - name.base_seq][-1:]], default=None)


def _index_header(files: Files, directory: str, name: SegmentName) -> bytes | None:
    """The log that the index of a segment names; None when it is missing or another's."""
    path = reference(directory, name).index_path
    if not files.exists(path):
        return None
    with files.open(path) as file:
        found = layout.decode_index_header(file.pread(INDEX_HEADER_BYTES, 0))
    return found[0] if found is not None and (found[2], found[1]) == name else None


def _rows(files: Files, directory: str, name: SegmentName, log_id: bytes) -> list[IndexRow]:
    """The rows of an index from the first on, as far as each begins where the one before ends."""
    if _index_header(files, directory, name) != log_id:
        return []
    data = files.read(reference(directory, name).index_path)[INDEX_HEADER_BYTES:]
    rows: list[IndexRow] = []
    for place in range(0, len(data) - INDEX_ROW_BYTES + 1, INDEX_ROW_BYTES):
        row = IndexRow(*INDEX_ROW_STRUCT.unpack_from(data, place))
        position = rows[-1].end_position if rows else DATA_START
        if row.position != position or not row.batch_bytes or (rows and row.base_offset != rows[-1].end_offset):
            break
        rows.append(row)
    return rows
