"""Damage of every kind: never a wrong record, never a hang, never a good batch dropped silently.

Each test takes a small log, damages its bytes in every way of one kind, and asks the scan behind verify and dump,
and a reader that goes around what is damaged. The truth is what was built: `built.batches` and `built.values`.
"""

from __future__ import annotations

import random

import pytest
from penstock.storage import layout, snapshots
from penstock.storage.files import Files
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.scan import Bad, Good, Tail, scan
from penstock.storage.snapshots import load_newest
from penstock.storage.verify import verify
from support.damage import (
    assert_nothing_vanished,
    built_records,
    checked_bytes,
    flips,
    in_batch,
    read_around,
    scanned,
)
from support.logs import LOG_ID, Built, add_snapshots, build, content, copy_of, put


def check(files: Files, built: Built, durable: int) -> tuple[dict[int, bytes], list[Bad], Tail | None]:
    """All parties over one damaged copy; returns what the scan found."""
    found, bad, tail = scanned(files, built)
    assert_nothing_vanished(built, durable, found, bad)
    records, errors = read_around(files, built)
    lost = [seq for seq in range(1, durable + 1) if seq not in found]
    if lost and any(built_records(built, seq) for seq in lost):
        assert errors, f"the reader said nothing about {lost}"
    for seq in found:
        if seq <= durable:
            for offset in built_records(built, seq):
                assert offset in records, f"record {offset} of good batch {seq} was not handed out: {errors}"
    return found, bad, tail


@pytest.fixture(scope="module", params=[0, -2], ids=["state", "staged"])
def small(request: pytest.FixtureRequest) -> Built:
    """One segment: two records, a state or what is staged, one record; all of it under the mark."""
    return build(shape=[(2, request.param, 1)])


def test_every_bit_of_the_batches_is_noticed_or_does_not_matter(small: Built) -> None:
    path, data = small.segment_path(), content(small.files, small.segment_path())
    files = copy_of(small)
    noticed = 0
    for position, mutant in flips(data, layout.DATA_START, small.end.position):
        put(files, path, mutant)
        found, bad, _ = scanned(files, small)
        assert_nothing_vanished(small, 3, found, bad)
        hit = in_batch(small, position)
        assert set(found) >= {1, 2, 3} - {hit}, "one flipped bit costs one batch at most"
        if bad:
            noticed += 1
            assert [(b.file, b.position, b.first_seq) for b in bad] == [(path, small.places[hit][1], hit)]
    checked = sum(map(checked_bytes, small.batches.values()))
    assert noticed == 8 * checked, "only padding between columns may be flipped unnoticed"


def test_readers_go_around_every_flipped_bit(small: Built) -> None:
    """As above for the stream reader; every fifth bit, all positions."""
    path, data = small.segment_path(), content(small.files, small.segment_path())
    files = copy_of(small)
    for number, (position, mutant) in enumerate(flips(data, layout.DATA_START, small.end.position)):
        if number % 5:
            continue
        put(files, path, mutant)
        records, errors = read_around(files, small)
        hit = in_batch(small, position)
        safe = {offset for seq in (1, 2, 3) if seq != hit for offset in built_records(small, seq)}
        assert set(records) >= safe, f"bit {number}: {errors}"
        lost = set(small.values) - set(records)
        assert not lost or errors


def test_every_bit_of_the_first_page_costs_no_batch(small: Built) -> None:
    path, data = small.segment_path(), content(small.files, small.segment_path())
    files = copy_of(small)
    sectors = [0, *layout.MARK_POSITIONS]
    for sector in sectors:
        for number, (_, mutant) in enumerate(flips(data, sector, sector + layout.SECTOR_BYTES)):
            put(files, path, mutant)
            found, bad, tail = scanned(files, small)
            assert set(found) == {1, 2, 3}
            assert not [b for b in bad if b.position != 0]
            assert tail is not None
            if number % 16 == 0:
                records, _ = read_around(files, small)
                assert set(records) == set(small.values)


@pytest.mark.parametrize("unmarked", [0, 2])
def test_every_truncation_keeps_what_is_whole_and_names_what_is_not(unmarked: int) -> None:
    built = build(shape=[(2, 0, 1)], unmarked=unmarked)
    path, data = built.segment_path(), content(built.files, built.segment_path())
    files = copy_of(built)
    for length in range(0, len(data)):
        put(files, path, data[:length])
        marked = 3 - unmarked if length >= layout.MARK_POSITIONS[0] + layout.SECTOR_BYTES else 0
        found, bad, _ = scanned(files, built)
        assert_nothing_vanished(built, marked, found, bad)
        whole = {seq for seq in (1, 2, 3) if built.ends[seq].position <= length}
        assert set(found) == whole
        if length % 16 == 0 or (length > layout.DATA_START and length % 4 == 0):
            records, errors = read_around(files, built)
            assert set(records) == {o for seq in whole for o in built_records(built, seq)}
            assert errors or len(whole) >= marked or not length


@pytest.mark.parametrize("fill", ["zeros", "noise", "ones"])
@pytest.mark.parametrize("unmarked", [0, 1])
def test_a_tail_of_anything_is_no_record(fill: str, unmarked: int) -> None:
    built = build(shape=[(2, 0, 1)], unmarked=unmarked)
    path, data = built.segment_path(), content(built.files, built.segment_path())
    files, chance = copy_of(built), random.Random(7)
    for size in [1, 7, 8, 63, 64, 65, 128, 500, 4096, 8192]:
        tail = {"zeros": bytes(size), "ones": b"\xff" * size, "noise": chance.randbytes(size)}[fill]
        put(files, path, data[: built.end.position] + tail)
        found, bad, _ = check(files, built, 3 - unmarked)
        assert set(found) == {1, 2, 3}
        assert not bad


def test_stale_bytes_of_an_older_segment_are_no_records() -> None:
    """A recycled block holds whole, valid batches: of another log, of an older generation, of another place."""
    built = build(shape=[(2, 0, 1)])
    others = [
        build(shape=[(2, 0, 1, 1, 1)], log_id=bytes(16 * [9])),
        build(shape=[(1, 1, 1, 2, 2)]),
        build(shape=[(2, 0, 1)]),
    ]
    path, data = built.segment_path(), content(built.files, built.segment_path())
    files = copy_of(built)
    for other in others:
        for seq in other.batches:
            put(files, path, data[: built.end.position] + other.batches[seq] + bytes(256))
            found, bad, _ = scanned(files, built)
            assert set(found) == {1, 2, 3}, seq
            assert not bad


def test_stale_bytes_behind_the_mark_of_the_same_chain_only_continue_it() -> None:
    """Bytes that do continue the chain are this log's own batches; nothing else ever passes for seq 4."""
    built = build(shape=[(2, 0, 1)])
    longer = build(shape=[(2, 0, 1, 5)])
    path, data = built.segment_path(), content(built.files, built.segment_path())
    files = copy_of(built)
    put(files, path, data[: built.end.position] + longer.batches[4] + bytes(64))
    found = [each.batch.seq for each in scan(files, "/log") if isinstance(each, Good)]
    assert found == [1, 2, 3, 4]


def test_swapped_pages_lose_no_batch_silently() -> None:
    built = build(shape=[(1,) * 12], value_bytes=1000)
    path, data = built.segment_path(), content(built.files, built.segment_path())
    files = copy_of(built)
    pages = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    for first in range(len(pages)):
        for second in range(first + 1, len(pages)):
            mutant = list(pages)
            mutant[first], mutant[second] = mutant[second], mutant[first]
            put(files, path, b"".join(mutant))
            check(files, built, 12 if first else 0)


def test_copied_blocks_are_not_taken_for_batches() -> None:
    built = build(shape=[(1, 2, 1, 2)])
    path, data = built.segment_path(), content(built.files, built.segment_path())
    files = copy_of(built)
    for source in built.batches:
        for target in built.batches:
            start = built.places[target][1]
            piece = built.batches[source]
            put(files, path, data[:start] + piece + data[start + len(piece) :])
            _, bad, _ = check(files, built, 4)
            assert bool(bad) == (source != target)


@pytest.mark.parametrize("shape", [[(2, 1), (1, 1), (3,)]])
def test_every_missing_file_and_pair_is_named_or_rebuilt(shape: list[tuple[int, ...]]) -> None:
    built = build(shape=shape)
    add_snapshots(built, 1, 2)
    names = sorted(built.files.listdir("/log"))
    for first in names:
        for second in names:
            files = copy_of(built)
            for name in {first, second}:
                files.unlink(f"/log/{name}")
            gone = {n for n in built.names if n.segment_file in (first, second)}
            durable = 0 if built.names[-1] in gone else 5
            report = verify(files, "/log")
            found, _, _ = scanned(files, built)
            kept = {seq for seq, (name, _) in built.places.items() if name not in gone}
            if built.names[-1] in gone:
                assert set(found) <= kept
                continue
            assert set(found) == kept
            first_seq = min(kept)
            named = {seq for b in report.damage for seq in range(b.first_seq, (b.next_seq or b.first_seq + 1))}
            snapshot_left = any(s.seq >= first_seq - 1 for s in report.snapshots)
            lost = set(range(1, durable + 1)) - kept
            expected = {seq for seq in lost if seq > first_seq} if snapshot_left else lost
            assert named == expected, (first, second)
            records, _ = read_around(files, built)
            assert set(records) == {o for seq in kept for o in built_records(built, seq)}


def test_every_bit_of_the_index_is_noticed_and_changes_no_answer(small: Built) -> None:
    path, data = small.index_path(), content(small.files, small.index_path())
    files = copy_of(small)
    for position, mutant in flips(data, 0, len(data)):
        put(files, path, mutant)
        report = verify(files, "/log")
        assert report.ok
        assert report.segments[0].index != "ok", position
        if position % 4 == 0:
            records, errors = read_around(files, small)
            assert (set(records), errors) == (set(small.values), [])


def test_every_length_of_the_index_changes_no_answer(small: Built) -> None:
    path, data = small.index_path(), content(small.files, small.index_path())
    files = copy_of(small)
    for length in range(len(data)):
        put(files, path, data[:length])
        assert verify(files, "/log").segments[0].index != "ok"
        records, errors = read_around(files, small)
        assert (set(records), errors) == (set(small.values), [])


def test_every_bit_and_every_length_of_a_snapshot_falls_back_to_the_one_before() -> None:
    built = build()
    add_snapshots(built, 2, 4)
    path = f"/log/{snapshots.file_name(4)}"
    data = content(built.files, path)
    files = copy_of(built)
    whole, before = load_newest(files, "/log", LOG_ID), snapshots.Snapshot(2, 1, b"state at 2", LOG_ID)
    assert whole == snapshots.Snapshot(4, 1, b"state at 4", LOG_ID)
    mutants = [mutant for _, mutant in flips(data, 0, len(data))] + [data[:length] for length in range(len(data))]
    for mutant in mutants:
        put(files, path, mutant)
        assert load_newest(files, "/log", LOG_ID) == before
    for tail in (bytes(64), b"\xff" * 100):
        put(files, path, data + tail)
        assert load_newest(files, "/log", LOG_ID) == whole


def test_a_directory_of_garbage_is_no_log() -> None:
    files, chance = MemoryFiles(), random.Random(3)
    files.mkdir("/log")
    name = layout.SegmentName(1, 1)
    for size in (0, 1, 511, 4096, 5000, 20_000):
        for data in (bytes(size), chance.randbytes(size)):
            put(files, f"/log/{name.segment_file}", data)
            assert [each for each in scan(files, "/log") if isinstance(each, Good)] == []
            assert verify(files, "/log").batches == 0
