"""Shelves are what naive sorted lists are, and ten million delayed records fit into 200 MiB."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from penstock.broker.engine.tables.queues import offsets, shelves, timers
from penstock.broker.engine.tables.queues.placing import Placed, intake_of, placed
from penstock.broker.engine.tables.queues.shelves import Shelves
from penstock.storage.batch import encode, parse


def test_a_plain_batch_has_no_intake() -> None:
    assert intake_of(parse(encode([b"a", b"b"]))) is None
    assert intake_of(parse(encode([b"a", b"b"], keys=[b"k", None]))) is None


def test_a_record_is_delayed_when_its_time_is_after_its_append_time() -> None:
    batch = parse(encode([b""] * 5, priorities=[0, 3, 0, 0, 7], not_before=[0, 0, 99, 100, 101]))
    intake = intake_of(batch)
    assert intake is not None
    found = placed(intake, 1000, 99)
    assert found.offsets.tolist() == [1001, 1003, 1004]
    assert found.levels.tolist() == [3, 0, 7]
    assert found.times.tolist() == [0, 100, 101]


class Naive:
    """Records as (offset, level, time)."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, int]] = []

    def special(self) -> set[int]:
        return {offset for offset, _, _ in self.records}

    def plain(self, low: int, end: int, limit: int) -> tuple[list[int], int]:
        special, found = self.special(), []
        for offset in range(low, end):
            if len(found) == limit:
                return found, offset
            if offset not in special:
                found.append(offset)
        return found, max(low, end)


@pytest.mark.parametrize("seed", range(40))
def test_they_are_sorted_lists(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "BLOCK", 16)
    monkeypatch.setattr(timers, "TAIL", 4)
    monkeypatch.setattr(timers, "SEALED", 16)
    monkeypatch.setattr(shelves, "WINDOW", 4)
    rng = random.Random(seed)
    found, naive, end = Shelves(), Naive(), 0
    for _ in range(40):
        count, density = rng.choice([1, 5, 40]), rng.choice([0.1, 0.5, 0.95, 1])
        rows = [
            (end + number, rng.choice([0, 0, 1, 255]), rng.choice([0, rng.randrange(1, 50)]))
            for number in range(count)
            if rng.random() < density
        ]
        rows = [row for row in rows if row[1] or row[2]]
        end += count
        if rows:
            columns = [np.array(column) for column in zip(*rows, strict=True)]
            found.add(Placed(columns[0], columns[1].astype(np.uint8), columns[2]))
            naive.records += rows
        if rng.random() < 0.1:
            first = rng.randrange(end + 1)
            found.drop_below(first)
            naive.records = [record for record in naive.records if record[0] >= max(first, found.first)]
        check(rng, found, naive, end)


def check(rng: random.Random, found: Shelves, naive: Naive, end: int) -> None:
    assert bool(found) == bool(naive.records)
    assert found.levels() == sorted({0, *(level for _, level, _ in naive.records)}, reverse=True)
    low, high, limit = rng.randrange(found.first, end + 2), rng.randrange(end + 2), rng.randrange(1, 30)
    ranges, beyond = found.plain(low, high, limit)
    expected, stopped = naive.plain(low, high, limit)
    assert [offset for first, count in ranges for offset in range(first, first + count)] == expected
    assert all(count > 0 for _, count in ranges)
    assert beyond >= low
    special = naive.special()
    if len(expected) < limit:
        assert beyond == stopped, "all of it was passed"
    else:
        assert all(offset in special for offset in range(expected[-1] + 1, beyond)), "nothing plain is passed untaken"
    assert found.beyond(low) == naive.plain(low, end + 3, 1)[0][0]
    assert found.between(low, high) == len([offset for offset in special if low <= offset < high])
    for offset in rng.sample(range(end + 2), min(6, end + 2)):
        level, time_us = next(((level, time) for at, level, time in naive.records if at == offset), (0, 0))
        assert (found.level_of(offset), found.time_of(offset)) == (level, time_us)


def test_a_long_stretch_of_delayed_records_is_passed_by_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Shelves()
    for first in range(0, 1_000_000, 1000):
        numbers = np.arange(first, first + 1000)
        found.add(Placed(numbers, np.zeros(1000, np.uint8), numbers + 1))
    looks = []
    original = offsets.OffsetSet.slice
    monkeypatch.setattr(offsets.OffsetSet, "slice", lambda self, low, end: looks.append(1) or original(self, low, end))
    assert found.plain(0, 1_000_005, 3) == ([(1_000_000, 3)], 1_000_003)
    assert len(looks) <= 4


def filled(count: int) -> Shelves:
    """`count` delayed records in batches of 1,000, every other record of the log, due in no order."""
    rng, found = np.random.default_rng(1), Shelves()
    for first in range(0, count, 1000):
        numbers = np.arange(first, first + 1000, dtype=np.int64) * 2
        found.add(Placed(numbers, rng.integers(0, 2, 1000).astype(np.uint8), rng.integers(1, 1 << 50, 1000)))
    return found


def nbytes(found: Shelves) -> int:
    """What the arrays hold."""
    blocks = [found.special, *(shelf.offsets for shelf in found.by_level.values())]
    runs = [run for shelf in found.by_level.values() for run in shelf.timers.runs]
    return (
        sum(block.deltas.nbytes for each in blocks for block in each._blocks)
        + sum(8 * len(each._tail) for each in blocks)
        + sum(run.times.nbytes + run.deltas.nbytes for run in runs)
        + len(found._levels)
    )


def test_a_delayed_record_costs_less_than_twenty_bytes() -> None:
    found = filled(300_000)
    assert nbytes(found) < 20 * 300_000


PROGRAM = """
import resource, sys
sys.path.insert(0, {path!r})
from test_shelves import filled
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = filled({count})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(found.special))
"""


def peak_kib(count: int) -> int:
    """How much more memory a fresh process had at its peak, while it filled shelves."""
    path = __file__.rpartition("/")[0]
    program = PROGRAM.format(path=path, count=count)
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    grown, length = map(int, answer.stdout.split())
    assert length == count
    return grown


def test_the_memory_of_a_million_delayed_records_is_what_their_arrays_hold() -> None:
    """Merging copies, and is held to runs of one size: so the peak is near what is held in the end."""
    assert peak_kib(1_000_000) * 1024 < 20 * 1_000_000 + (24 << 20)


@pytest.mark.soak
def test_ten_million_delayed_records_fit_into_200_mib() -> None:
    assert peak_kib(10_000_000) < 200 << 10
