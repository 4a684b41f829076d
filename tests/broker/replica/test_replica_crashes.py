"""Crash images over an order log and three logs at once: what was acknowledged is there, and every log ends with it.

From a recorded run, every disk that a power cut could leave is opened, at each point of the journal, and crashed again
while it is being opened.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from support.files import RecordingFiles
from support.replica_images import OPERATIONS, begun, hold
from support.replica_life import DIRECTORIES, Found, ReplicaWorld, copy_of

HOWS = ("none", "all", "some", "some")
FEW = ("large", "small", "sync_order", "sync_log", "commit", "conflict")


def hold_all(sequences: Iterator[tuple[str, ...]], hows: Sequence[str]) -> None:
    for names in sequences:
        world, start = begun()
        for name in names:
            OPERATIONS[name](world)
        assert hold(world, start, random.Random(str(names)), hows, again=0.0)


def test_every_disk_of_every_two_operations_keeps_what_was_acknowledged():
    hold_all(product(FEW, FEW), ("some",))


@pytest.mark.soak
@pytest.mark.parametrize("first", FEW)
def test_every_disk_of_every_three_operations_keeps_what_was_acknowledged(first):
    hold_all(product([first], FEW, FEW), ("none", "some"))


@pytest.mark.parametrize("seed", range(6))
def test_disks_of_random_lives_keep_what_was_acknowledged_also_when_opening_crashes(seed):
    choose = random.Random(seed)
    world, start = begun()
    for _ in range(6):
        OPERATIONS[choose.choice(list(OPERATIONS))](world)
    assert hold(world, start, choose, ("none", "some"), again=0.03)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_disks_of_many_random_lives_keep_what_was_acknowledged(seed):
    choose = random.Random(1000 + seed)
    world, start = begun()
    for _ in range(14):
        OPERATIONS[choose.choice(list(OPERATIONS))](world)
    assert hold(world, start, choose, HOWS, again=0.1)


def test_a_replica_that_was_begun_twice_has_begun_once():
    world = ReplicaWorld()
    files = RecordingFiles(copy_of(world.files), DIRECTORIES)
    found = Found(copy_of(files), [world.promised()])
    assert [each.term for each in found.entries] == [1]
