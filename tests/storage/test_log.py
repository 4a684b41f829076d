"""The writer: batches get their places, segments roll, appends are all or nothing, opening goes on where it ended."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from penstock.storage import appending, columns, layout
from penstock.storage.batch import Codec, ColumnId, Kind, encode, encode_raft, encode_state, parse
from penstock.storage.encoding import assemble
from penstock.storage.errors import BatchTooLarge, Closed, InvalidBatch, InvalidTopic, OutOfBounds
from penstock.storage.files import Files
from penstock.storage.layout import DATA_START, SegmentName
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.recovery import NOTHING, follows
from penstock.storage.segment_reader import SegmentCache
from support.files import RecordingFiles
from support.writeback import WritebackFiles

PATH, LOG_ID = "/log", bytes(range(16))
SMALL = LogOptions(segment_bytes=20_000, allocate_bytes=8192, commit="written")


def make(files: Files | None = None, options: LogOptions = SMALL, path: str = PATH) -> LogWriter:
    files = files or MemoryFiles()
    promises = Promises(f"{path}-promises", files)
    return LogWriter.create_or_open(path, files=files, log_id=LOG_ID, order=Sole(promises), options=options)


def reopen(writer: LogWriter, **how: bool) -> LogWriter:
    files = writer.files
    promises = Promises(f"{writer.path}-promises", files)
    return LogWriter.open(writer.path, files=files, order=Sole(promises), options=writer.options, **how)


def contents(writer: LogWriter, *, mapped: bool = False) -> list:
    cursor, found = writer.reader(mapped=mapped).cursor(writer.first_offset), []
    while (chunk := cursor.next(5000)) is not None:
        found += [batch.effects() or batch.values() for batch in chunk.batches]
    return found


def names(writer: LogWriter) -> list[SegmentName]:
    return layout.live_segments(writer.files.listdir(writer.path))[0]


def test_batches_get_seq_offset_and_position_in_order() -> None:
    writer = make()
    first, state, raft, last = [encode([b"a", b"b"]), encode_state(b"s"), encode_raft(), encode([b"c"])]
    appended = writer.append([first, state], 10) + writer.append([raft], 10) + writer.append([last], 11)
    assert [each.seq for each in appended] == [1, 2, 3, 4]
    assert [each.base_offset for each in appended] == [0, 2, 2, 2]
    positions = [each.position for each in appended]
    assert positions == [DATA_START, *(DATA_START + sum(map(len, (first, state, raft)[:n])) for n in (1, 2, 3))]
    assert (writer.written, writer.end_offset, writer.durable, writer.committed) == (4, 3, 0, 4)
    assert [writer.end_offset_at(seq) for seq in range(5)] == [0, 2, 2, 2, 3]


def test_batches_appended_one_by_one_and_together_are_the_same_bytes() -> None:
    batches = [encode([b"a", b"b"], keys=[b"k", None]), encode_state(b"s"), encode([b"c" * 3000]), encode_raft()]
    batches += [encode([bytes(9000)]) for _ in range(3)]  # over the end of a segment
    alone, together = make(), make()
    one_by_one = [alone.append([batch], 7)[0] for batch in batches]
    assert one_by_one == together.append(batches, 7)
    assert names(alone) == names(together)
    assert len(names(alone)) > 1
    for name in names(alone):
        for path in (f"{PATH}/{name.segment_file}", f"{PATH}/{name.index_file}"):
            assert alone.files.read(path).rstrip(b"\0") == together.files.read(path).rstrip(b"\0"), path
    assert (alone.written, alone.end_offset) == (together.written, together.end_offset)
    assert [alone.end_offset_at(seq) for seq in range(8)] == [together.end_offset_at(seq) for seq in range(8)]


def test_appending_nothing_changes_nothing() -> None:
    writer = make()
    assert writer.append([], 5) == []
    assert (writer.written, writer.end_offset, writer.last_time_us) == (0, 0, 0)


def test_every_batch_names_the_one_before_it_and_times_never_go_back() -> None:
    writer = make()
    for time_us in (50, 40, 60):
        writer.append([encode([b"x"])], time_us)
    cursor = writer.reader().cursor(0)
    chunk = cursor.next()
    assert chunk is not None
    previous, times = 0, []
    for batch in chunk.batches:
        assert batch.previous == previous
        previous = batch.header_checksum
        times.append(batch.append_time_us)
    assert times == [50, 50, 60]
    assert writer.last_time_us == 60


def test_a_full_segment_is_followed_by_the_next_and_none_is_larger_than_asked() -> None:
    writer = make()
    for number in range(30):
        writer.append([encode([b"%d" % number * 900])], number)
    found = names(writer)
    assert len(found) > 3
    for name in found:
        assert len(writer.files.contents[f"{PATH}/{name.segment_file}"].data) <= SMALL.segment_bytes
    assert contents(writer) == [[b"%d" % number * 900] for number in range(30)]


def test_a_reader_finds_records_of_segments_that_were_made_after_it_looked() -> None:
    writer = make()
    writer.append([encode([b"first"])], 0)
    reader = writer.reader()
    assert reader.end_offset == 1
    for number in range(30):
        writer.append([encode([b"%d" % number * 900])], number)
    assert len(names(writer)) > 3
    chunk = reader.cursor(30).next()
    assert chunk is not None
    assert chunk.batches[0].values() == [b"29" * 900]


def test_one_append_over_several_segments_is_one_append() -> None:
    writer = make()
    told = []
    writer.on_segment = told.append
    appended = writer.append([encode([b"%d" % number * 4000]) for number in range(9)], 1)
    assert [each.seq for each in appended] == list(range(1, 10))
    assert [ref.base_seq for ref in told] == [name.base_seq for name in names(writer)]
    assert [ref.base_seq for ref in writer.dirty_segments()] == [name.base_seq for name in names(writer)]
    assert contents(writer) == [[b"%d" % number * 4000] for number in range(9)]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    writer = make()
    values = [b"small", b"L" * 50_000, b"small again"]
    for value in values:
        writer.append([encode([value])], 1)
    assert contents(writer) == [[value] for value in values]
    assert [name.base_seq for name in names(writer)] == [1, 2, 3]


def test_a_small_log_stays_small_and_grows_by_doubling() -> None:
    writer = make(options=LogOptions(segment_bytes=1 << 20, allocate_bytes=16 << 10))
    sizes = []
    for _ in range(200):
        writer.append([encode([b"x" * 1000])], 1)
        sizes.append(len(writer.files.contents[f"{PATH}/{names(writer)[0].segment_file}"].data))
    assert sorted(set(sizes)) == [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"", InvalidBatch),
        (b"x" * 200, InvalidBatch),
        (bytes(encode([b"x"]))[:-64], InvalidBatch),
        (bytes(encode([b"x"])) + bytes(64), InvalidBatch),
        (encode([b"x" * 70_000]), BatchTooLarge),
    ],
    ids=["nothing", "noise", "cut", "padded", "large"],
)
def test_one_bad_batch_refuses_the_whole_append(bad, error) -> None:
    writer = make(options=LogOptions(segment_bytes=20_000, max_batch_bytes=65_536, commit="written"))
    writer.append([encode([b"before"])], 1)
    with pytest.raises(error):
        writer.append([encode([b"y" * 12_000]), encode([b"y" * 12_000]), bad], 2)
    assert (writer.written, writer.last_time_us) == (1, 1)
    writer.append([encode([b"after"])], 3)
    assert contents(writer) == [[b"before"], [b"after"]]
    assert contents(reopen(writer)) == [[b"before"], [b"after"]]


def test_a_batch_of_an_unknown_kind_is_not_appended() -> None:
    batch = bytearray(encode([b"x"]))
    batch[13] = 99
    with pytest.raises(InvalidBatch, match="kind 99"):
        make().append([batch], 1)


def test_records_that_are_not_decided_yet_take_no_offsets() -> None:
    staged = bytearray(encode([b"x", b"y"]))
    staged[13] = Kind.STAGED
    writer = make()
    writer.append([encode([b"one"]), staged], 1)
    assert (writer.end_offset, writer.end_offset_at(2)) == (1, 1)
    row = writer.reader().row(2)
    assert row is not None
    assert (row.record_count, row.end_offset) == (2, 1)


def test_priority_and_delay_columns_reach_the_index() -> None:
    found = [
        (ColumnId.VALUE, Codec.NONE, columns.pieces([b"a", b"b", b"c"])),
        (ColumnId.PRIORITY, Codec.NONE, bytes([3, 9, 5])),
        (ColumnId.NOT_BEFORE, Codec.NONE, np.array([7, 0, 70], "<i8").tobytes()),
    ]
    writer = make()
    writer.append([assemble(Kind.RECORDS, 3, found)], 1)
    row = writer.reader().row(1)
    assert row is not None
    assert (row.priority_min, row.priority_max, row.not_before_max) == (3, 9, 70)


def test_sync_makes_durable_and_settle_only_in_its_own_generation() -> None:
    writer = make(options=LogOptions(segment_bytes=20_000))
    for _ in range(4):
        writer.append([encode([b"x" * 9000])], 1)
    assert (writer.durable, writer.committed, len(writer.dirty_segments())) == (0, 0, 4)
    writer.settle(writer.generation + 1, 2)
    assert writer.durable == 0
    writer.settle(writer.generation, 2)
    assert (writer.durable, [ref.base_seq for ref in writer.dirty_segments()]) == (2, [3, 4])
    writer.settle(writer.generation, 1)
    assert writer.durable == 2
    assert writer.sync() == 4
    assert writer.dirty_segments() == []
    assert writer.committed == 4


def test_the_last_batch_is_in_memory_as_it_was_written_and_no_other() -> None:
    writer = make()
    assert writer.newest(0) is None
    for value in (b"a", b"b"):
        writer.append([encode([value])], 1)
    assert writer.newest(2) == writer.batch_at(2)
    assert writer.newest(1) is writer.newest(3) is None


def test_an_opening_syncs_what_is_behind_the_mark_once_and_nothing_else() -> None:
    files = WritebackFiles()
    writer = make(files, LogOptions(segment_bytes=20_000))
    writer.append([encode([b"a"])], 1)
    writer.sync()
    writer.append([encode([b"b"])], 1)
    for syncs in (1, 0):
        before = files.syncs
        opened = reopen(writer)
        assert files.syncs - before == syncs
        assert contents(opened) == [[b"a"], [b"b"]]
    left = files.power_cut()
    found = LogWriter.open(PATH, files=left, order=Sole(Promises(f"{PATH}-promises", left)))
    assert (found.written, contents(found)) == (2, [[b"a"], [b"b"]]), "though no sync has carried the mark"


def test_the_term_is_raised_durably_before_the_first_append_after_each_opening() -> None:
    files = RecordingFiles()
    writer = make(files)
    terms = []
    for _ in range(3):
        assert writer.term == (terms[-1] if terms else 0)
        writer.append([encode([b"x"])], 1)
        writer.append([encode([b"x"])], 1)
        terms.append(writer.term)
        assert Promises(f"{PATH}-promises", files).term(LOG_ID) == writer.term
        writer.close()
        writer = reopen(writer)
    assert terms == [1, 2, 3]


def test_after_a_clean_close_the_log_goes_on_in_the_same_segment() -> None:
    writer = make()
    for round_ in range(3):
        writer.append([encode([b"%d" % round_])], round_)
        writer.close()
        writer = reopen(writer)
        assert (writer.generation, writer.written, writer.durable) == (1, round_ + 1, round_ + 1)
    assert names(writer) == [SegmentName(1, 1)]
    assert contents(writer) == [[b"0"], [b"1"], [b"2"]]


def test_after_any_other_end_it_goes_on_in_a_new_generation_and_loses_nothing_that_was_written() -> None:
    writer = make()
    for round_ in range(3):
        writer.append([encode([b"%d" % round_]), encode([b"%d!" % round_])], round_)
        writer = reopen(writer)
        assert (writer.written, writer.durable) == (2 * round_ + 2, 2 * round_ + 2)
    writer.append([encode([b"last"])], 9)
    assert writer.generation == 4
    assert names(writer) == [SegmentName(1, 1), SegmentName(3, 2), SegmentName(5, 3), SegmentName(7, 4)]
    assert contents(writer) == [[b"0"], [b"0!"], [b"1"], [b"1!"], [b"2"], [b"2!"], [b"last"]]


def test_opening_again_and_again_without_writing_makes_no_files() -> None:
    writer = make()
    writer.append([encode([b"x"])], 1)
    before = names(writer)
    for _ in range(3):
        writer = reopen(writer)
    assert names(writer) == before
    writer.close()
    assert reopen(writer).written == 1


def test_a_spare_is_used_for_the_next_segment_and_a_missing_one_is_no_matter() -> None:
    files = RecordingFiles()
    writer = make(files)
    writer.append([encode([b"x" * 12_000])], 1)
    files.create(f"{PATH}/spare-1", 20_000)
    for spare in ("spare-1", "spare-2"):
        writer.adopt_spare(f"{PATH}/{spare}")
        writer.append([encode([b"x" * 12_000])], 1)
    assert contents(writer) == [[b"x" * 12_000]] * 3
    assert [name for name in files.listdir(PATH) if name.startswith("spare")] == []


def test_a_spare_that_came_too_late_does_not_stay_behind_the_next_one() -> None:
    files = RecordingFiles()
    writer = make(files)
    for spare in ("spare-1", "spare-2", "spare-3"):
        files.create(f"{PATH}/{spare}", 20_000)
        writer.adopt_spare(f"{PATH}/{spare}")
    assert [name for name in files.listdir(PATH) if name.startswith("spare")] == ["spare-3"]


def test_spares_left_by_a_dead_keeper_are_removed_at_opening() -> None:
    writer = make()
    writer.files.create(f"{PATH}/spare-old", 100)
    reopen(writer)
    assert not writer.files.exists(f"{PATH}/spare-old")


def test_retention_takes_only_segments_that_are_passed_durable_and_covered() -> None:
    writer = make()
    for number in range(6):
        writer.append([encode([b"%d" % number * 9000])], number)
    bases = [segment.base_seq for segment in writer.segments()]
    assert bases == [1, 2, 3, 4, 5, 6]
    assert writer.expired(99) == []
    writer.set_first(3)
    assert writer.expired(99) == [], "not durable yet"
    writer.sync()
    assert writer.expired(0) == [], "no snapshot covers them"
    assert [ref.base_seq for ref in writer.expired(2)] == [1, 2]
    gone = writer.expired(99)
    assert [ref.base_seq for ref in gone] == [1, 2, 3]
    for ref in gone:
        writer.files.unlink(ref.path)
        writer.files.unlink(ref.index_path)
    writer.forget(gone)
    assert (writer.first_offset, writer.reader().first_offset) == (3, 3)
    with pytest.raises(OutOfBounds, match="3 to 6"):
        writer.reader().cursor(2)
    assert len(contents(writer)) == 3
    with pytest.raises(OutOfBounds):
        writer.set_first(7)
    assert reopen(writer).first_offset == 3


def test_extents_say_what_lies_where() -> None:
    writer = make()
    for number in range(3):
        writer.append([encode([b"x" * 9000, b"y"]), encode_state(b"s")], number)
    extents = writer.segments()
    assert [(each.base_offset, each.end_offset) for each in extents] == [(0, 2), (2, 4), (4, 6)]
    assert [(each.base_seq, each.last_seq) for each in extents] == [(1, 2), (3, 4), (5, 6)]
    assert [each.last_time_us for each in extents] == [0, 1, 2]
    assert {each.record_bytes for each in extents} == {len(encode([b"x" * 9000, b"y"])) + len(encode_state(b"s"))}


def test_a_log_that_was_measured_is_measured_again_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files, big, small = MemoryFiles(), encode([b"x" * 9000]), encode([b"y"])
    cache = SegmentCache(files, 1)
    writer = LogWriter.create(
        PATH, files=files, log_id=LOG_ID, order=Sole(Promises(f"{PATH}-promises", files)), options=SMALL, cache=cache
    )
    for number in range(2):
        writer.append([big], number)
    assert [each.record_bytes for each in writer.segments()] == [len(big), len(big)]
    writer.append([small], 3)
    cache.close()
    monkeypatch.setattr(files, "open", None)
    first, last = known = writer.segments()
    assert (first.record_bytes, first.end_offset, first.last_time_us) == (len(big), 1, 0)
    assert (last.base_offset, last.record_bytes, last.end_offset) == (1, len(big) + len(small), 3)
    monkeypatch.undo()
    writer.close()
    assert reopen(writer).segments() == known


def test_closed_is_closed() -> None:
    writer = make()
    writer.append([encode([b"x"])], 1)
    writer.close()
    writer.close()
    for call in (writer.sync, lambda: writer.append([encode([b"x"])], 1)):
        with pytest.raises(Closed):
            call()


def test_there_is_no_log_where_there_is_none_and_no_second_one_where_there_is() -> None:
    files = MemoryFiles()
    promises = Promises("/promises", files)
    with pytest.raises(InvalidTopic):
        LogWriter.open(PATH, files=files, order=Sole(promises))
    LogWriter.create(PATH, files=files, order=Sole(promises), log_id=LOG_ID)
    with pytest.raises(FileExistsError):
        LogWriter.create(PATH, files=files, order=Sole(promises), log_id=LOG_ID)


def test_many_ends_are_remembered_and_the_rest_is_in_the_index(monkeypatch) -> None:
    monkeypatch.setattr(appending, "ENDS_KEPT", 10)
    writer = make()
    for number in range(100):
        writer.append([encode([b"x", b"y"])], number)
    assert len(writer.ends) <= 20
    assert [writer.end_offset_at(seq) for seq in (0, 1, 50, 100)] == [0, 2, 100, 200]


def test_a_shared_cache_bounds_the_open_files_of_many_logs() -> None:
    files = MemoryFiles()
    cache = SegmentCache(files, limit=3)
    writers = []
    for number in range(10):
        where = {"files": files, "cache": cache, "order": Sole(Promises(f"/{number}-promises", files))}
        writers.append(LogWriter.create_or_open(f"/{number}", log_id=LOG_ID, options=SMALL, **where))
        for _ in range(3):
            writers[-1].append([encode([b"%d" % number * 9000])], 1)
    readers = [writer.reader().cursor(0) for writer in writers]
    for _ in range(3):
        for number, cursor in enumerate(readers):
            chunk = cursor.next(100)
            assert chunk is not None
            assert chunk.batches[0].values() == [b"%d" % number * 9000]
            assert len(cache._open) <= 3


def test_what_retention_removed_is_closed_by_every_reader_that_looks() -> None:
    files = MemoryFiles()
    cache = SegmentCache(files)
    order = Sole(Promises("/promises", files))
    writer = LogWriter.create_or_open("/0", files=files, log_id=LOG_ID, order=order, options=SMALL, cache=cache)
    for number in range(4):
        writer.append([encode([b"%d" % number * 9000, b""])], 1)
    reader = LogReader("/0", files)
    for source in (writer.reader(), reader):
        cursor = source.cursor(0)
        while cursor.next() is not None:
            pass
    writer.sync()
    writer.set_first(4)
    gone = writer.expired(writer.durable)
    assert len(gone) > 1
    for ref in gone:
        files.unlink(ref.path)
        files.unlink(ref.index_path)
    removed = {ref.name for ref in gone}
    assert removed & {name for _, name, _ in cache._open}
    writer.forget(gone)
    reader.refresh()
    assert not removed & {name for _, name, _ in (*cache._open, *reader._cache._open)}
    assert reader.first_offset == 4
    assert [batch.values()[1] for batch in reader.cursor(4).next().batches] == [b""]


def test_a_cache_gives_way_but_for_the_segment_that_may_be_in_use() -> None:
    files = MemoryFiles()
    cache = SegmentCache(files)
    cursors = []
    for number in range(3):
        where = {"files": files, "cache": cache, "order": Sole(Promises(f"/{number}-promises", files))}
        writer = LogWriter.create_or_open(f"/{number}", log_id=LOG_ID, options=SMALL, **where)
        writer.append([encode([b"x"]), encode([b"y"])], 1)
        cursors.append(writer.reader().cursor(0))
    cache.close()
    assert not cache.give_way()
    assert all(cursor.next(1) for cursor in cursors)
    assert (cache.give_way(), cache.give_way(), cache.give_way()) == (True, True, False)
    assert [directory for directory, _, _ in cache._open] == ["/2"]
    assert all(cursor.next(1) for cursor in cursors), "what gave way is opened again"


def test_a_batch_must_follow_the_one_before_it_in_every_way() -> None:
    writer = make()
    writer.append([encode([b"a"]), encode([b"b"])], 1)
    chunk = writer.reader().cursor(0).next()
    assert chunk is not None
    first, second = chunk.batches
    end = NOTHING.after(first, DATA_START)
    assert follows(NOTHING, first, LOG_ID) == ""
    assert follows(end, second, LOG_ID) == ""
    assert "stands where 1 belongs" in follows(NOTHING, second, LOG_ID)
    assert "another log" in follows(NOTHING, first, bytes(16))
    assert "does not follow" in follows(msgspec.structs.replace(end, checksum=1), second, LOG_ID)
    assert "starts at offset" in follows(msgspec.structs.replace(end, offset=7), second, LOG_ID)
    assert parse(second.buffer).seq == 2
