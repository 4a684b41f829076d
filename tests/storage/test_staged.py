"""Readers pass what is staged by: no record missed, no staged byte handed out, and large ones not even read."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from penstock.storage import index, layout
from penstock.storage.batch import Batch, Kind, encode, encode_state, of_kind, parse
from penstock.storage.cursor import Cursor, NotCached
from penstock.storage.embedded import Log
from penstock.storage.errors import Corrupt
from penstock.storage.files import File, Files
from penstock.storage.layout import word
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader

PATH = "/log"
LARGE = 100_000


@pytest.fixture(params=["memory", "disk", "mapped memory", "mapped disk"])
def how(request: pytest.FixtureRequest, tmp_path) -> tuple[Files, str, bool]:
    files = Files() if "disk" in request.param else MemoryFiles()
    return files, f"{tmp_path}/log" if "disk" in request.param else PATH, "mapped" in request.param


def make(files: Files, path: str = PATH, segment_bytes: int = 64 << 10) -> LogWriter:
    promises = Promises(f"{path}-promises", files)
    if isinstance(files, MemoryFiles):
        files.mkdir(path)
    options = LogOptions(segment_bytes=segment_bytes, allocate_bytes=16 << 10, commit="written")
    return LogWriter.create_or_open(path, files=files, log_id=b"l" * 16, order=Sole(promises), options=options)


def staged(value: bytes = b"hidden", count: int = 2) -> bytearray:
    return of_kind(encode([value] * count, producer_id=7), Kind.STAGED)


def filled(writer: LogWriter, chance: random.Random, appends: int = 60) -> list[bytes]:
    """Records, states and staged batches of all sizes at random. Returns the values of the records."""
    values: list[bytes] = []
    for number in range(appends):
        match chance.randrange(4):
            case 0 | 1:
                sizes = [chance.choice([10, 300, 20_000]) for _ in range(chance.choice([1, 1, 2, 40]))]
                writer.append([staged(b"hidden" + b"." * size) for size in sizes], number)
            case 2:
                writer.append([encode_state(b"state")], number)
            case _:
                values += [b"%d" % number + b"_" * chance.choice([1, 5000]), b"%d more" % number]
                writer.append([encode(values[-2:])], number)
    return values


def rest(cursor: Cursor, max_bytes: int = 1 << 20, *, cached: bool = False) -> Iterator[Batch]:
    """Every batch to the end, each chunk held to what a chunk is."""
    while (chunk := cursor.next(max_bytes, cached=cached)) is not None:
        assert chunk.batches
        assert (chunk.seq_first, chunk.seq_last) == (chunk.batches[0].seq, chunk.batches[-1].seq)
        assert chunk.offset <= chunk.next_offset == cursor.offset
        yield from chunk.batches


def values_of(batches: Iterator[Batch]) -> list[bytes]:
    found: list[bytes] = []
    for batch in batches:
        assert batch.kind != Kind.STAGED
        batch.check()
        found += batch.values()
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_reader_gets_every_record_and_nothing_that_is_staged(how, seed: int, max_bytes: int) -> None:
    files, path, mapped = how
    writer = make(files, path)
    values = filled(writer, random.Random(seed))
    reader = writer.reader(mapped=mapped)
    assert values_of(rest(reader.cursor(0), max_bytes)) == values
    for offset in range(0, len(values), 7):
        chunk = reader.cursor(offset).next(max_bytes)
        assert chunk is not None
        assert chunk.batches[0].values() == values[offset - offset % 2 :][:2]
    cursor = reader.cursor(len(values))
    assert (cursor.next(), cursor.seq, cursor.offset) == (None, writer.written + 1, len(values))


@pytest.mark.parametrize("seed", range(2))
def test_who_replays_gets_every_batch(how, seed: int) -> None:
    files, path, mapped = how
    writer = make(files, path)
    filled(writer, random.Random(seed))
    reader = writer.reader(mapped=mapped)
    assert [batch.seq for batch in rest(reader.cursor_after(0))] == list(range(1, writer.written + 1))
    for seq in range(1, writer.written + 1, 7):
        chunk = reader.cursor_at(seq).next(1)
        assert chunk is not None
        assert [batch.seq for batch in chunk.batches] == [seq]
        chunk.batches[0].check()


@pytest.mark.parametrize("seed", range(2))
def test_a_reader_that_copies_gets_chunks_without_a_staged_byte(seed: int) -> None:
    files = MemoryFiles()
    writer = make(files)
    filled(writer, random.Random(seed))
    cursor = writer.reader().cursor(0)
    while (chunk := cursor.next(30_000)) is not None:
        assert bytes(chunk.buffer) == b"".join(bytes(batch.buffer) for batch in chunk.batches)
        assert b"hidden" not in bytes(chunk.buffer)


def test_a_reader_that_follows_passes_staged_batches_as_they_come(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    cursor, cached = writer.reader(mapped=mapped).cursor(0), isinstance(files, MemoryFiles) and not mapped
    for number in range(60):
        for _ in range(number % 3):
            writer.append([staged(b"." * (number * 300))], 1)
            assert cursor.next(cached=cached) is None
            assert cursor.seq == writer.written + 1, "it is not looked at again"
        writer.append([encode([b"%d" % number])], 1)
        assert values_of(rest(cursor, cached=cached)) == [b"%d" % number]


def test_a_mapped_reader_goes_on_following_behind_a_staged_batch() -> None:
    files = MemoryFiles()
    writer = make(files, segment_bytes=1 << 20)
    writer.append([encode([b"first"])], 1)
    reader = LogReader(PATH, files, mapped=True, limit=lambda: word(writer.generation, writer.committed))
    cursor = reader.cursor(0)
    assert values_of(rest(cursor)) == [b"first"]
    writer.append([staged()], 1)
    assert cursor.follow(word(writer.generation, writer.committed)) is None
    assert cursor.next() is None
    writer.append([encode([b"second"])], 1)
    found = cursor.follow(word(writer.generation, writer.committed))
    assert found is not None
    assert (found.values(), cursor.offset) == ([b"second"], 2)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much is read of segments at once."""
    sizes: list[int] = []
    for name in ("pread", "pread_cached"):
        read = getattr(File, name)

        def note(file: File, size: int, position: int, read=read) -> bytes | None:
            found = read(file, size, position)
            if file.path.endswith(".segment") and position >= layout.DATA_START:
                sizes.append(len(found or b""))
            return found

        monkeypatch.setattr(File, name, note)
    return sizes


@pytest.mark.parametrize("cached", [False, True])
def test_the_columns_of_large_staged_batches_are_not_read(tmp_path, read_bytes: list[int], cached: bool) -> None:
    writer = make(Files(), f"{tmp_path}/log", segment_bytes=4 << 20)
    values: list[bytes] = []
    for number in range(10):
        writer.append([staged(b"." * LARGE, 1) for _ in range(number % 4)], 1)
        values.append(b"%d" % number)
        writer.append([encode(values[-1:])], 1)
    cursor = writer.reader().cursor(0)
    read_bytes.clear()
    assert values_of(rest(cursor, cached=cached)) == values
    assert sum(read_bytes) < 40 * 2048


def test_many_small_staged_batches_are_passed_at_once(tmp_path, read_bytes: list[int]) -> None:
    writer = make(Files(), f"{tmp_path}/log", segment_bytes=4 << 20)
    writer.append([encode([b"first"])], 1)
    for _ in range(20):
        writer.append([staged()] * 250, 1)
    writer.append([encode([b"last"])], 1)
    cursor = writer.reader().cursor(0)
    read_bytes.clear()
    assert values_of(rest(cursor, 1 << 16)) == [b"first", b"last"]
    assert sum(read_bytes) < 5000 * 256 // 8, read_bytes
    assert len(read_bytes) < 20


def test_a_place_that_is_not_in_memory_is_met_again_behind_what_was_passed(tmp_path, monkeypatch) -> None:
    files = Files()
    writer = make(files, f"{tmp_path}/log", segment_bytes=4 << 20)
    writer.append([encode([b"first"])], 1)
    writer.append([staged(b"." * LARGE, 1)] * 3, 1)
    writer.append([encode([b"." * LARGE])], 1)
    cursor = writer.reader().cursor(0)
    first = cursor.next(cached=True)
    assert first is not None
    assert [batch.values() for batch in first.batches] == [[b"first"]]
    read = File.pread_cached
    row = writer.reader().row(5)
    assert row is not None

    def cold(file: File, size: int, position: int) -> bytes | None:
        return None if file.path.endswith(".segment") and position >= row.position else read(file, size, position)

    monkeypatch.setattr(File, "pread_cached", cold)
    with pytest.raises(NotCached):
        cursor.next(cached=True)
    assert cursor.seq == 5
    monkeypatch.undo()
    assert len(values_of(rest(cursor, cached=True))) == 1


def rewrite_rows(files: MemoryFiles, change) -> None:
    """Let `change` alter every row of every index, as an array of the rows' type."""
    for name, content in files.contents.items():
        if name.endswith(layout.INDEX_SUFFIX):
            rows = np.frombuffer(content.data, layout.INDEX_ROW, offset=layout.INDEX_HEADER_BYTES)
            change(rows)


def all_staged(rows) -> None:
    rows["kind"] = Kind.STAGED


def none_staged(rows) -> None:
    rows["kind"] = Kind.RECORDS


def other_way(rows) -> None:
    rows["kind"] = [Kind.STAGED if kind == Kind.RECORDS else Kind.RECORDS for kind in rows["kind"]]


def shifted(rows) -> None:
    rows["position"][:-1] = rows["position"][1:].copy()


def longer(rows) -> None:
    rows["batch_bytes"] += 64


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("change", [all_staged, none_staged, other_way, shifted, longer])
@pytest.mark.parametrize("seed", range(3))
def test_an_index_that_lies_about_what_is_staged_costs_time_and_no_record(change, mapped: bool, seed: int) -> None:
    files = MemoryFiles()
    writer = make(files)
    values = filled(writer, random.Random(seed))
    rewrite_rows(files, change)
    reader = LogReader(PATH, files, mapped=mapped, limit=lambda: writer.written)
    assert values_of(rest(Cursor(reader, reader.names[0], 1, layout.DATA_START, 0))) == values


def test_without_an_index_staged_batches_are_passed_one_by_one(how) -> None:
    files, path, mapped = how
    writer = make(files, path)
    values = filled(writer, random.Random(1))
    writer.close()
    for name in files.listdir(path):
        if name.endswith(layout.INDEX_SUFFIX):
            files.unlink(f"{path}/{name}")
    reader = LogReader(path, files, mapped=mapped)
    assert values_of(rest(reader.cursor(0))) == values


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", [Kind.STAGED, Kind.STATE])
def test_damage_to_a_batch_without_offsets_hides_no_record_and_is_remembered(kind: Kind, mapped: bool) -> None:
    files = MemoryFiles()
    writer = make(files, segment_bytes=1 << 20)
    for value in (b"a", b"b", b"c"):
        writer.append([encode([value])], 1)
        writer.append([staged(b"." * 5000) if kind == Kind.STAGED else encode_state(b"." * 5000)], 1)
    reader = writer.reader(mapped=mapped)
    row = reader.row(2)
    assert row is not None
    content = files.contents[reader.segment_of(2).ref.path]
    content.data[row.position + 300] ^= 1
    assert [batch.seq for batch in rest(reader.cursor(0)) if batch.kind == Kind.RECORDS] == [1, 3, 5]
    assert not reader.met_damage, "its columns are not read"
    content.data[row.position + 4] ^= 1
    assert [batch.seq for batch in rest(reader.cursor(0)) if batch.kind == Kind.RECORDS] == [1, 3, 5]
    assert reader.met_damage
    with pytest.raises(Corrupt) as damage:
        list(rest(reader.cursor_after(0)))
    assert damage.value.next_offset == 1, "who replays is told"


def test_damage_to_records_beside_staged_batches_is_told_with_where_they_go_on() -> None:
    files = MemoryFiles()
    writer = make(files, segment_bytes=1 << 20)
    for value in (b"a", b"b", b"c"):
        writer.append([staged(), encode([value]), staged()], 1)
    reader = writer.reader()
    row = reader.row(5)
    assert row is not None
    files.contents[reader.segment_of(5).ref.path].data[row.position + 4] ^= 1
    with pytest.raises(Corrupt) as damage:
        list(rest(reader.cursor(0)))
    assert damage.value.next_offset == 2
    assert values_of(rest(reader.cursor(2))) == [b"c"]


def test_an_embedded_log_shows_records_only(tmp_path) -> None:
    path = str(tmp_path / "log")
    writer = make(Files(), path)
    values = filled(writer, random.Random(2))
    with Log(path, read_only=True) as log:
        assert list(log.values()) == values
        log.seek("earliest")
        assert [value for batch in log.batches("values") for value in batch] == values
        log.seek("earliest")
        pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
        assert [value for batch in log.batches("arrow") for value in batch.column("value").to_pylist()] == values
        assert log.read(1)[0].value == values[1]
    writer.close()


def test_a_copy_of_another_kind_is_the_same_batch_but_for_that() -> None:
    source = encode([b"a", b"b"], keys=[b"k", None], producer_id=7, first_sequence=3)
    before = bytes(source)
    copied = parse(of_kind(source, Kind.STAGED))
    copied.check()
    assert (copied.kind, copied.producer_id, copied.first_sequence) == (Kind.STAGED, 7, 3)
    assert (copied.values(), copied.keys()) == ([b"a", b"b"], [b"k", None])
    assert bytes(source) == before
    assert bytes(of_kind(copied.buffer, Kind.RECORDS)) == before


def test_rows_of_staged_batches_are_counted_up_to_the_first_other_one() -> None:
    files = MemoryFiles()
    writer = make(files, segment_bytes=1 << 20)
    writer.append([encode([b"a"]), staged(), staged(), encode([b"b"]), staged()], 1)
    file = writer.reader().segment_of(1).index_file()
    assert file is not None
    assert index.staged_run(file, 0, 5) is None
    found = index.staged_run(file, 1, 4)
    assert found is not None
    assert (found[0], found[1].base_offset) == (2, 1)
    assert index.staged_run(file, 1, 1) == (1, writer.reader().row(2))
    last = index.staged_run(file, 4, 100)
    assert last is not None
    assert last[0] == 1, "rows that are not written yet are none"
