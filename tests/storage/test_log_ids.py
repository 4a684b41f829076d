"""Segments and whole logs that stand in another partition's directory are never taken for that partition's own."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from penstock.storage import layout, log_ids, snapshots
from penstock.storage.batch import encode
from penstock.storage.errors import Corrupt
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.opening import find_end
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from support.damage import read_around
from support.logs import LOG_ID, TIME, Built, build, content, put

ONE, OTHER = f"data/topics/{'1a' * 16}/0", f"data/topics/{'2b' * 16}/7"
SHAPE = [(2, 0, 1), (3, 1, 2), (1, 2, 1)]


def two(shape: list[tuple[int, ...]]) -> tuple[Built, Built]:
    """Logs of two partitions, with other values at the same places."""
    files = MemoryFiles()
    one = build(files, ONE, shape=shape, log_id=log_ids.own_id(ONE))
    other = build(files, OTHER, shape=shape, log_id=log_ids.own_id(OTHER), value_bytes=20)
    return one, other


def swap(one: Built, other: Built, places: Iterable[int]) -> None:
    for place in places:
        for path in (Built.segment_path, Built.index_path):
            a, b = (content(built.files, path(built, place)) for built in (one, other))
            put(one.files, path(one, place), b)
            put(other.files, path(other, place), a)


def opened(built: Built) -> LogWriter:
    return LogWriter.open(
        built.directory, files=built.files, order=Sole(Promises(f"{built.directory}/promises", built.files))
    )


def test_a_partitions_log_has_an_id_of_its_own_and_other_logs_random_ones() -> None:
    assert len({log_ids.own_id(directory) for directory in (ONE, OTHER, f"{ONE}0", f"/{'x/' * 3}{OTHER}")}) == 3
    assert log_ids.own_id(ONE) == bytes.fromhex("4666ffd203ad5720b02788b4203af22d")
    for directory in ("data/metadata", "/log", f"data/trash/{'1a' * 16}-12345678/0"):
        assert log_ids.own_id(directory) is None


def test_only_an_id_that_was_made_for_a_directory_can_belong_elsewhere() -> None:
    assert log_ids.is_misplaced(ONE, log_ids.own_id(OTHER))
    assert not log_ids.is_misplaced(ONE, log_ids.own_id(ONE))
    assert not log_ids.is_misplaced(ONE, MemoryFiles().new_id())
    assert not log_ids.is_misplaced(ONE, LOG_ID)
    assert not log_ids.is_misplaced("/a/copy", log_ids.own_id(OTHER))
    assert log_ids.is_misplaced("data/metadata", log_ids.own_id(OTHER))
    assert not log_ids.is_misplaced("data/metadata", MemoryFiles().new_id())


@pytest.mark.parametrize("shape", [SHAPE[:1], SHAPE])
def test_a_directory_with_the_log_of_another_partition_is_refused_with_both_names(shape: list[tuple[int, ...]]) -> None:
    one, other = two(shape)
    swap(one, other, range(len(shape)))
    for built, ours, theirs in ((one, ONE, OTHER), (other, OTHER, ONE)):
        names = f"{ours} does not hold its own log: .*{log_ids.own_id(theirs).hex()}, which belongs in {theirs}; "
        with pytest.raises(Corrupt, match=f"{names}the log of {ours} is {log_ids.own_id(ours).hex()}.*--accept-loss"):
            find_end(built.files, ours)
        with pytest.raises(Corrupt, match=names):
            opened(built)
        reader = LogReader(ours, built.files, limit=lambda: one.end.seq)
        with pytest.raises(Corrupt):
            reader.cursor(0).next(1)
        reader.close()
        report = verify(built.files, ours)
        assert (report.ok, report.records, report.log_id) == (False, 0, log_ids.own_id(ours).hex())
        assert f"which belongs in {theirs}; the log of {ours}" in report.damage[0].reason
        snapshots.save(built.files, ours, 2, 1, b"state", log_ids.own_id(theirs))
        before = {name: content(built.files, f"{ours}/{name}") for name in built.files.listdir(ours)}
        done = repair(built.files, ours, now_us=TIME)
        assert (done.actions, done.after.ok) == ([], False)
        left = {name: content(built.files, f"{ours}/{name}") for name in built.files.listdir(ours)}
        assert left == {**before, "lock": b""}, "all of it is the other's"
        built.files.unlink(f"{ours}/{snapshots.file_name(2)}")
    swap(one, other, range(len(shape)))
    for built in (one, other):
        assert read_around(built.files, built) == (built.values, [])
        assert verify(built.files, built.directory).ok


@pytest.mark.parametrize("places", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_records_of_segments_of_another_partition_are_not_read(places: tuple[int, ...]) -> None:
    one, other = two(SHAPE)
    swap(one, other, places)
    for built in (one, other):
        records, errors = read_around(built.files, built)  # each is what was written to this log
        assert errors
        assert len(records) < len(built.values)
        report = verify(built.files, built.directory)
        assert report.log_id == log_ids.own_id(built.directory).hex()
        assert sum("which belongs in" in bad.reason for bad in report.unaccepted) == len(places)


@pytest.mark.parametrize("places", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_accepting_the_loss_keeps_the_other_partitions_segments_as_they_are(places: tuple[int, ...]) -> None:
    one, other = two(SHAPE)
    swap(one, other, places)
    theirs = {place: content(one.files, one.segment_path(place)) for place in places}
    done = repair(one.files, ONE, now_us=TIME, accept_loss=True)
    assert done.after.ok
    for place, bytes_ in theirs.items():
        assert content(one.files, f"{one.segment_path(place)}.lost") == bytes_
    log = opened(one)
    log.append([encode([b"more"])], TIME * 2)
    log.sync()
    log.close()
    assert verify(one.files, ONE).ok


def test_a_file_among_the_topics_is_no_home() -> None:
    one, _ = two(SHAPE[:1])
    put(one.files, "data/topics/a file", b"")
    log_id = log_ids.own_id(f"data/topics/{'3c' * 16}/0")
    assert "which belongs in no directory here" in log_ids.misplacement(one.files, ONE, log_id)


@pytest.mark.parametrize("first_page", [True, False])
@pytest.mark.parametrize("accept_loss", [True, False])
def test_a_segment_of_a_partition_in_place_of_the_catalogue_is_left_as_it_is(
    accept_loss: bool, first_page: bool
) -> None:
    one, _ = two(SHAPE)
    catalogue = build(one.files, "data/metadata", shape=SHAPE[:1])
    snapshots.save(one.files, "data/metadata", 2, 1, b"state", LOG_ID)
    theirs = content(one.files, one.segment_path(0))
    if not first_page:
        theirs = bytes(layout.DATA_START) + theirs[layout.DATA_START :]
    put(one.files, catalogue.segment_path(0), theirs)
    before = {name: content(one.files, f"data/metadata/{name}") for name in one.files.listdir("data/metadata")}
    report = verify(one.files, "data/metadata")
    assert (report.ok, report.records) == (False, 0)
    with pytest.raises(Corrupt, match=f"does not hold its own log: .*which belongs in {ONE}; .* the catalogue's"):
        find_end(one.files, "data/metadata")
    if accept_loss:
        with pytest.raises(Corrupt, match=f"nothing is left of the log in data/metadata: .*which belongs in {ONE}"):
            repair(one.files, "data/metadata", now_us=TIME, accept_loss=True)
    else:
        assert repair(one.files, "data/metadata", now_us=TIME).actions == []
    left = {name: content(one.files, f"data/metadata/{name}") for name in one.files.listdir("data/metadata")}
    assert left == {**before, "lock": b""}
