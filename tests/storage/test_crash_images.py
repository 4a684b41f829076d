"""Every disk that a power cut could leave of short runs of operations is recovered from, and crashed again.

Most bugs of this kind show within three operations on a small store, so all sequences of up to three are run,
from an empty and from a filled log, and cut off at every point of the last operation.
"""

from __future__ import annotations

import copy
import itertools
import random

import pytest
from support.crashes import OPERATIONS, Survivor, Truth, World, images, populated

SEQUENCES = [each for length in (1, 2, 3) for each in itertools.product(OPERATIONS, repeat=length)]
SEQUENCES += [
    each
    for length in (1, 2, 3)
    for each in itertools.product(("stage", "stage_big", "append", "sync", "kill", "close"), repeat=length)
    if "stage" in each or "stage_big" in each
]
SHARDS = 8
HOWS = ("none", "all", "some")
AFTERWARDS = (("append",), ("append", "sync"), ("roll", "append_big"), ("close", "append"))
IMAGES_MIN = 5000
counted: dict[str, int] = {}


FAILING = ("sync_fails", "second_sync_fails")
AROUND_A_FAILED_SYNC = [
    each
    for length in (2, 3, 4)
    for each in itertools.product(("append", "roll", "sync", "kill", *FAILING), repeat=length)
    if any(name in each for name in FAILING) and each[0] in ("append", "roll")
]


def run(world: World, sequence: tuple[str, ...]) -> tuple[int, Truth, list[bytes]]:
    """Run a sequence; where its last operation began in the journal, what was promised then, what may be found."""
    start, truth, history = 0, world.truth(), list[bytes]()
    for operation in sequence:
        start, truth, history = len(world.files.journal), world.truth(), world.history
        world.run(operation)
    return start, truth, history if len(history) > len(world.history) else world.history


def fingerprint(image: dict[str, bytes]) -> int:
    return hash(frozenset(image.items()))


@pytest.mark.parametrize("origin", ["empty", "filled"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_was_acknowledged_survives_every_power_cut(origin: str, shard: int) -> None:
    choose = random.Random(shard)
    seen: set[int] = set()
    filled = populated()
    for sequence in SEQUENCES[shard::SHARDS]:
        crash_everywhere(World() if origin == "empty" else clone(filled), sequence, choose, seen)
    counted[f"{origin}-{shard}"] = len(seen)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_was_acknowledged_survives_failed_syncs_and_power_cuts(shard: int) -> None:
    """After a failed sync its pages are clean in memory and anything on the disk, whatever is synced later."""
    choose, seen = random.Random(shard), set[int]()
    for sequence in AROUND_A_FAILED_SYNC[shard::SHARDS]:
        crash_everywhere(World(), sequence, choose, seen)
    assert len(seen) > 100


@pytest.mark.parametrize("sequence", [("sync", "append"), ("append", "sync", "append"), ("sync", "roll", "append")])
def test_a_poison_never_cuts_away_what_an_earlier_sync_covered(sequence: tuple[str, ...]) -> None:
    """Many disks of the same few moments: the mark of that sync may be lost, and so may the poison's text."""
    choose, world = random.Random(1), World()
    start, truth, history = run(world, ("append", *sequence, "sync_fails"))
    for _ in range(150):
        for image, promised in images(world.files, choose, start, ("some",), truth):
            Survivor(image, history, promised)


def crash_everywhere(world: World, sequence: tuple[str, ...], choose: random.Random, seen: set[int]) -> None:
    """Run a sequence and open every disk that a power cut during its last operation could leave."""
    start, truth, history = run(world, sequence)
    for image, promised in images(world.files, choose, start, HOWS, truth):
        print_ = fingerprint(image)
        if print_ in seen:
            continue
        seen.add(print_)
        try:
            crash_again(Survivor(image, history, promised), history, promised, choose)
        except Exception as error:
            error.add_note(f"after {sequence}, promised {promised}")
            raise


def clone(world: World) -> World:
    base = {path: bytes(data) for path, data in world.files.base.items()}
    fresh = copy.copy(world)
    fresh.files = type(world.files)(base, ["/log", ""])
    fresh.history = list(world.history)
    return fresh


def crash_again(survivor: Survivor, history: list[bytes], promised: Truth, choose: random.Random) -> None:
    """A second power cut: at some point of the recovery, and at some point of what is written after it."""
    world, files = survivor.world, survivor.files
    opened = len(files.journal)
    image, _ = choose.choice(images(files, choose, 0, ("some",), promised))
    Survivor(image, history, promised)
    promised = world.truth()
    for operation in choose.choice(AFTERWARDS):
        world.run(operation)
    image, promised = choose.choice(images(files, choose, opened, ("some",), promised))
    Survivor(image, world.history, promised)


def test_enough_images_were_tried() -> None:
    if len(counted) < 2 * SHARDS:
        pytest.skip("not all shards of this file ran before it in this process")
    assert sum(counted.values()) >= IMAGES_MIN, counted
