"""Cutting an open log: what goes, what may not go, who notices, and what a disk that is full or failed makes of it."""

from __future__ import annotations

import errno

import pytest
from penstock.storage import layout
from penstock.storage.batch import encode
from penstock.storage.board import Board, Level
from penstock.storage.cutting import UnsafeCut
from penstock.storage.errors import Closed, Corrupt, Diverged, OutOfBounds, Poisoned, StorageFull
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.tail import LogTail
from penstock.storage.verify import verify
from support.files import RecordingFiles
from support.following import LOG_ID, PATH, Group, held, leader, opened

SIZES = [10, 9000, 9000, 9000, 10, 10]


def followed(sizes: list[int] = SIZES) -> tuple[LogWriter, list[bytes]]:
    """A log of batches of these sizes, nothing committed, and the batches."""
    batches = leader(3, [], sizes)
    log = opened(RecordingFiles(directories=[PATH, ""]), Group())
    log.append_stamped(batches)
    return log, batches


def sole(commit: str = "durable") -> LogWriter:
    files = RecordingFiles(directories=[PATH, ""])
    options = LogOptions(segment_bytes=20_000, allocate_bytes=8192, commit=commit)
    return LogWriter.create(PATH, files=files, log_id=LOG_ID, order=Sole(Promises("/promises", files)), options=options)


def changes(log: LogWriter) -> list[int]:
    """How often the disk was written to and synced."""
    return [log.files.calls.get(kind, 0) for kind in ("create", "write", "sync", "sync_dir")]


def reopened(log: LogWriter) -> LogWriter:
    return opened(log.files, Group())


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("seq", range(len(SIZES)))
def test_a_cut_takes_what_is_behind_it_and_what_comes_next_stands_there(seq: int, synced: bool) -> None:
    log, batches = followed()
    if synced:
        log.sync()
    log.cut(seq)
    assert (log.written, log.durable, log.end_offset, log.end_offset_at(seq)) == (seq, seq, seq, seq)
    assert (log.generation, log.ready, log.last_time_us) == (2, False, 3000 + seq - 1 if seq else 0)
    assert held(log) == batches[:seq]
    assert held(reopened(log)) == batches[:seq]
    other = leader(4, batches[:seq], [100, 17_000])
    log.append_stamped(other[seq:])
    assert held(log) == other
    assert [log.end_offset_at(each) for each in range(seq + 3)] == list(range(seq + 3))
    assert not verify(log.files, PATH).damage
    log.close()
    assert held(reopened(log)) == other


@pytest.mark.parametrize("synced", [0, 4, 5, 6])
@pytest.mark.parametrize("seq", [3, 4, 5])
def test_a_log_that_goes_back_in_its_last_segment_is_cut_with_the_next_append(seq: int, synced: int) -> None:
    log, batches = followed()
    log.settle(1, synced)
    lazy, before = seq >= log.names[-1].base_seq, changes(log)
    assert lazy == (seq > 3)
    log.go_back(seq)
    assert (changes(log) == before, log.generation) == (lazy, 1 if lazy else 2)
    assert (log.written, log.durable, log.end_offset) == (seq, min(seq, synced) if lazy else seq, seq)
    assert held(log) == batches[:seq]
    assert [each.last_seq for each in log.segments()][-1] == seq
    assert held(reopened(log)) == batches[: 6 if lazy else seq]
    assert log.sync() == log.durable == seq
    other = leader(4, batches[:seq], [100, 17_000])
    log.append_stamped(other[seq:])
    assert (log.generation, held(log)) == (2, other)
    assert not verify(log.files, PATH).damage
    log.close()
    assert held(reopened(log)) == other


def test_a_log_that_was_found_after_a_crash_goes_back_without_a_cut() -> None:
    log, batches = followed()
    again = reopened(log)
    before = changes(again)
    again.go_back(5)
    again.go_back(4)
    assert (changes(again), again.must_cut, held(again)) == (before, True, batches[:4])
    again.append_stamped(leader(4, batches[:4], [100])[4:])
    assert (again.generation, again.written) == (2, 5)


def test_a_sync_of_what_was_taken_back_vouches_for_what_is_left() -> None:
    log, _ = followed()
    log.go_back(5)
    log.settle(2, 6)
    assert log.durable == 0
    log.settle(1, 6)
    assert (log.durable, log.dirty_segments()) == (5, [])


def test_a_log_that_went_back_is_synced_by_a_close_which_leaves_no_clean_mark() -> None:
    log, batches = followed()
    log.go_back(5)
    before = log.files.calls["sync"]
    log.close()
    assert log.files.calls["sync"] > before
    again = reopened(log)
    assert again.must_cut
    assert held(again) == batches


def test_a_cut_behind_the_last_batch_changes_nothing() -> None:
    log, batches = followed()
    log.cut(len(batches))
    assert (log.generation, log.durable) == (1, 0)


def test_a_cut_where_one_is_due_does_it() -> None:
    log, batches = followed()
    log = reopened(log)
    assert log.must_cut
    log.cut(len(batches))
    assert (log.must_cut, log.generation) == (False, 2)


def test_the_generation_is_on_the_disk_before_a_cut_returns() -> None:
    log, _ = followed()
    told = []
    log.on_segment = told.append
    log.cut(2)
    assert [(ref.base_seq, ref.generation) for ref in told] == [(3, 2)]
    assert layout.live_segments(log.files.listdir(PATH)) == ([(1, 1), (3, 2)], [])
    assert (log.names, log.dirty_segments(), len(log.opened)) == ([(1, 1), (3, 2)], [], 1)


def test_a_cut_goes_no_deeper_than_what_is_committed() -> None:
    log, _ = followed()
    assert isinstance(log._order, Group)
    log._order.commit = 4
    with pytest.raises(UnsafeCut, match="behind batch 3: everything up to 4"):
        log.cut(3)
    assert log.written == 6
    log.cut(4)
    assert log.written == 4


def test_a_cut_goes_no_deeper_than_what_is_safe() -> None:
    class Keeping(Group):
        def safe(self, log: LogTail) -> int:
            return 3

    log, _ = followed()
    log = opened(log.files, Keeping())
    with pytest.raises(UnsafeCut, match="everything up to 3"):
        log.cut(2)
    log.cut(3)


def test_a_sole_writer_cuts_nothing_that_is_durable_or_can_be_read() -> None:
    log = sole()
    log.append([encode([b"one"])], 1)
    log.sync()
    log.append([encode([b"two"])], 1)
    with pytest.raises(UnsafeCut):
        log.cut(0)
    log.cut(1)
    assert (log.written, log.safe, log.committed) == (1, 1, 1)
    written = sole(commit="written")
    written.append([encode([b"one"])], 1)
    assert (written.safe, written.committed) == (0, 1)
    with pytest.raises(UnsafeCut):
        written.cut(0)


@pytest.mark.parametrize("seq", [-1, 7])
def test_a_log_is_not_cut_where_it_is_not(seq: int) -> None:
    log, _ = followed()
    with pytest.raises(OutOfBounds, match="it holds 1 to 6"):
        log.cut(seq)


def test_a_log_that_begins_later_is_cut_down_to_its_beginning() -> None:
    log, batches = followed()
    log.sync()
    first = layout.live_segments(log.files.listdir(PATH))[0][1].base_seq
    log.set_first(first - 1)
    gone = log.expired(6)
    for ref in gone:
        log.files.unlink(ref.path)
        log.files.unlink(ref.index_path)
    log.forget(gone)
    with pytest.raises(OutOfBounds, match=f"it holds {first} to 6"):
        log.cut(first - 2)
    log.cut(first - 1)
    assert (log.written, log.end_offset, log.first_offset) == (first - 1, first - 1, first - 1)
    log.append_stamped(batches[first - 1 :])
    assert held(log) == batches[first - 1 :]


def test_a_sole_writer_has_another_term_after_a_cut() -> None:
    log = sole()
    log.append([encode([b"one"])], 1)
    log.sync()
    log.append([encode([b"two"])], 1)
    term = log.term
    log.cut(1)
    assert log.next_term > term
    log.append([encode([b"other"])], 1)
    assert (log.term, log.written) == (term + 1, 2)
    log.append([encode([b"more"])], 1)
    assert log.term == log.next_term == term + 1


def test_a_place_by_number_is_found_where_a_cut_put_other_batches() -> None:
    for look in (LogReader.cursor_at, lambda reader, seq: reader.cursor_after(seq - 1)):
        log = sole()
        log.append([encode([b"x"]), encode([b"x"]), encode([b"x"])], 1)
        reader = log.reader()
        assert reader.row(3) is not None
        log.cut(1)
        log.append([encode([b"other"] * 3), encode([b"y"])], 1)
        log.sync()
        chunk = look(reader, 3).next(1 << 16, 3)
        assert chunk is not None
        assert [batch.values() for batch in chunk.batches] == [[b"y"]]


def test_a_reader_of_what_was_taken_back_is_told_and_others_go_on() -> None:
    log, batches = followed()
    board = Board.private(1, slots=0)
    row = board.row(0)
    row.assign(layout.log_number(LOG_ID), generation=log.generation, level=Level.WRITTEN)

    def publish(*_: object) -> None:
        row.publish(log.generation, log.written, log.durable, log.first_offset)

    publish()
    log.on_segment = publish
    for mapped in (False, True):
        reader = LogReader(PATH, log.files, mapped=mapped, limit=lambda: layout.word(*row.committed()))
        ahead, behind = reader.cursor(0), reader.cursor(0)
        while ahead.next() is not None:
            pass
        behind.next(1)
        log.cut(2)
        assert row.committed() == (log.generation, 2)
        log.append_stamped(leader(9, batches[:2], [10] * 6)[2:])
        publish()
        with pytest.raises(Diverged, match="from offset 2"):
            ahead.next()
        found = []
        while (chunk := behind.next()) is not None:
            found += [batch.term for batch in chunk.batches]
        assert found == [3] + [9] * 6
        log.cut(2)
        log.append_stamped(batches[2:])
        publish()


@pytest.mark.parametrize("kind", ["create", "allocate", "sync_dir", "write"])
def test_where_there_is_no_room_to_cut_nothing_follows_before_it_is_done(kind: str) -> None:
    log, batches = followed()
    log.sync()
    log.files.fail(kind, 1, errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.cut(2)
    assert (log.written, log.must_cut, log.ready) == (2, True, False)
    assert log.end().position == layout.DATA_START + len(batches[0]) + len(batches[1])
    assert log.sync() == 2
    log.mark_durable()
    assert log.dirty_segments() == []
    assert held(log) == batches[:2]
    log.files.heal()
    log.append_stamped(leader(5, batches[:2], [10])[2:])
    assert (log.generation, log.written) == (2, 3)
    assert held(reopened(log)) == held(log)


def test_a_cut_that_failed_leaves_open_what_ends_before_it_and_no_more() -> None:
    log, batches = followed()
    log.files.fail("create", 1, errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.cut(1)
    assert [segment.ref.base_seq for segment in log.opened] == [1]
    assert (log.end().position, log.durable) == (layout.DATA_START + len(batches[0]), 1)
    assert log.dirty_segments() == []
    assert log.ends == {0: 0, 1: 1}


def test_the_end_of_a_log_is_at_hand_after_a_cut() -> None:
    log, _ = followed()
    again = reopened(log)
    again.cut(2)
    assert again.ends == {2: 2}


def test_a_close_behind_a_cut_that_failed_leaves_no_clean_mark() -> None:
    log, batches = followed()
    log.files.fail("create", 1, errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.cut(2)
    log.files.heal()
    log.close()
    again = reopened(log)
    assert again.must_cut
    assert held(again) == batches


def test_a_poison_is_gone_before_a_cut_goes_below_what_it_says() -> None:
    """It says up to where the log was durable: beside a log that ends below that, it would look like a loss."""
    log, batches = followed()
    log.sync()
    log.poison("a sync failed")
    with pytest.raises(Poisoned):
        log.cut(2)
    assert log.written == len(batches)
    log = reopened(log)
    steps: list[int] = []
    log.on_segment = lambda _: steps.append(log.files.exists(f"{PATH}/{layout.POISON}"))
    log.cut(2)
    assert steps == [False, False]
    assert held(reopened(log)) == batches[:2]


def test_a_closed_log_is_not_cut() -> None:
    log, _ = followed()
    log.close()
    with pytest.raises(Closed):
        log.cut(2)
    assert log.written == len(SIZES)


def test_damage_at_the_place_of_a_cut_is_named_unless_a_segment_begins_there() -> None:
    log, _ = followed()
    names = layout.live_segments(log.files.listdir(PATH))[0]
    for name in names:
        content = log.files.contents[f"{PATH}/{name.segment_file}"].data
        content[layout.DATA_START + 40] ^= 1  # the first batch's seq
    boundary, inside = names[2].base_seq - 1, names[-1].base_seq
    assert names[1].base_seq == boundary
    with pytest.raises(Corrupt, match=f"batch {inside} of .* is damaged"):
        log.cut(inside)
    log.cut(boundary)
    assert (log.written, log.end_offset) == (boundary, boundary)


def test_a_boundary_of_segments_that_tells_nothing_is_damage_too() -> None:
    log, _ = followed()
    for name in layout.live_segments(log.files.listdir(PATH))[0]:
        content = log.files.contents[f"{PATH}/{name.segment_file}"].data
        content[layout.DATA_START + 40] ^= 1
        content[40] ^= 1  # the header's base seq
    with pytest.raises(Corrupt, match=r"batch 3 of .* is damaged"):
        log.cut(3)


def test_older_marks_do_not_bring_back_what_was_cut() -> None:
    log, batches = followed()
    log.sync()
    log.cut(1)
    content = log.files.contents[f"{PATH}/{layout.SegmentName(2, 2).segment_file}"].data
    for position in layout.MARK_POSITIONS:
        content[position : position + layout.SECTOR_BYTES] = bytes(layout.SECTOR_BYTES)
    again = reopened(log)
    assert (again.written, again.damage) == (1, [])
    assert held(again) == batches[:1]


def test_extents_are_measured_anew_after_a_cut() -> None:
    log, batches = followed()
    before = log.segments()
    assert (before[0].last_seq, len(before)) == (2, 3)
    log.cut(1)
    after = [(each.base_seq, each.last_seq, each.record_bytes) for each in log.segments()]
    assert after == [(1, 1, len(batches[0])), (2, 1, 0)]


@pytest.mark.parametrize("seq", range(len(SIZES)))
def test_what_retention_removes_after_a_cut_is_all_but_the_segment_that_is_written(seq: int) -> None:
    log, _ = followed()
    log.cut(seq)
    log.set_first(seq)
    kept = [each.base_seq for each in log.segments()]
    assert [ref.base_seq for ref in log.expired(seq)] == kept[:-1]


def test_a_cut_that_removes_nothing_syncs_the_directory_once() -> None:
    log, _ = followed()
    log.sync()
    files, synced = log.files, []
    sync_dir = files.sync_dir
    files.sync_dir = lambda path: (synced.append(path), sync_dir(path))[1]
    log.cut_here()
    assert synced == [PATH]
    log.append_stamped(leader(4, held(log), [10])[len(SIZES) :])
    log.cut(len(SIZES))
    assert synced[1:] == [PATH, PATH], "a void segment is removed behind it"
    assert held(reopened(log)) == held(log)
