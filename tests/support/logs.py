"""Small logs made by hand from the format's own parts, without the writer: what damage tests damage.

`build` makes a directory with segments, indexes, marks and, if asked, snapshots. `copy_of` gives a fresh
memory with the same files, so that every mutant starts from the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.storage import layout, segment, snapshots
from penstock.storage.batch import Kind, encode, encode_state, of_kind, parse
from penstock.storage.files import Files
from penstock.storage.header import Stamp, stamp
from penstock.storage.index import row_of
from penstock.storage.layout import INDEX_ROW_STRUCT, SegmentName
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.recovery import NOTHING, LogEnd

LOG_ID = bytes(range(16, 32))
TIME = 1_700_000_000_000_000


@dataclass
class Built:
    """What is in the directory: the truth that damage is held against."""

    files: Files
    directory: str
    names: list[SegmentName] = field(default_factory=list)
    batches: dict[int, bytes] = field(default_factory=dict)  # seq -> bytes
    places: dict[int, tuple[SegmentName, int]] = field(default_factory=dict)  # seq -> segment and position
    values: dict[int, bytes] = field(default_factory=dict)  # offset -> value
    ends: list[LogEnd] = field(default_factory=lambda: [NOTHING])  # ends[seq] is the place after that batch
    end: LogEnd = NOTHING

    def segment_path(self, index: int = -1) -> str:
        return f"{self.directory}/{self.names[index].segment_file}"

    def index_path(self, index: int = -1) -> str:
        return f"{self.directory}/{self.names[index].index_file}"


def build(
    files: Files | None = None,
    directory: str = "/log",
    *,
    shape: Sequence[Sequence[int]] = ((2, 0, 1), (3, 1)),
    unmarked: int = 0,
    clean: bool = False,
    generation: int = 1,
    log_id: bytes = LOG_ID,
    value_bytes: int = 0,
) -> Built:
    """Make a log.

    Args:
        shape: records per batch, per segment; 0 is a batch of state, a number below that one of staged records.
        unmarked: so many batches at the end are above the mark.
        clean: the last mark says that the log was closed in good order.
        value_bytes: values are filled up to this size.
    """
    files = MemoryFiles() if files is None else files
    files.mkdir(directory)
    built = Built(files, directory)
    for counts in shape:
        name = SegmentName(built.end.seq + 1, generation)
        made = segment.create(files, directory, built.end.at_start().header(log_id, generation), size=layout.DATA_START)
        built.names.append(name)
        built.end = built.end.at_start()
        for count in counts:
            _append(built, made, name, count, log_id, value_bytes)
            built.ends.append(built.end)
        made.file.allocate(built.end.position + 256)
        made.close()
    if shape:
        _mark(built, built.ends[built.end.seq - unmarked], generation, log_id, clean and not unmarked)
    return built


def _append(
    built: Built, made: segment.Segment, name: SegmentName, count: int, log_id: bytes, value_bytes: int
) -> None:
    end = built.end
    values = [(b"value %d " % (end.offset + i)).ljust(value_bytes, b".") for i in range(abs(count))]
    raw = (
        encode(values, keys=[b"k%d" % i for i in range(len(values))]) if count else encode_state(b"state %d" % end.seq)
    )
    if count < 0:
        raw = of_kind(raw, Kind.STAGED)
    head = stamp(raw, Stamp(end.seq + 1, end.offset, 1, log_id, TIME + end.seq, end.checksum))
    data = bytes(head) + bytes(raw[len(head) :])
    batch = parse(data)
    made.file.pwritev([data], end.position)
    made.write_rows(batch.seq, [INDEX_ROW_STRUCT.pack(*row_of(batch, end.position))])
    built.batches[batch.seq] = data
    built.places[batch.seq] = (name, end.position)
    built.values.update({end.offset + i: value for i, value in enumerate(values[: max(count, 0)])})
    built.end = end.after(batch, end.position)


def _mark(built: Built, end: LogEnd, generation: int, log_id: bytes, clean: bool) -> None:
    """A mark in the segment that `end` lies in."""
    name = next(name for name in reversed(built.names) if name.base_seq <= max(end.seq, 1))
    file = built.files.open(f"{built.directory}/{name.segment_file}", write=True)
    segment.write_mark(file, end.mark(log_id, generation, clean=clean))
    file.close()


def add_snapshots(built: Built, *seqs: int) -> None:
    for seq in seqs:
        snapshots.save(built.files, built.directory, seq, 1, b"state at %d" % seq, LOG_ID)


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def copy_of(built: Built) -> MemoryFiles:
    """A memory of its own with the same files."""
    copied = MemoryFiles()
    copied.mkdir(built.directory)
    for name in built.files.listdir(built.directory):
        put(copied, f"{built.directory}/{name}", content(built.files, f"{built.directory}/{name}"))
    return copied


def put(files: Files, path: str, data: bytes) -> None:
    """Replace a file's content."""
    if files.exists(path):
        files.unlink(path)
    file = files.create(path, len(data))
    file.pwritev([data], 0)
    file.close()
