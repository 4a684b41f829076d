"""Verify reports what a directory holds, names every damaged place, and never changes anything."""

from __future__ import annotations

import msgspec
import pytest
from penstock.storage import accepted, layout, segment, snapshots
from penstock.storage import verify as module
from penstock.storage.batch import encode
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.recovery import LogEnd
from penstock.storage.scan import Bad, Good, Tail, look, scan
from penstock.storage.verify import verify
from support.logs import LOG_ID, add_snapshots, build, content, put


def edit(built, path: str, position: int, data: bytes) -> None:
    old = content(built.files, path)
    put(built.files, path, old[:position] + data + old[position + len(data) :])


def goods(built) -> list[int]:
    return [found.batch.seq for found in scan(built.files, built.directory) if isinstance(found, Good)]


def test_a_log_in_order_is_reported_in_numbers() -> None:
    built = build(shape=[(2, 0, 1), (3, 1)])
    report = verify(built.files, built.directory)
    assert (report.ok, report.clean, report.damage) == (True, True, [])
    assert (report.first_seq, report.last_seq, report.durable_seq, report.batches) == (1, 5, 5, 5)
    assert (report.first_offset, report.end_offset, report.records) == (0, 7, 7)
    assert [(s.batches, s.records, s.index) for s in report.segments] == [(3, 3, "ok"), (2, 4, "ok")]
    assert report.log_id == LOG_ID.hex()
    assert report.tail == Tail(built.segment_path(), built.end.position, "")


def test_staged_records_are_counted_apart() -> None:
    built = build(shape=[(2, -3), (-1, 1, -2)])
    report = verify(built.files, built.directory)
    assert (report.ok, report.batches, report.records, report.staged, report.end_offset) == (True, 5, 3, 6, 3)
    assert [(s.records, s.staged, s.index) for s in report.segments] == [(2, 3, "ok"), (1, 3, "ok")]


def test_a_log_that_begins_behind_its_snapshot_and_has_no_batch_yet_is_whole() -> None:
    """As the order of a member that has just fetched a state."""
    files = MemoryFiles()
    files.mkdir("/log")
    start = LogEnd(41, 0, 7, 99, 1_000, 2).at_start()
    order = Sole(Promises("/promises", files))
    LogWriter.create("/log", files=files, log_id=LOG_ID, order=order, start=start).close()
    snapshots.save(files, "/log", 41, 2, b"state", LOG_ID)
    report = verify(files, "/log")
    assert (report.ok, report.clean, report.damage) == (True, True, [])
    assert (report.first_seq, report.last_seq, report.batches) == (42, 41, 0)
    files.unlink(f"/log/{snapshots.file_name(41)}")
    assert not verify(files, "/log").ok, "nothing says what was before"


def test_the_report_is_plain_json() -> None:
    built = build()
    add_snapshots(built, 2, 4)
    edit(built, built.segment_path(0), layout.DATA_START + 130, b"!")
    report = verify(built.files, built.directory)
    text = msgspec.json.encode(report)
    assert msgspec.json.decode(text, type=module.Report).damage == report.damage


def test_an_empty_directory_is_an_empty_log_and_a_missing_one_is_an_error() -> None:
    built = build(shape=[])
    assert verify(built.files, built.directory).batches == 0
    with pytest.raises(FileNotFoundError, match="no log in /nowhere"):
        verify(built.files, "/nowhere")


def test_reading_changes_nothing() -> None:
    built = build(unmarked=1)
    before = {name: content(built.files, f"/log/{name}") for name in built.files.listdir("/log")}
    verify(built.files, built.directory)
    assert {name: content(built.files, f"/log/{name}") for name in built.files.listdir("/log")} == before


def test_damage_below_the_mark_names_file_position_and_what_is_lost() -> None:
    built = build(shape=[(2, 0, 1), (3, 1)])
    name, position = built.places[3]
    edit(built, built.segment_path(0), position + 4, b"\xff\xff")
    report = verify(built.files, built.directory)
    assert not report.ok
    (bad,) = report.damage
    assert (bad.file, bad.position) == (f"/log/{name.segment_file}", position)
    assert (bad.first_seq, bad.next_seq, bad.offset, bad.next_offset) == (3, 4, 2, 3)
    assert "checksum" in bad.reason
    assert goods(built) == [1, 2, 4, 5]


def test_a_damaged_column_loses_its_batch_alone() -> None:
    built = build(shape=[(2, 2, 2)])
    _, position = built.places[2]
    edit(built, built.segment_path(), position + 256, b"\xff")
    (bad,) = verify(built.files, built.directory).damage
    assert (bad.first_seq, bad.next_seq, bad.offset, bad.next_offset, bad.position) == (2, 3, 2, 4, position)
    assert goods(built) == [1, 3]


def test_above_the_mark_the_same_bytes_are_a_torn_tail_and_end_the_log() -> None:
    built = build(shape=[(2, 2, 2)], unmarked=2)
    _, position = built.places[2]
    edit(built, built.segment_path(), position + 256, b"\xff")
    report = verify(built.files, built.directory)
    assert (report.ok, report.clean) == (True, False)
    assert report.last_seq == 1
    assert report.tail is not None
    assert report.tail.position == position
    assert "column" in report.tail.reason


def test_a_missing_segment_in_the_middle_is_named_by_its_batches() -> None:
    built = build(shape=[(1, 1), (1, 1), (1,)])
    built.files.unlink(built.segment_path(1))
    (bad,) = verify(built.files, built.directory).damage
    assert (bad.first_seq, bad.next_seq, bad.offset, bad.next_offset) == (3, 5, 2, 4)
    assert bad.reason == "batch 3 is missing"
    assert goods(built) == [1, 2, 5]


def test_a_missing_first_segment_is_damage_unless_a_snapshot_reaches_it() -> None:
    built = build(shape=[(1, 1), (1, 1)])
    add_snapshots(built, 1, 2)
    built.files.unlink(built.segment_path(0))
    assert verify(built.files, built.directory).ok
    built.files.unlink("/log/snapshot-00000000000000000002")
    (bad,) = verify(built.files, built.directory).damage
    assert "starts at seq 3 and no snapshot reaches it" in bad.reason
    assert (bad.first_seq, bad.next_seq, bad.next_offset) == (1, 3, 2)


def test_a_segment_cut_short_loses_what_the_mark_promised() -> None:
    built = build(shape=[(1, 1, 1)])
    _, position = built.places[2]
    put(built.files, built.segment_path(), content(built.files, built.segment_path())[: position + 100])
    (bad,) = verify(built.files, built.directory).damage
    assert (bad.first_seq, bad.next_seq, bad.position) == (2, 4, position)
    assert (bad.offset, bad.next_offset) == (1, 3)


def test_a_lost_header_costs_no_batch() -> None:
    built = build(shape=[(1, 1), (1, 1)])
    edit(built, built.segment_path(1), 40, b"\xff")
    report = verify(built.files, built.directory)
    (bad,) = report.damage
    assert (bad.file, bad.position, bad.first_seq, bad.next_seq) == (built.segment_path(1), 0, 3, 3)
    assert goods(built) == [1, 2, 3, 4]


def test_a_segment_under_another_name_is_not_believed_to_be_there() -> None:
    built = build(shape=[(1, 1), (1, 1), (1, 1)])
    first, second = content(built.files, built.segment_path(0)), content(built.files, built.segment_path(1))
    put(built.files, built.segment_path(0), second)
    put(built.files, built.segment_path(1), first)
    report = verify(built.files, built.directory)
    assert not report.ok
    assert goods(built) == [5, 6]


def test_a_batch_of_another_log_or_place_does_not_fit() -> None:
    built, other = build(shape=[(1, 1, 1)]), build(shape=[(1, 1, 1)], log_id=bytes(16 * [9]))
    _, position = built.places[2]
    edit(built, built.segment_path(), position, other.batches[2])
    (bad,) = verify(built.files, built.directory).damage
    assert (bad.first_seq, bad.next_seq) == (2, 3)
    assert "another log" in bad.reason
    edit(built, built.segment_path(), position, built.batches[1])
    (bad,) = verify(built.files, built.directory).damage
    assert "stands where 2 belongs" in bad.reason
    assert goods(built) == [1, 3]


def test_the_index_is_held_against_the_batches() -> None:
    built = build(shape=[(1, 1), (1, 1), (1,)])
    edit(built, built.index_path(0), layout.index_position(1, 2) + 8, b"\1")
    edit(built, built.index_path(2), 10, b"\1")
    built.files.unlink(built.index_path(1))
    report = verify(built.files, built.directory)
    assert [s.index for s in report.segments] == [
        "1 rows are wrong, 0 are missing",
        "missing",
        "its header does not verify",
    ]
    assert (report.ok, report.clean) == (True, False)


def test_snapshots_are_judged() -> None:
    built = build()
    add_snapshots(built, 2, 4)
    edit(built, "/log/snapshot-00000000000000000004", 64, b"!")
    report = verify(built.files, built.directory)
    assert [(s.seq, bool(s.problem)) for s in report.snapshots] == [(4, True), (2, False)]
    assert (report.ok, report.clean) == (True, False)


def test_a_poisoned_log_says_why() -> None:
    built = build()
    put(built.files, "/log/poison", b"fdatasync said EIO\n")
    report = verify(built.files, built.directory)
    assert (report.poison, report.ok, report.clean) == ("fdatasync said EIO", True, False)


def test_accepted_damage_stays_in_the_report_and_no_longer_counts() -> None:
    built = build(shape=[(2, 2, 2)])
    _, position = built.places[2]
    edit(built, built.segment_path(), position + 256, b"\xff")
    (bad,) = verify(built.files, built.directory).damage
    given_up = accepted.Accepted(
        bad.file, bad.position, bad.first_seq, bad.next_seq, bad.offset, bad.next_offset, bad.reason, 1
    )
    accepted.write_accepted(built.files, built.directory, [given_up])
    report = verify(built.files, built.directory)
    assert (report.ok, report.damage, report.accepted) == (True, [bad], [given_up])
    _, position = built.places[3]
    edit(built, built.segment_path(), position + 256, b"\xff")
    report = verify(built.files, built.directory)
    assert [each.first_seq for each in report.unaccepted] == [3]


def test_a_flipped_bit_in_the_list_of_losses_accepts_nothing() -> None:
    built = build()
    given_up = accepted.Accepted("a", 0, 1, 2, 3, 4, "why", 1)
    accepted.write_accepted(built.files, built.directory, [given_up])
    data = content(built.files, "/log/accepted")
    assert accepted.read_accepted(built.files, "/log") == [given_up]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        put(built.files, "/log/accepted", bytes(flipped))
        assert accepted.read_accepted(built.files, "/log") in ([], [given_up])


def test_void_segments_of_older_generations_are_listed_and_not_read() -> None:
    built = build(shape=[(1, 1, 1)], unmarked=2)
    header = built.ends[1].header(LOG_ID, generation=2)
    segment.create(built.files, "/log", header, size=8192).close()
    found = list(scan(built.files, "/log"))
    assert [f.batch.seq for f in found if isinstance(f, Good)] == [1]
    assert not [f for f in found if isinstance(f, Bad)]


def test_progress_counts_bytes() -> None:
    built, seen = build(), []
    verify(built.files, built.directory, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == sum(map(len, built.batches.values()))
    assert all(done <= total for done, total in seen)


def test_a_writer_at_work_is_never_taken_for_damage() -> None:
    """Between any two steps of the scan the writer appends, syncs and rolls; what was there first is all good."""
    files = MemoryFiles()
    options = LogOptions(segment_bytes=8192, allocate_bytes=4096)
    promises = Promises("/log/promises", files)
    log = LogWriter.create("/log", files=files, log_id=LOG_ID, options=options, order=Sole(promises))
    for round_ in range(30):
        log.append([encode([b"before %d" % round_])], round_)
    log.sync()
    found = []
    for each in scan(files, "/log"):
        found.append(each)
        log.append([encode([b"meanwhile"])], 99)
        if len(found) % 3:
            log.sync()
    assert not [each for each in found if isinstance(each, Bad)]
    assert [each.batch.seq for each in found if isinstance(each, Good)][:30] == list(range(1, 31))
    assert verify(files, "/log").ok


def test_segments_that_retention_takes_meanwhile_are_not_missing() -> None:
    built = build(shape=[(1, 1), (1, 1), (1, 1)])
    add_snapshots(built, 2, 4)
    segments = look(built.files, "/log")
    built.files.unlink(built.segment_path(0))
    found = list(scan(built.files, "/log", segments))
    assert [each.batch.seq for each in found if isinstance(each, Good)] == [3, 4, 5, 6]
    assert not [each for each in found if isinstance(each, Bad)]
    assert verify(built.files, "/log").clean
