"""A reader beside the writer that keeps up with it gets small batches from memory: the same bytes as the file has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.storage.batch import Kind, encode, encode_state, of_kind
from penstock.storage.files import File, Files
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import Cursor
from penstock.storage.segment import NEWEST_BYTES_MAX, Newest

ROLL_BYTES = 20_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    files = Files()
    made = LogWriter.create(
        f"{tmp_path}/log", files=files, log_id=b"l" * 16, order=Sole(Promises(f"{tmp_path}/promises", files)),
        options=LogOptions(segment_bytes=ROLL_BYTES, commit="written"),
    )  # fmt: skip
    yield made
    made.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where segments were read from the page cache."""
    positions: list[int] = []
    read = File.pread_cached

    def note(file: File, size: int, position: int) -> bytes | None:
        if file.path.endswith(".segment"):
            positions.append(position)
        return read(file, size, position)

    monkeypatch.setattr(File, "pread_cached", note)
    return positions


def append(log: LogWriter, *values: bytes) -> None:
    for value in values:
        log.append([encode([value])], 1)


def rest(cursor: Cursor, log: LogWriter) -> list[bytes]:
    found: list[bytes] = []
    while (chunk := cursor.next(1 << 20, log.written, cached=True)) is not None:
        assert bytes(chunk.buffer) == b"".join(bytes(batch.buffer) for batch in chunk.batches)
        found += [value for batch in chunk.batches for value in batch.values()]
    return found


def at_end(log: LogWriter) -> Cursor:
    """A cursor that has read everything."""
    append(log, b"before")
    cursor = log.reader().cursor(0)
    assert rest(cursor, log) == [b"before"]
    return cursor


def test_the_batch_written_last_is_read_without_the_file(log: LogWriter, reads: list[int]):
    cursor = at_end(log)
    reads.clear()
    for value in (b"one", b"two"):
        append(log, value)
        assert rest(cursor, log) == [value]
    assert reads == []


def test_it_is_what_the_file_has(log: LogWriter):
    cursor = at_end(log)
    append(log, b"one")
    at = log.reader().cursor(1)
    kept = cursor.next(1 << 20, log.written, cached=True)
    stored = at.next(1 << 20, log.written)
    assert kept is not None
    assert stored is not None
    assert bytes(kept.buffer) == bytes(stored.buffer)
    assert (kept.offset, kept.next_offset, kept.seq_last) == (stored.offset, stored.next_offset, stored.seq_last)
    assert (cursor.position, cursor.seq) == (at.position, at.seq)


def test_who_is_further_behind_reads_the_file(log: LogWriter, reads: list[int]):
    cursor = at_end(log)
    reads.clear()
    append(log, b"one", b"two", b"three")
    assert rest(cursor, log) == [b"one", b"two", b"three"]
    assert reads


def test_of_a_queue_the_effects_and_the_record_after_them_are_read_without_the_file(log: LogWriter, reads: list[int]):
    cursor = at_end(log)
    reads.clear()
    for value in (b"one", b"two"):
        log.append([encode_state(b"acked")], 1)
        append(log, value)
        chunk = cursor.next(1 << 20, log.written, cached=True)
        assert chunk is not None
        assert [batch.kind for batch in chunk.batches] == [Kind.STATE, Kind.RECORDS]
        assert chunk.batches[1].values() == [value]
        assert bytes(chunk.buffer) == b"".join(bytes(batch.buffer) for batch in chunk.batches)
        assert (cursor.seq, cursor.offset, cursor.position) == (log.written + 1, log.end_offset, log.end().position)
    assert reads == []


def test_two_batches_are_what_the_file_has(log: LogWriter):
    kept, stored = (log.reader().cursor(0) for _ in range(2))
    append(log, b"one", b"two")
    memory = kept.next(1 << 20, log.written, cached=True)
    disk = stored.next(1 << 20, log.written)
    assert memory is not None
    assert disk is not None
    assert bytes(memory.buffer) == bytes(disk.buffer)
    assert (memory.offset, memory.next_offset, memory.seq_first) == (disk.offset, disk.next_offset, disk.seq_first)
    assert (kept.position, kept.seq, kept.offset) == (stored.position, stored.seq, stored.offset)


def test_two_batches_that_are_too_much_at_once_come_one_by_one(log: LogWriter):
    cursor = at_end(log)
    append(log, b"one", b"two")
    for value in (b"one", b"two"):
        chunk = cursor.next(1, log.written, cached=True)
        assert chunk is not None
        assert [batch.values() for batch in chunk.batches] == [[value]]


@pytest.mark.parametrize("staged_first", [True, False])
def test_staged_batches_are_left_to_the_file(log: LogWriter, reads: list[int], staged_first: bool):
    cursor = at_end(log)
    reads.clear()
    pair = [of_kind(encode([b"staged"]), Kind.STAGED), encode([b"one"])]
    for batch in pair if staged_first else reversed(pair):
        log.append([batch], 1)
    assert rest(cursor, log) == [b"one"]
    assert reads


def test_only_the_batch_right_before_is_kept_with_the_newest(log: LogWriter):
    append(log, b"one")
    log.append([encode([b"a"]), encode([b"b"])], 1)
    append(log, b"two")
    assert log.opened[-1].newest == Newest(4, log.end().position - len(log.batch_at(4)), log.batch_at(4))
    append(log, b"three")
    assert log.opened[-1].newest == Newest(
        5, log.end().position - len(log.batch_at(5)), log.batch_at(5), log.batch_at(4)
    )


def test_a_small_batch_behind_a_large_one_has_none_before_it(log: LogWriter, reads: list[int]):
    cursor = at_end(log)
    large = bytes(NEWEST_BYTES_MAX)
    append(log, b"small")
    append(log, large)
    append(log, b"one")
    assert rest(cursor, log) == [b"small", large, b"one"]
    cursor, reads[:] = log.reader().cursor(2), []
    assert rest(cursor, log) == [large, b"one"]
    assert reads


def test_large_batches_and_those_appended_together_are_read_from_the_file(log: LogWriter, reads: list[int]):
    cursor = at_end(log)
    reads.clear()
    large = bytes(NEWEST_BYTES_MAX)
    append(log, large)
    assert rest(cursor, log) == [large]
    log.append([encode([b"a"]), encode([b"b"])], 1)
    assert rest(cursor, log) == [b"a", b"b"]
    assert len(reads) >= 2
    append(log, b"small")
    reads.clear()
    assert rest(cursor, log) == [b"small"]
    assert reads == []


def test_a_reader_follows_over_the_end_of_a_segment(log: LogWriter):
    cursor = at_end(log)
    values = [b"%d" % number * 1000 for number in range(30)]
    found: list[bytes] = []
    for value in values:
        append(log, value)
        found += rest(cursor, log)
    assert found == values
    assert len(log.segments()) > 1


def test_a_batch_that_does_not_follow_what_was_read_is_left_to_the_file(log: LogWriter):
    append(log, b"before")
    reader = log.reader()
    cursor = reader.cursor(0)
    assert rest(cursor, log) == [b"before"]
    append(log, b"one")
    reader.newest = lambda: Newest(cursor.seq, cursor.position, encode([b"another"]))
    assert rest(cursor, log) == [b"one"]


def test_two_batches_that_do_not_follow_what_was_read_are_left_to_the_file(log: LogWriter):
    append(log, b"before")
    reader = log.reader()
    cursor = reader.cursor(0)
    assert rest(cursor, log) == [b"before"]
    append(log, b"one", b"two")
    other = encode([b"another"])
    reader.newest = lambda: Newest(cursor.seq + 1, cursor.position + len(other), encode([b"last"]), other)
    assert rest(cursor, log) == [b"one", b"two"]
