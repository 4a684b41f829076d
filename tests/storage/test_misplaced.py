"""Segment files that hold nothing, or what belongs into others: the rest of the log is read and written as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from penstock.storage import layout
from penstock.storage.batch import encode
from penstock.storage.errors import Corrupt
from penstock.storage.layout import SegmentName
from penstock.storage.log import LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from support.damage import assert_nothing_vanished, built_records, read_around, scanned
from support.logs import LOG_ID, TIME, Built, build, content, put

SHAPE = [(2, 0, 1), (3, 1, 2), (1, 2, 1), (2, 1)]


def empty(built: Built) -> set[int]:
    put(built.files, built.segment_path(1), b"")
    return {1}


def zeros(built: Built) -> set[int]:
    put(built.files, built.segment_path(1), bytes(layout.DATA_START + 4096))
    return {1}


def copy_from(which: int) -> Callable[[Built], set[int]]:
    def copied(built: Built) -> set[int]:
        put(built.files, built.segment_path(1), content(built.files, built.segment_path(which)))
        return {1}

    copied.__name__ = f"copy of {which}"
    return copied


def swap(built: Built) -> set[int]:
    one, two = (content(built.files, built.segment_path(which)) for which in (1, 2))
    put(built.files, built.segment_path(1), two), put(built.files, built.segment_path(2), one)
    return {1, 2}


def of_another_log(built: Built) -> set[int]:
    """Its segment of the same name, which has the same seqs, with its index."""
    other = build(built.files, "/other", shape=SHAPE, log_id=bytes(range(64, 80)), value_bytes=20)
    for path in (Built.segment_path, Built.index_path):
        put(built.files, path(built, 1), content(built.files, path(other, 1)))
    return {1}


DAMAGES = [empty, zeros, copy_from(0), copy_from(2), swap, of_another_log]


def left_by(built: Built, lost: set[int]) -> set[int]:
    """The offsets of records in segments that are not lost."""
    kept = {built.names[which] for which in range(len(built.names)) if which not in lost}
    return {offset for seq, (name, _) in built.places.items() if name in kept for offset in built_records(built, seq)}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_all_that_stands_in_other_segments_is_read_and_nothing_else(damage: Callable[[Built], set[int]]) -> None:
    built = build(shape=SHAPE)
    lost = damage(built)
    found, bad, _ = scanned(built.files, built)
    assert_nothing_vanished(built, built.end.seq, found, bad)
    records, errors = read_around(built.files, built)
    assert set(records) == left_by(built, lost)
    assert errors
    reader = LogReader(built.directory, built.files)
    for offset in left_by(built, lost):  # one by one: from any place
        chunk = reader.cursor(offset).next(1)
        assert chunk is not None
        assert any(built.values[offset] in batch.values() for batch in chunk.batches)
    times = [reader.offset_at(TIME + seq) for seq in range(built.end.seq + 1)]
    assert times == sorted(times)
    reader.close()


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_writer_goes_on_and_says_how_large_the_segments_are(
    damage: Callable[[Built], set[int]], accepted: bool
) -> None:
    built = build(shape=SHAPE)
    damage(built)
    if accepted:
        assert repair(built.files, "/log", now_us=TIME, accept_loss=True).after.ok
    log = LogWriter.open("/log", files=built.files, order=Sole(Promises("/log/promises", built.files)))
    (appended,) = log.append([encode([b"more"])], TIME * 2)
    assert appended.base_offset == built.end.offset
    extents = log.segments()
    assert [each.base_seq for each in extents][:4] == [name.base_seq for name in built.names]
    assert [each.end_offset for each in extents[:-1]] == [each.base_offset for each in extents[1:]]
    assert [each.last_time_us for each in extents] == sorted(each.last_time_us for each in extents)
    log.close()
    assert verify(built.files, "/log").ok == accepted


def test_a_foreign_last_segment_hides_nothing_that_stands_before_it() -> None:
    built = build(shape=SHAPE)
    other = build(built.files, "/other", shape=SHAPE, log_id=bytes(range(64, 80)), value_bytes=20)
    put(built.files, built.segment_path(3), content(built.files, other.segment_path(3)))
    reader = LogReader(built.directory, built.files, limit=lambda: built.end.seq)
    assert reader.first_offset == 0
    with pytest.raises(Corrupt):
        reader.cursor(0).next(1)
    reader.close()


@pytest.mark.parametrize("which", [0, 3])
def test_a_log_whose_first_or_newest_segment_is_another_logs_is_refused_until_its_loss_is_accepted(which: int) -> None:
    built = build(shape=SHAPE)
    other = build(built.files, "/other", shape=SHAPE, log_id=bytes(range(64, 80)), value_bytes=20)
    for path in (Built.segment_path, Built.index_path):
        put(built.files, path(built, which), content(built.files, path(other, which)))
    order = Sole(Promises("/log/promises", built.files))
    with pytest.raises(Corrupt, match=rf"{built.segment_path(which)} cannot be read any more; .*--accept-loss"):
        LogWriter.open("/log", files=built.files, order=order)
    theirs = content(built.files, other.segment_path(which))
    done = repair(built.files, "/log", now_us=TIME, accept_loss=True)
    assert done.after.ok
    assert content(built.files, f"{built.segment_path(which)}.lost") == theirs
    assert [action for action in done.actions if "first page" in action or "aside" in action] == done.actions[:2]
    assert ("so their offsets are given out again" in done.actions[1]) == (which == 3)
    records, _ = read_around(built.files, built)
    assert set(records) == left_by(built, {which})
    log = LogWriter.open("/log", files=built.files, order=order)
    assert log.log_id == LOG_ID
    log.append([encode([b"more"])], TIME * 2)
    log.close()


def copied_under_the_next_generation(which: int, header: bytes | None = None) -> Built:
    """`header`: bytes that stand where the copy had its first page."""
    built = build(shape=SHAPE)
    name = built.names[which]
    data = content(built.files, built.segment_path(which))
    copy = SegmentName(name.base_seq, name.generation + 1).segment_file
    put(built.files, f"/log/{copy}", data if header is None else header + data[len(header) :])
    return built


@pytest.mark.parametrize("which", range(len(SHAPE)))
def test_a_copy_under_the_next_generation_makes_nothing_void(which: int) -> None:
    built = copied_under_the_next_generation(which)
    before = built.files.listdir("/log")
    order = Sole(Promises("/log/promises", built.files))
    with pytest.raises(Corrupt, match=r"-00000002.segment cannot be read any more; .*penstock log repair"):
        LogWriter.open("/log", files=built.files, order=order)
    assert set(before) - set(built.files.listdir("/log")) == set()
    done = repair(built.files, "/log", now_us=TIME)
    assert done.after.clean
    (action,) = done.actions
    assert "a copy of" in action
    records, errors = read_around(built.files, built)
    assert (records, errors) == (built.values, [])
    log = LogWriter.open("/log", files=built.files, order=order)
    (appended,) = log.append([encode([b"more"])], TIME * 2)
    assert appended.base_offset == built.end.offset
    log.close()


def test_what_a_segment_without_its_header_makes_void_is_set_aside_and_named() -> None:
    built = copied_under_the_next_generation(1, bytes(layout.DATA_START))
    order = Sole(Promises("/log/promises", built.files))
    with pytest.raises(Corrupt, match="cannot be read any more"):
        LogWriter.open("/log", files=built.files, order=order)
    assert not [action for action in repair(built.files, "/log", now_us=TIME).actions if "header" in action]
    done = repair(built.files, "/log", now_us=TIME, accept_loss=True)
    assert done.after.ok
    aside = {action.split()[1] for action in done.actions if action.startswith("set ")}
    assert aside == {built.segment_path(which) for which in (1, 2, 3)}
    assert {f"{path.rpartition('/')[2]}.lost" for path in aside} <= set(built.files.listdir("/log"))
    LogWriter.open("/log", files=built.files, order=order).close()
