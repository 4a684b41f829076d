"""Cursors of readers in other processes while the log's writer is replaced by the next one."""

from __future__ import annotations

import pytest
from penstock.storage.batch import encode
from penstock.storage.errors import Diverged, OutOfBounds
from penstock.storage.layout import word
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.promises import Promises
from penstock.storage.reader import Cursor, LogReader

PATH = "/log"


class Served:
    """A log, and a reader that follows what its writer says of it, as over a board."""

    def __init__(self, *, mapped: bool) -> None:
        self.files = MemoryFiles()
        self.files.mkdir(PATH)
        self.writer = self.open(suspect=False)
        self.reader = LogReader(PATH, self.files, mapped=mapped, limit=self.committed)

    def committed(self) -> int:
        return word(self.writer.generation, self.writer.committed)

    def open(self, *, suspect: bool) -> LogWriter:
        promises = Promises("/promises", self.files)
        options = LogOptions(segment_bytes=20_000, commit="written")
        return LogWriter.create_or_open(
            PATH, files=self.files, log_id=b"l" * 16, options=options, promises=promises, suspect=suspect
        )

    def append(self, *values: bytes) -> None:
        for value in values:
            self.writer.append([encode([value])], 1)


@pytest.fixture(params=[False, True], ids=["copied", "mapped"])
def served(request: pytest.FixtureRequest) -> Served:
    return Served(mapped=request.param)


def rest(cursor: Cursor) -> list[bytes]:
    found: list[bytes] = []
    while (chunk := cursor.next()) is not None:
        for batch in chunk.batches:
            found += batch.values()
    return [value[:5] for value in found]


def test_a_reader_goes_on_where_its_batches_were_written_anew(served: Served):
    """Both processes die in a sync: the next writer copies the tail into a segment that begins before the reader."""
    served.append(b"1", b"2")
    served.writer.sync()
    served.append(b"3", b"4")
    read, unread, placed = served.reader.cursor(0), served.reader.cursor(0), served.reader.cursor(3)
    assert rest(read) == [b"1", b"2", b"3", b"4"]
    unread.next(1)
    served.writer = served.open(suspect=True)
    served.append(b"5")
    assert served.writer.generation == 2
    assert rest(read) == [b"5"]
    assert rest(unread) == [b"2", b"3", b"4", b"5"]
    assert rest(placed) == [b"4", b"5"]


def test_a_reader_is_told_when_other_batches_stand_where_its_own_did(served: Served):
    served.append(b"1", b"2")
    served.writer.sync()
    served.append(b"3", b"4")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"1", b"2", b"3", b"4"]
    served.writer.poison("a sync failed")
    served.writer = served.open(suspect=False)
    served.append(b"three", b"four", b"five")
    with pytest.raises(Diverged, match="valid end"):
        cursor.next()


def test_a_reader_that_retention_overtook_is_told_so_also_when_the_writer_is_another(served: Served):
    for number in range(4):
        served.append(b"%d" % number + bytes(9000))
    cursor = served.reader.cursor(0)
    cursor.next(1)
    served.writer.sync()
    served.writer.set_first(3)
    gone = served.writer.expired(99)
    assert gone
    for ref in gone:
        served.files.unlink(ref.path)
    served.writer.forget(gone)
    served.writer.close()
    served.writer = served.open(suspect=False)
    served.append(b"more")
    served.reader.refresh()
    with pytest.raises(OutOfBounds):
        cursor.next()
