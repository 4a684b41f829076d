"""Readers: the right record at every offset and time, while the log grows, copied or mapped, without locks."""

from __future__ import annotations

import pytest
from penstock.storage import layout
from penstock.storage.batch import encode, encode_state
from penstock.storage.cursor import CHUNK_BATCHES, Chunk, Cursor, NotCached
from penstock.storage.errors import Corrupt, Diverged, InvalidTopic, OutOfBounds
from penstock.storage.files import File, Files
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFile, MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.repair import repair
from penstock.storage.segment import reference
from penstock.storage.segment_reader import SegmentCache
from support.logs import build, content, put

PATH, LOG_ID = "/log", bytes(range(16))
OPTIONS = LogOptions(segment_bytes=20_000, allocate_bytes=8192, commit="written")


@pytest.fixture(params=["memory", "disk", "mapped memory", "mapped disk"])
def how(request, tmp_path) -> tuple[Files, str, bool]:
    files = Files() if "disk" in request.param else MemoryFiles()
    return files, f"{tmp_path}/log" if "disk" in request.param else PATH, "mapped" in request.param


def make(files: Files, path: str = PATH) -> LogWriter:
    promises = Promises(f"{path}-promises", files)
    if isinstance(files, MemoryFiles):
        files.mkdir(path)
    return LogWriter.create_or_open(path, files=files, log_id=LOG_ID, order=Sole(promises), options=OPTIONS)


def fill(writer: LogWriter, batches: int = 40, start: int = 0) -> None:
    """Batch n holds records "n.0" to "n.4", appended at time 10 n, a state batch before every third one."""
    for number in range(start, start + batches):
        state = [encode_state(b"state")] if number % 3 == 0 else []
        values = [b"%d.%d" % (number, each) + b"_" * 300 for each in range(5)]
        writer.append([*state, encode(values)], number * 10)


def values(chunk: Chunk | None) -> list[bytes]:
    assert chunk is not None
    return [value.rstrip(b"_") for batch in chunk.batches for value in batch.values()]


def test_a_chunk_has_a_bounded_number_of_batches_however_small_they_are() -> None:
    files = MemoryFiles()
    files.mkdir(PATH)
    options = LogOptions(segment_bytes=4 << 20, allocate_bytes=1 << 20, commit="written")
    writer = LogWriter.create_or_open(
        PATH, files=files, log_id=LOG_ID, order=Sole(Promises("/promises", files)), options=options
    )
    writer.append([encode([b"x"])] * (CHUNK_BATCHES + 100), 1)
    cursor = writer.reader(mapped=True).cursor(0)
    chunks = []
    while (chunk := cursor.next(1 << 30)) is not None:
        chunks.append((chunk.offset, chunk.next_offset, len(chunk.batches)))
    assert chunks == [(0, CHUNK_BATCHES, CHUNK_BATCHES), (CHUNK_BATCHES, CHUNK_BATCHES + 100, 100)]


def read_to_the_end(cursor: Cursor) -> None:
    while cursor.next() is not None:
        pass


def test_every_offset_leads_to_its_record_and_to_all_after_it(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer)
    reader = writer.reader(mapped=mapped)
    everything = [b"%d.%d" % divmod(offset, 5) for offset in range(200)]
    for offset in range(0, 200, 7):
        cursor, found = reader.cursor(offset), []
        while (chunk := cursor.next(3000)) is not None:
            assert chunk.offset <= chunk.next_offset == cursor.offset
            found += values(chunk)
        assert found == everything[offset - offset % 5 :]
        assert (cursor.offset, cursor.seq) == (200, writer.written + 1)
    assert (reader.first_offset, reader.end_offset) == (0, 200)


def test_outside_the_log_there_is_nothing_and_the_error_says_what_there_is(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer, 3)
    reader = writer.reader(mapped=mapped)
    assert reader.cursor(15).next() is None
    for offset in (-1, 16, 10**15):
        with pytest.raises(OutOfBounds, match=f"offset {offset} .* 0 to 15"):
            reader.cursor(offset)


def test_an_empty_log_has_an_end_and_a_cursor_there_follows_it(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    reader = writer.reader(mapped=mapped)
    cursor = reader.cursor(0)
    assert (cursor.next(), reader.end_offset, reader.term_at(0), reader.offset_at(0)) == (None, 0, 0, 0)
    fill(writer, 1)
    assert values(cursor.next()) == [b"0.%d" % each for each in range(5)]


def test_a_cursor_follows_a_log_through_growth_rolls_and_new_generations(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    limits = [lambda: writer.written]
    reader = LogReader(path, files, mapped=mapped, limit=lambda: limits[0]())
    cursor, found = reader.cursor(0), []
    for number in range(60):
        if number % 20 == 19:
            writer = make(files, path)
        fill(writer, 1, number)
        while (chunk := cursor.next()) is not None:
            found += values(chunk)
    assert found == [b"%d.%d" % (number, each) for number in range(60) for each in range(5)]
    assert writer.generation > 2


def test_a_chunk_is_about_as_large_as_asked_and_holds_at_least_one_batch(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer)
    cursor = writer.reader(mapped=mapped).cursor(0)
    while (chunk := cursor.next(5000)) is not None:
        assert len(chunk.buffer) <= 5000
        assert len(chunk.buffer) == sum(batch.batch_bytes for batch in chunk.batches)
        assert [batch.seq for batch in chunk.batches] == list(range(chunk.seq_first, chunk.seq_last + 1))
    cursor = writer.reader(mapped=mapped).cursor(0)
    sizes = []
    while (chunk := cursor.next(1)) is not None:
        sizes.append(len(chunk.batches))
    assert set(sizes) == {1}


def test_nothing_is_read_beyond_the_limit(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer)
    reader = LogReader(path, files, mapped=mapped, limit=lambda: 7)
    end = writer.end_offset_at(7)
    assert reader.end_offset == end
    cursor, last = reader.cursor(0), 0
    while (chunk := cursor.next(2000)) is not None:
        last = chunk.seq_last
    assert (last, cursor.offset) == (7, end)
    chunk = cursor.next(limit_seq=8)
    assert chunk is not None
    assert chunk.seq_last == 8
    with pytest.raises(OutOfBounds):
        reader.cursor(end + 1)


def test_a_reader_without_anybody_to_ask_reads_what_verifies_and_sees_it_grow(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer, 5)
    reader = LogReader(path, files, mapped=mapped)
    cursor = reader.cursor(0)
    assert len(values(cursor.next(1 << 20))) == 25
    assert cursor.next() is None
    fill(writer, 20, 5)
    found = []
    while (chunk := cursor.next()) is not None:
        found += values(chunk)
    assert len(found) == 100


def test_times_lead_to_the_first_record_at_or_after_them(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer)
    reader = writer.reader(mapped=mapped)
    for time_us in range(0, 391, 3):
        assert reader.offset_at(time_us) == -(-time_us // 10) * 5, time_us
    assert reader.offset_at(-5) == 0
    assert reader.offset_at(391) == reader.offset_at(10**18) == 200


def test_terms_are_those_under_which_records_were_appended(how) -> None:
    files, path, mapped = how
    for start in (0, 20):
        writer = make(files, path)
        fill(writer, 20, start)
    reader = writer.reader(mapped=mapped)
    assert [reader.term_at(offset) for offset in (0, 99, 100, 199, 200)] == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("harm", ["missing", "zeros", "other rows", "shifted"])
def test_an_index_that_lies_costs_time_and_nothing_else(harm: str) -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    indexes = [name for name in files.contents if name.endswith(layout.INDEX_SUFFIX)]
    for name in indexes:
        data = files.contents[name].data
        if harm == "missing":
            files.unlink(name)
        elif harm == "zeros":
            data[layout.INDEX_HEADER_BYTES :] = bytes(len(data) - layout.INDEX_HEADER_BYTES)
        elif harm == "other rows":
            data[:] = files.contents[indexes[0]].data[: len(data)].ljust(len(data), b"\0")
        else:
            data[layout.INDEX_HEADER_BYTES :] = data[layout.INDEX_HEADER_BYTES + layout.INDEX_ROW_BYTES :] + bytes(64)
    reader = LogReader(PATH, files, limit=lambda: writer.written)
    for offset in range(0, 200, 11):
        assert values(reader.cursor(offset).next(1))[offset % 5] == b"%d.%d" % divmod(offset, 5)
    assert [reader.offset_at(time_us) for time_us in (0, 1, 200, 389)] == [0, 5, 100, 195]
    repair(files, PATH, now_us=1)
    again = LogReader(PATH, files, limit=lambda: writer.written)
    for segment in map(again.segment, again.names):
        assert segment.indexed(segment.name.base_seq) is not None


def test_a_row_that_claims_gigabytes_has_no_more_read_than_there_is(monkeypatch) -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    rows = files.contents[reference(PATH, writer.names[0]).index_path].data
    rows[layout.index_position(1, 2) + (layout.INDEX_ROW.fields or {})["batch_bytes"][1] + 3] |= 0x80
    read, sizes = MemoryFile.pread, list[int]()

    def note(file: MemoryFile, size: int, position: int) -> bytes:
        sizes.append(size)
        return read(file, size, position)

    monkeypatch.setattr(MemoryFile, "pread", note)
    chunk = LogReader(PATH, files, limit=lambda: writer.committed).cursor(0).next(4096)
    assert values(chunk)[:5] == [b"0.%d" % number for number in range(5)]
    assert max(sizes) <= OPTIONS.segment_bytes


def test_finding_a_place_reads_no_columns(monkeypatch) -> None:
    files = MemoryFiles()
    writer = make(files)
    for n in range(8):
        writer.append([encode([bytes(15_000)])], n)
    reader, sizes = writer.reader(), list[int]()
    reader.cursor(0)  # opens what is opened once
    pread = MemoryFile.pread
    monkeypatch.setattr(MemoryFile, "pread", lambda *how: sizes.append(how[1]) or pread(*how))
    assert (reader.end_offset, reader.term_at(5), reader.offset_at(5), reader.cursor(5).seq) == (8, writer.term, 5, 6)
    assert 0 < max(sizes) <= layout.DATA_START


def test_damage_is_reported_with_its_place_and_read_around() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    reader = writer.reader()
    row = reader.row(10)
    assert row is not None
    segment = reader.segment_of(10)
    files.contents[segment.ref.path].data[row.position + 20] ^= 1
    found, damage, cursor = [], [], LogReader(PATH, files, limit=lambda: writer.written).cursor(0)
    while True:
        try:
            chunk = cursor.next()
        except Corrupt as error:
            damage.append((error.path, error.position, error.next_offset))
            cursor = LogReader(PATH, files, limit=lambda: writer.written).cursor(error.next_offset or 0)
            continue
        if chunk is None:
            break
        found += values(chunk)
    assert damage == [(segment.ref.path, row.position, row.end_offset)]
    assert len(found) == 200 - row.record_count
    with pytest.raises(Corrupt, match=f"good records go on at offset {row.end_offset}"):
        LogReader(PATH, files, limit=lambda: writer.written).cursor(row.base_offset)


@pytest.mark.parametrize("records", [1, 0])
def test_behind_damage_at_the_end_of_the_log_reading_goes_on_at_its_end(how, records: int) -> None:
    files, path, mapped = how
    writer = make(files, path)
    fill(writer, 3)
    writer.append([encode([b"spoiled"] * records)] if records else [encode_state(b"state")], 100)
    writer.sync()
    row = writer.reader().row(writer.written)
    assert row is not None
    file = files.open(reference(path, writer.reader().names[-1]).path, write=True)
    file.pwritev([b"\xff" * 8], row.position + 20)
    file.close()
    reader = LogReader(path, files, mapped=mapped, limit=lambda: writer.written)
    cursor = reader.cursor(0)
    if records:
        with pytest.raises(Corrupt, match="good records go on at offset 16"):
            read_to_the_end(cursor)
        with pytest.raises(Corrupt, match="good records go on at offset 16") as raised:
            reader.cursor(15)
        assert raised.value.next_offset == 16
        cursor = reader.cursor(16)
    else:
        read_to_the_end(cursor)
        assert cursor.offset == 15
        assert reader.met_damage
    assert cursor.next() is None
    writer.append([encode([b"behind"])], 110)
    assert values(cursor.next()) == [b"behind"]
    writer.close()


def test_a_damaged_state_at_the_end_of_a_segment_stops_no_reader_of_records() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    reader = writer.reader()
    place, row = next(
        (place, row)
        for place, name in enumerate(reader.names[1:])
        if (row := reader.row(name.base_seq - 1)) is not None and not row.record_count
    )
    files.contents[reference(PATH, reader.names[place]).path].data[row.position + 20] ^= 1
    reader = LogReader(PATH, files, limit=lambda: writer.written)
    cursor = reader.cursor(0)
    read_to_the_end(cursor)
    assert cursor.offset == 200
    assert reader.met_damage


def test_a_missing_segment_is_damage_not_an_end() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    gone = reference(PATH, writer.reader().names[2])
    files.unlink(gone.path)
    reader = LogReader(PATH, files, limit=lambda: writer.written)
    with pytest.raises(Corrupt) as raised:
        read_to_the_end(reader.cursor(0))
    following = reader.names[2]
    assert raised.value.next_offset == reader.base_offset(2)
    assert following.base_seq > gone.base_seq


def test_what_a_cut_took_back_is_diverged_for_those_who_had_read_it() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer, 3)
    writer.sync()
    fill(writer, 3, 3)
    reader = LogReader(PATH, files, limit=lambda: layout.word(writer.generation, writer.written))
    cursor = reader.cursor(0)
    read_to_the_end(cursor)
    writer.poison("the disk failed")
    writer = make(files)
    fill(writer, 10, 50)
    with pytest.raises(Diverged, match="offset 15"):
        cursor.next()
    assert values(reader.cursor(15).next())[0] == b"50.0"


def test_what_is_not_in_memory_is_not_waited_for() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    cursor = writer.reader().cursor(0)
    cold = True

    def pread_cached(self: File, size: int, position: int) -> bytes | None:
        return None if cold else self.pread(size, position)

    kind = type(files.open(writer.dirty_segments()[0].path))
    original = kind.pread_cached
    try:
        kind.pread_cached = pread_cached  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(NotCached):
            cursor.next(2000, cached=True)
        assert (cursor.seq, cursor.offset) == (2, 0)
        cold = False
        assert values(cursor.next(2000, cached=True)) == [b"0.%d" % each for each in range(5)]
        assert values(cursor.next(1, cached=True)) == [b"1.%d" % each for each in range(5)]
    finally:
        kind.pread_cached = original


def test_a_segment_that_retention_took_is_out_of_bounds_for_a_slow_cursor() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    writer.sync()
    cache = SegmentCache(files)
    cursor = LogReader(PATH, files, limit=lambda: writer.written, cache=cache).cursor(0)
    writer.set_first(150)
    gone = writer.expired(10**6)
    for ref in gone:
        files.unlink(ref.path)
        files.unlink(ref.index_path)
    writer.forget(gone)
    assert cursor.next(1) is not None, "what is open stays readable"
    cache.close()
    with pytest.raises(OutOfBounds, match="begins at offset"):
        cursor.next()


def test_views_of_a_mapping_outlive_the_reader(tmp_path) -> None:
    files = Files()
    writer = make(files, f"{tmp_path}/log")
    fill(writer)
    reader = writer.reader(mapped=True)
    chunk = reader.cursor(0).next()
    reader.close()
    writer.close()
    for name in files.listdir(f"{tmp_path}/log"):
        files.unlink(f"{tmp_path}/log/{name}")
    assert values(chunk)[:2] == [b"0.0", b"0.1"]
    assert chunk is not None
    assert isinstance(chunk.buffer, memoryview)


def test_a_reader_writes_nothing_and_locks_nothing(tmp_path) -> None:
    files = Files()
    writer = make(files, f"{tmp_path}/log")
    fill(writer)
    before = {name: (tmp_path / "log" / name).read_bytes() for name in files.listdir(f"{tmp_path}/log")}
    reader = LogReader(f"{tmp_path}/log", files)
    read_to_the_end(reader.cursor(0))
    assert {name: (tmp_path / "log" / name).read_bytes() for name in files.listdir(f"{tmp_path}/log")} == before
    with pytest.raises(InvalidTopic):
        LogReader(f"{tmp_path}/nowhere", files)
    assert not files.exists(f"{tmp_path}/nowhere")


def test_a_reader_finds_what_is_left_though_it_has_not_looked_since_segments_went() -> None:
    files = MemoryFiles()
    writer = make(files)
    fill(writer)
    writer.sync()
    readers = [LogReader(PATH, files, limit=lambda: writer.written) for _ in range(6)]
    writer.set_first(150)
    gone = writer.expired(10**6)
    for ref in gone:
        files.unlink(ref.path)
        files.unlink(ref.index_path)
    writer.forget(gone)
    first_seq = writer.segments()[0].base_seq
    assert values(readers[0].cursor(170).next(1))[0] == b"34.0"
    assert readers[1].cursor_after(first_seq - 1).seq == first_seq
    with pytest.raises(OutOfBounds, match="which holds"):
        readers[2].cursor(3)
    first = readers[0].first_offset
    assert 0 < first <= 150
    assert (readers[3].first_offset, readers[4].offset_at(0), readers[5].end_offset) == (first, first, 200)


def test_where_nothing_tells_where_the_last_segments_begin_they_begin_where_one_before_them_does() -> None:
    built = build(shape=((2,), (2,), (2,), (2,)), log_id=LOG_ID)
    damaged = bytearray(content(built.files, built.segment_path(1)))
    damaged[layout.DATA_START + 9] ^= 1
    for place, data in ((1, bytes(damaged)), (2, bytes(8192)), (3, bytes(8192))):
        put(built.files, built.segment_path(place), data)
        built.files.unlink(built.index_path(place))
    reader = LogReader(built.directory, built.files, limit=lambda: 4, log_id=LOG_ID)
    assert [reader.base_offset(place) for place in range(4)] == [0, 2, 2, 2]
