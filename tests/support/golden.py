"""One sample of every layout, made by the code: what `tests/golden/` holds the bytes of.

The samples never change; a new version of a layout gets new ones beside them. To write the file of a new
sample: `python -m support.golden NAME` in tests/ prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from penstock.storage import columns, finals, layout, runs, snapshots
from penstock.storage.batch import (
    Codec,
    ColumnId,
    Kind,
    assemble,
    encode,
    encode_raft,
    encode_state,
    parse,
    with_effects,
)  # fmt: skip
from penstock.storage.board import Board, Level, word
from penstock.storage.board_row import HEADER_WORD, slots_place
from penstock.storage.encoding import lay_out
from penstock.storage.header import Stamp, stamp
from penstock.storage.header_list import HeaderList
from penstock.storage.kept import keep
from penstock.storage.promises import journal

LOG_ID = bytes(range(16))
PROMISE = layout.Promise(LOG_ID, 3, bytes(range(16, 32)))
FINALS = [finals.Final(outcome, 9) for outcome in finals.Outcome]
TIME = 1_700_000_000_000_000


def stamped(batch: bytes | bytearray, seq: int = 7, base_offset: int = 40) -> bytes:
    head = stamp(batch, Stamp(seq, base_offset, 2, LOG_ID, TIME, 0x1122334455667788))
    return bytes(head) + bytes(batch[len(head) :])


def example() -> bytes:
    """The worked example of FORMAT.md."""
    return stamped(encode([b"one", b"three"], keys=[b"k", None], producer_id=10, producer_epoch=1, first_sequence=20))


def everything() -> bytes:
    """A batch with every column that is written today."""
    batch = encode(
        [b"", b"value", b"x" * 70],
        keys=[None, b"", b"key"],
        headers=[None, {}, {"a": b"1", "b": b""}],
        event_times=[0, -1, TIME],
        producer_id=2**64 - 1,
        producer_epoch=2**32 - 1,
        first_sequence=2**62,
    )
    return stamped(with_effects(batch, b"\x93\x01\x02\x03"))


def nulls() -> bytes:
    """Values of which some are null, beside an empty one."""
    return stamped(encode([None, b"", b"x"], keys=[b"k", b"k", None]))


def header_lists() -> bytes:
    """Headers that fit a map, and those that do not."""
    found = [{"a": b"1"}, None, HeaderList([("a", b"1"), ("b", None), ("a", b"2")]), HeaderList([("b", None)])]
    return stamped(encode([b"1", b"2", b"3", b"4"], headers=found))


def queued() -> bytes:
    """A batch with the columns that queues look at."""
    return stamped(encode([b"a", b"bb"], priorities=[0, 255], not_before=[TIME, 0], dedup=[b"", b"order-17"]))


def kept_before() -> bytes:
    """Kept records as they were written before they had their append times."""
    found = [
        (ColumnId.VALUE, Codec.NONE, columns.pieces([b"a", b"c"])),
        (ColumnId.KEY, Codec.NONE, columns.pieces([b"k", b"l"])),
        (ColumnId.EVENT_TIME, Codec.NONE, np.array([TIME, TIME], "<i8").tobytes()),
        (ColumnId.PRIORITY, Codec.NONE, bytes([1, 3])),
        (ColumnId.OFFSET, Codec.NONE, np.array([40, 42], "<i8").tobytes()),
    ]
    return stamped(assemble(Kind.KEPT, 2, found), seq=8, base_offset=90)


def kept() -> bytes:
    """Records kept under their own offsets, as a log has them."""
    source = parse(stamped(encode([b"a", b"bb", b"c"], keys=[b"k", None, b"l"], priorities=[1, 2, 3])))
    return stamped(keep(source, [(0, 1), (2, 1)]), seq=8, base_offset=90)


def compressed() -> bytes:
    """Two values of 120 bytes as some lz4 made them: libraries may differ in what they make, not in what they read."""
    stored = bytes.fromhex("900000000078000000f009009f000000616761696e200600d2506761696e20")
    return stamped(lay_out(Kind.RECORDS, 2, [(ColumnId.VALUE, Codec.LZ4, stored, 256)], 0, 0, 0))


def segment_header() -> bytes:
    header = layout.SegmentHeader(
        log_id=LOG_ID, generation=3, base_seq=8, base_offset=42, previous=0x99, base_term=2, base_time_us=TIME
    )
    return layout.encode_segment_header(header)


def mark() -> bytes:
    return layout.encode_mark(
        layout.Mark(
            log_id=LOG_ID,
            word=layout.word(3, 9),
            end_position=4608,
            end_offset=44,
            last_checksum=0xABCDEF,
            last_time_us=TIME,
            term=2,
            clean=True,
            counter=5,
        )
    )


def index_row() -> bytes:
    row = layout.IndexRow(42, 4096, TIME, 2, 0, 0xABCDEF, 2, 320, 1)
    return layout.INDEX_ROW_STRUCT.pack(*row)


def board() -> bytes:
    """A board of one row and one slot, without what depends on the machine."""
    made = Board.private(1, slots=1)
    for field in ("owner_pid", "boot_low", "boot_high"):
        made._words[HEADER_WORD[field]] = 0
    row = made.row(0)
    row.assign(int.from_bytes(LOG_ID, "little"), generation=3, level=Level.DURABLE)
    row.written, row.durable, row.first = word(3, 9), word(3, 8), 40
    row.synced, row.sync_started, row.poison, row.quorum = word(3, 8), word(3, 9), word(3, 9), word(3, 7)
    made._buffer[slots_place(1)] = 1
    return bytes(made._buffer)


SAMPLES: dict[str, Callable[[], bytes]] = {
    "batch_v1_example": example,
    "batch_v1_everything": everything,
    "batch_v1_lz4": compressed,
    "batch_v1_nulls": nulls,
    "batch_v1_header_lists": header_lists,
    "batch_v1_queued": queued,
    "batch_v1_kept": kept_before,
    "batch_v1_kept_with_append_times": kept,
    "batch_v1_state": lambda: stamped(encode_state(b"\x91\xc0")),
    "batch_v1_raft": lambda: stamped(encode_raft()),
    "segment_header_v1": segment_header,
    "mark_v1": mark,
    "index_header_v1": lambda: layout.encode_index_header(LOG_ID, 3, 8),
    "index_row_v1": index_row,
    "snapshot_v1": lambda: snapshots.encode_header(9, 2, b"state", LOG_ID) + b"state",
    "run_v1": lambda: runs.encode_header(5, b"part", LOG_ID) + b"part",
    "promise_v1": lambda: layout.encode_promise(PROMISE),
    "promise_v1_twins": lambda: journal([PROMISE]),
    "board_v1": board,
    "finals_v1": lambda: finals.encode_header(finals.Header(LOG_ID, bytes(range(16, 32)), 9)),
    "final_words_v1": lambda: np.array(list(map(finals.word, FINALS)), "<i8").tobytes(),
}


def dump(data: bytes) -> str:
    """Hex in lines of 16 bytes with their position; a run of zero lines is one `*`."""
    lines: list[str] = []
    zeros = False
    for position in range(0, len(data), 16):
        piece = data[position : position + 16]
        if not any(piece) and 0 < position < len(data) - 16:
            if not zeros:
                lines.append("*")
            zeros = True
            continue
        zeros = False
        lines.append(f"{position:06x}  {piece.hex(' ')}")
    return "\n".join(lines) + "\n"


def undump(text: str) -> bytes:
    """The bytes that `dump` shows."""
    data = bytearray()
    for line in text.splitlines():
        if line != "*":
            position, piece = line.split("  ", 1)
            data += bytes(int(position, 16) - len(data)) + bytes.fromhex(piece)
    return bytes(data)


if __name__ == "__main__":
    print(dump(SAMPLES[sys.argv[1]]()), end="")
