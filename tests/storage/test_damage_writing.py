"""Writing on over damage: opening, appending and repairing lose nothing that was good before.

A writer looks at the tail only. What it must never do is give seqs and offsets out a second time, or remove what
a scan still finds.
"""

from __future__ import annotations

import random

import pytest
from penstock.storage import layout
from penstock.storage.batch import encode
from penstock.storage.dump import dump
from penstock.storage.errors import Corrupt
from penstock.storage.files import Files
from penstock.storage.log import LogWriter
from penstock.storage.opening import check_readable, find_end
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.repair import repair
from penstock.storage.scan import Bad, Good, scan
from penstock.storage.verify import verify
from support.damage import (
    STEPS_MAX,
    assert_true,
    damaged_at_random,
    flips,
    read_around,
    scanned,
)
from support.logs import TIME, add_snapshots, build, content, copy_of, put


def write_on(files: Files) -> None:
    """What the next writer does to a damaged log: open, append, sync, close."""
    log = LogWriter.open("/log", files=files, order=Sole(Promises("/log/promises", files)))
    log.append([encode([b"written after the damage"])], TIME + 1_000_000)
    log.sync()
    log.close()


@pytest.mark.parametrize("clean", [False, True])
def test_a_writer_over_any_flipped_bit_keeps_every_good_batch(clean: bool) -> None:
    """Every third bit of page and batches: opening, appending and closing lose nothing the scan found before."""
    built = build(shape=[(2, 0, 1)], clean=clean)
    path, data = built.segment_path(), content(built.files, built.segment_path())
    regions = [(0, 512), (1024, 1536), (layout.DATA_START, built.end.position)]
    for start, end in regions:
        for number, (position, mutant) in enumerate(flips(data, start, end)):
            if number % 3:
                continue
            files = copy_of(built)
            put(files, path, mutant)
            before, _, _ = scanned(files, built)
            write_on(files)
            found = [each.batch for each in scan(files, "/log") if isinstance(each, Good)]
            assert [batch.seq for batch in found] == [*sorted(before), 4], position
            assert found[-1].values() == [b"written after the damage"]
            assert found[-1].base_offset == 3
            for batch in found[:-1]:
                assert_true(batch, built)


def test_a_writer_over_a_torn_tail_keeps_what_is_whole_before_it() -> None:
    """The last two batches are above the mark: a flip in either cuts there, and the log goes on right behind."""
    built = build(shape=[(2, 0, 1)], unmarked=2)
    path, data = built.segment_path(), content(built.files, built.segment_path())
    for number, (_, mutant) in enumerate(flips(data, built.places[2][1], built.end.position)):
        if number % 3:
            continue
        files = copy_of(built)
        put(files, path, mutant)
        before, _, _ = scanned(files, built)
        assert set(before) in ({1}, {1, 2}, {1, 2, 3})
        write_on(files)
        found = [each for each in scan(files, "/log") if isinstance(each, Good)]
        assert [each.batch.seq for each in found] == [*sorted(before), len(before) + 1]
        assert verify(files, "/log").clean


def test_a_writer_over_any_truncation_keeps_what_is_left() -> None:
    for unmarked in (0, 2):
        built = build(shape=[(2, 0, 1)], unmarked=unmarked)
        path, data = built.segment_path(), content(built.files, built.segment_path())
        for length in range(layout.DATA_START, len(data), 8):
            files = copy_of(built)
            put(files, path, data[:length])
            before, lost, _ = scanned(files, built)
            write_on(files)
            found: list[int] = []
            bad: list[Bad] = []
            for each in scan(files, "/log"):
                if isinstance(each, Good):
                    found.append(each.batch.seq)
                elif isinstance(each, Bad):
                    bad.append(each)
            marked = 3 - unmarked
            assert found == [*sorted(before), max(marked, len(before)) + 1]
            assert [(b.first_seq, b.next_seq) for b in bad] == [(b.first_seq, b.next_seq) for b in lost]


def test_a_log_whose_last_segment_says_nothing_is_refused_not_begun_again() -> None:
    """A name without its header is damage for certain: going on would give offsets out a second time."""
    built = build(shape=[(2, 0, 1)])
    path, data = built.segment_path(), content(built.files, built.segment_path())
    mutants = [data[:length] for length in range(0, layout.MARK_POSITIONS[0] + 512, 64)]
    mutants += [bytes(len(data)), bytes(5000) + data[5000:]]
    for mutant in mutants:
        files = copy_of(built)
        put(files, path, mutant)
        before = {name: content(files, f"/log/{name}") for name in files.listdir("/log")}
        with pytest.raises(Corrupt):
            write_on(files)
        before["promises"] = content(files, "/log/promises")
        assert {name: content(files, f"/log/{name}") for name in files.listdir("/log")} == before


@pytest.mark.parametrize(
    ("path", "way_out"),
    [
        ("/log", "; penstock log repair --accept-loss goes on without what is lost"),
        ("/data/metadata", "; restore it from a copy; penstock log repair --accept-loss goes on without the topics"),
    ],
)
def test_a_lost_last_segment_is_said_with_what_its_log_is_for(path: str, way_out: str) -> None:
    built = build(None, path, shape=[(2, 1), (1, 1)])
    put(built.files, built.segment_path(), bytes(6000))
    with pytest.raises(Corrupt, match=way_out):
        check_readable(path, find_end(built.files, path))


def test_a_lost_last_segment_is_refused_and_goes_on_when_accepted() -> None:
    built = build(shape=[(2, 1), (1, 1)])
    put(built.files, built.segment_path(), bytes(6000))
    report = verify(built.files, "/log")
    (bad,) = report.damage
    assert (bad.file, bad.first_seq, bad.next_seq, bad.offset, bad.next_offset) == (
        built.segment_path(),
        3,
        None,
        3,
        None,
    )
    with pytest.raises(Corrupt, match="accept-loss"):
        write_on(built.files)
    assert repair(built.files, "/log", now_us=1).after.ok is False
    done = repair(built.files, "/log", now_us=1, accept_loss=True)
    assert done.after.ok, done
    write_on(built.files)
    assert [each.batch.seq for each in scan(built.files, "/log") if isinstance(each, Good)] == [1, 2, 5]


def test_damage_upon_damage_is_survived_by_every_party() -> None:
    """500 logs, several damages each: nothing wrong is read, every reader ends, repair leaves a log in order."""
    chance = random.Random(11)
    built = build(shape=[(2, 0, 1), (3, 1), (1, 1)], unmarked=1)
    add_snapshots(built, 2, 4)
    for _ in range(500):
        files = damaged_at_random(built, chance)
        scanned(files, built)
        read_around(files, built)
        assert len(list(dump(files, "/log", with_records=True))) < STEPS_MAX
        try:
            done = repair(files, "/log", now_us=TIME, accept_loss=True)
        except Corrupt:
            continue  # nothing in the directory says which log it is
        assert not [bad for bad in done.after.unaccepted if bad.first_seq != bad.next_seq], done.actions
        found, _, tail = scanned(files, built)
        assert tail is None or not tail.reason
        if found and max(found) >= 5:
            assert repair(files, "/log", now_us=TIME, accept_loss=True).actions == []
