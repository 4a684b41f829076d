"""Cursors of readers in other processes while the log's writer is replaced by the next one."""

from __future__ import annotations

import pytest
from penstock.storage.batch import encode, encode_state
from penstock.storage.cursor import GUESS_BYTES
from penstock.storage.errors import Corrupt, Diverged, OutOfBounds
from penstock.storage.layout import word
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
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
            PATH, files=self.files, log_id=b"l" * 16, options=options, order=Sole(promises), suspect=suspect
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


def test_a_reader_is_told_of_a_cut_though_the_log_has_not_grown_past_it_again(served: Served):
    served.append(b"1", b"2")
    served.writer.sync()
    served.append(b"3", b"4", b"5")
    cursor, placed, before = served.reader.cursor(0), served.reader.cursor(5), served.reader.cursor(2)
    assert rest(cursor) == [b"1", b"2", b"3", b"4", b"5"]
    served.writer.poison("a sync failed")
    served.writer = served.open(suspect=False)
    served.append(b"three")
    for each in (cursor, placed):
        for _ in range(2):
            with pytest.raises(Diverged, match="from offset 2, its valid end"):
                each.next()
    assert rest(before) == [b"three"]


def test_a_reader_at_the_end_of_what_was_written_anew_goes_on(served: Served):
    served.append(b"1")
    served.writer.sync()
    served.append(b"2", b"3")
    cursor, placed = served.reader.cursor(0), served.reader.cursor(3)
    assert rest(cursor) == [b"1", b"2", b"3"]
    served.writer = served.open(suspect=True)
    served.reader.refresh()
    for each in (cursor, placed):
        assert rest(each) == []
        assert rest(each) == []
    served.append(b"4")
    for each in (cursor, placed):
        assert rest(each) == [b"4"]


def test_a_reader_is_told_of_a_cut_also_where_a_segment_begins_right_behind_it(served: Served):
    served.append(b"1", b"2")
    served.writer.sync()
    served.append(b"3", b"4")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"1", b"2", b"3", b"4"]
    served.writer.poison("a sync failed")
    served.writer = served.open(suspect=False)
    served.append(*(b"%d" % number + bytes(9000) for number in range(3)))  # each in a segment of its own
    with pytest.raises(Diverged, match="from offset 2, its valid end"):
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


def test_a_reader_at_the_end_guesses_how_long_the_next_batch_is_and_may_be_wrong(served: Served):
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    for number, size in enumerate([10, GUESS_BYTES - 500, GUESS_BYTES, 10, GUESS_BYTES + 1, 10]):
        value = b"%05d" % number + bytes(size)
        served.append(value)
        chunk = cursor.next()
        assert chunk is not None
        assert [found for batch in chunk.batches for found in batch.values()] == [value]
        assert len(chunk.buffer) == chunk.batches[0].batch_bytes
        assert cursor.next() is None


def follow_or_read(served: Served, cursor: Cursor) -> tuple[bool, list[bytes]]:
    """Whether `follow` had the next batch, and the values of what came."""
    batch = cursor.follow(served.committed())
    if batch is not None:
        return True, [value[:5] for value in batch.values()]
    return False, rest(cursor)


def test_a_mapped_reader_that_keeps_up_finds_each_batch_where_it_stands():
    served = Served(mapped=True)
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert follow_or_read(served, cursor) == (False, [b"first"])  # where it lies has to be found once
    for number in range(5):
        served.append(b"%d" % number)
        assert follow_or_read(served, cursor) == (True, [b"%d" % number])
        assert cursor.follow(served.committed()) is None
        assert cursor.next() is None
        assert cursor.offset == number + 2


def test_more_than_one_batch_is_not_followed_but_read():
    served = Served(mapped=True)
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    served.append(b"1", b"2")
    assert follow_or_read(served, cursor) == (False, [b"1", b"2"])
    served.append(b"3")
    assert follow_or_read(served, cursor) == (True, [b"3"])


def test_nothing_that_is_not_committed_is_followed():
    served = Served(mapped=True)
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    before = served.committed()
    served.append(b"next")
    assert cursor.follow(before) is None
    assert cursor.follow(served.committed() + 1) is None
    assert cursor.follow(word(served.writer.generation + 1, served.writer.committed)) is None
    assert rest(cursor) == [b"next"]


def test_a_batch_that_a_cut_made_void_is_not_followed():
    """The reader comes after the cut, and the one batch behind it has the seq of a void one in the segment before."""
    served = Served(mapped=True)
    served.append(b"1", b"2")
    served.writer.sync()
    served.append(b"void")
    served.writer.poison("a sync failed")
    served.writer = served.open(suspect=False)
    served.append(b"three")
    cursor = LogReader(PATH, served.files, mapped=True, limit=served.committed).cursor(0)
    first = cursor.next()
    assert first is not None
    assert [value for batch in first.batches for value in batch.values()] == [b"1", b"2"]
    assert follow_or_read(served, cursor) == (False, [b"three"])
    served.append(b"four")
    assert follow_or_read(served, cursor) == (True, [b"four"])


def test_a_reader_that_copies_follows_nothing():
    served = Served(mapped=False)
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    served.append(b"next")
    assert follow_or_read(served, cursor) == (False, [b"next"])


def test_the_first_batch_of_a_new_segment_is_found_and_the_ones_after_it_are_followed():
    served = Served(mapped=True)
    served.append(b"first" + bytes(15_000))
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    served.append(b"new" + bytes(15_000))
    assert len(served.writer.segments()) == 2
    followed, found = follow_or_read(served, cursor)
    assert (followed, found[0][:3]) == (False, b"new")
    served.append(b"on")
    assert follow_or_read(served, cursor) == (True, [b"on"])


def test_a_batch_of_state_is_read_over_and_the_next_one_followed():
    served = Served(mapped=True)
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    served.writer.append([encode_state(b"state")], 1)
    assert cursor.follow(served.committed()) is None
    assert rest(cursor) == []
    served.append(b"next")
    assert follow_or_read(served, cursor) == (True, [b"next"])


def test_a_batch_that_does_not_follow_the_one_before_is_left_to_next():
    served = Served(mapped=True)
    served.append(b"first")
    cursor = served.reader.cursor(0)
    assert rest(cursor) == [b"first"]
    position = cursor.position
    served.append(b"next")
    path = served.reader.segment_of(1).ref.path
    served.files.open(path, write=True).pwritev([b"\xff"], position + 40)
    assert cursor.follow(served.committed()) is None
    with pytest.raises(Corrupt):
        cursor.next()


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_a_cursor_goes_on_behind_segments_that_held_no_record_for_it(served: Served, more: bool, knows: bool):
    """A queue of which everything is finished: the next record stands in a segment that is there."""
    served.append(b"read")
    served.writer.append([encode_state(bytes(9000)) for _ in range(3)], 1)
    remembered, bounded, whole = served.reader.cursor(0), served.reader.cursor(0), served.reader.cursor_after(0)
    for cursor in (remembered, bounded, whole):
        assert cursor.next(1) is not None
    assert remembered.offset == 1
    served.writer.sync()
    served.writer.set_first(1)
    gone = served.writer.expired(99)
    assert gone
    for ref in gone:
        served.files.unlink(ref.path)
        served.files.unlink(ref.index_path)
    served.writer.forget(gone)
    assert served.writer.names[0].base_seq > remembered.seq
    served.append(*([b"1st", b"2nd"] if more else []))
    if knows:
        served.reader.refresh()
    else:
        served.reader.close()  # it finds no file then
    last = served.writer.names[0].base_seq - 1
    assert bounded.next(limit_seq=last) is None, "what is left is not applied yet"
    assert rest(remembered) == [b"1st", b"2nd"][: 2 * more]
    served.append(b"3rd")
    assert rest(remembered) == [b"3rd"]
    assert not served.reader.met_damage
    with pytest.raises(OutOfBounds, match="is gone"):
        whole.next()
