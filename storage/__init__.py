"""The log on disk and in memory: batches, segments, writer, readers, recovery, board, snapshots.

Floor 1 of penstock: imports nothing of the floors above. Knows bytes and seqs; no sockets, no groups.
The bytes are described in FORMAT.md.
"""

from __future__ import annotations

from .batch import Batch, Codec, ColumnId, Kind, Stamp, batches, encode, encode_raft, encode_state, parse, stamp
from .board import Board
from .board_row import Level, Row
from .cursor import Chunk, Cursor, NotCached
from .embedded import Log
from .files import File, FileLock, Files
from .layout import Mark, SegmentName, log_number, mark_from_row, split, word
from .lock import Holder, lock_path, take
from .log import LogOptions, LogWriter
from .memory_files import MemoryFiles
from .plan import Appended
from .promises import Promises
from .reader import LogReader
from .record import Record, records
from .recovery import Damage
from .segment import SegmentRef, write_mark
from .segment_reader import SegmentCache
from .snapshots import Snapshot

__all__ = [
    "Appended",
    "Batch",
    "Board",
    "Chunk",
    "Codec",
    "ColumnId",
    "Cursor",
    "Damage",
    "File",
    "FileLock",
    "Files",
    "Holder",
    "Kind",
    "Level",
    "Log",
    "LogOptions",
    "LogReader",
    "LogWriter",
    "Mark",
    "MemoryFiles",
    "NotCached",
    "Promises",
    "Record",
    "Row",
    "SegmentCache",
    "SegmentName",
    "SegmentRef",
    "Snapshot",
    "Stamp",
    "batches",
    "encode",
    "encode_raft",
    "encode_state",
    "lock_path",
    "log_number",
    "mark_from_row",
    "parse",
    "records",
    "split",
    "stamp",
    "take",
    "word",
    "write_mark",
]
