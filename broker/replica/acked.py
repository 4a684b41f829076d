"""How far this member has acknowledged, and knows of commits, beside the marks of the order log.

Idea: a mark says how far the order log is synced. What is acknowledged also needs the batches that entries only name,
each in its own log. So the first page of the newest segment says how far that went, in a sector of its own, which the
next sync of the order log carries to the disk, as it does with marks. An opening that cannot follow the order so far
has lost what was durable. What is committed stands beside it, as the newest checkpoint, which says it too, may be gone.
The layout is ORDER.md, section 3.

Contract: what is written was durable before, so it is true whenever it reaches the disk. Losing it loses only what it
would have noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

from ...storage import layout
from ...storage.segment import reference

if TYPE_CHECKING:
    from ...storage.files import Files
    from ...storage.layout import SegmentName
    from ...storage.log import LogWriter

POSITION = 3072
"""In the first page of a segment."""

COMMITTED = POSITION + 32
"""Of the other word."""

ACKED = np.dtype(
    [
        ("checksum", "<u8"),  # xxh3_64 of the rest
        ("log_id", "V16"),
        ("word", "<u8"),
    ]
)
_STRUCT = struct.Struct("<Q16sQ")
assert _STRUCT.size == ACKED.itemsize


def note(log: LogWriter, entry: int, committed: int) -> bool:
    """Say in the newest segment of an order log that everything up to `entry` is durable, and up to `committed`, which
    is not above it, committed. Raises OSError.

    Returns whether there is one: a log that was opened takes up writing with the first append.
    """
    if not log.opened:
        return False
    words = [_sealed(log, layout.word(log.generation, each)) for each in (entry, committed)]
    log.opened[-1].file.pwritev([b"".join(words)], POSITION)
    return True


def _sealed(log: LogWriter, word: int) -> bytes:
    rest = _STRUCT.pack(0, log.log_id, word)[8:]
    return xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


def found(log: LogWriter, position: int = POSITION) -> Iterator[int]:
    """The words that the segments of an order log have. Raises OSError."""
    return stored(log.files, log.path, log.names, log.log_id, position)


def stored(
    files: Files, path: str, names: Sequence[SegmentName], log_id: bytes, position: int = POSITION
) -> Iterator[int]:
    """As `found`, of a log that is not open."""
    for name in names:
        with files.open(reference(path, name).path) as file:
            data = file.pread(_STRUCT.size, position)
        if len(data) == _STRUCT.size:
            checksum, owner, word = _STRUCT.unpack(data)
            if owner == log_id and checksum == xxh3_64_intdigest(bytes(data)[8:]):
                yield word
