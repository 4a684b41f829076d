"""Disks that power cuts could leave of a replica, and what an opening must find on each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from support.files import Disk, Note, RecordingFiles
from support.replica_life import LARGE, Found, Promised, ReplicaWorld

HOWS = ("none", "all", "some", "some")
OPERATIONS = {
    "small": lambda world: world.flush([10, 0, 10]),
    "large": lambda world: world.flush([0, LARGE, 10]),
    "both": lambda world: world.flush([LARGE, 20, 0]),
    "sync_order": lambda world: world.sync_order(),
    "sync_log": lambda world: world.sync_log(1),
    "sync_logs": lambda world: [world.sync_log(number) for number in range(3)],
    "commit": lambda world: world.commit_all(),
    "conflict": lambda world: world.conflict(),
    "checkpoint": lambda world: world.checkpoint(),
    "no_op": lambda world: world.no_op(),
    "close": lambda world: world.close(),
}


def images(
    files: RecordingFiles, choose: random.Random, start: int = 0, hows: Sequence[str] = HOWS
) -> Iterator[tuple[dict[str, bytes], list[Promised]]]:
    """Disks of every point of a journal from `start` on, each with what was promised around it."""
    notes = [(place, each.value) for place, each in enumerate(files.journal) if isinstance(each, Note)]
    disk = Disk(files)
    for place, operation in enumerate([*files.journal, None]):
        if place >= start:
            before = [value for at, value in notes if at < place][-1:]
            after = [value for at, value in notes if at >= place][:1]
            for how in hows:
                yield disk.image(choose, how), [*before, *after]
        if operation is not None:
            disk.apply(operation)


def begun() -> tuple[ReplicaWorld, int]:
    """A replica with something in it, on a disk that has all of it."""
    world = ReplicaWorld()
    world.note()
    for name in ("small", "large", "sync_logs", "sync_order", "commit", "checkpoint"):
        OPERATIONS[name](world)
    return world, len(world.files.journal)


def hold(world: ReplicaWorld, start: int, choose: random.Random, hows: Sequence[str], *, again: float) -> int:
    """Open every image, some of them again from every disk that a crash during the opening could leave."""
    count = 0
    for image, promised in images(world.files, choose, start, hows):
        found = Found(image, promised)
        count += 1
        if choose.random() < again:
            count += crash_again(found, promised, choose)
    return count


def crash_again(found: Found, promised: list[Promised], choose: random.Random) -> int:
    """Open each disk that a crash of the opening could leave: what it found is found again."""
    same, count = [(each.term, bytes(each.data)) for each in found.entries], 0
    for image in opened_disks(found.files, choose):
        entries = Found(image, promised).entries
        assert [(each.term, bytes(each.data)) for each in entries][: len(same)] == same
        count += 1
    return count


def opened_disks(files: RecordingFiles, choose: random.Random) -> Iterator[dict[str, bytes]]:
    disk = Disk(files)
    for operation in files.journal:
        yield disk.image(choose, choose.choice(("none", "some", "all")))
        disk.apply(operation)
