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
SHARDS = 8
HOWS = ("none", "all", "some")
AFTERWARDS = (("append",), ("append", "sync"), ("roll", "append_big"), ("close", "append"))
IMAGES_LEAST = 5000
counted: dict[str, int] = {}


def run(world: World, sequence: tuple[str, ...]) -> tuple[World, int, Truth]:
    """Run a sequence; where in the journal its last operation began, and what was promised then."""
    start, truth = 0, world.truth()
    for operation in sequence:
        start, truth = len(world.files.journal), world.truth()
        world.run(operation)
    return world, start, truth


def fingerprint(image: dict[str, bytes]) -> int:
    return hash(frozenset(image.items()))


@pytest.mark.parametrize("origin", ["empty", "filled"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_was_acknowledged_survives_every_power_cut(origin: str, shard: int) -> None:
    choose = random.Random(shard)
    seen: set[int] = set()
    filled = populated()
    for sequence in SEQUENCES[shard::SHARDS]:
        base = World() if origin == "empty" else clone(filled)
        world, start, truth = run(base, sequence)
        for image, promised in images(world.files, choose, start, HOWS, truth):
            print_ = fingerprint(image)
            if print_ in seen:
                continue
            seen.add(print_)
            try:
                crash_again(Survivor(image, world.history, promised), world.history, promised, choose)
            except Exception as error:
                error.add_note(f"{origin} log, {sequence}, shard {shard}, promised {promised}")
                raise
    counted[f"{origin}-{shard}"] = len(seen)


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
        pytest.skip("only meaningful after all shards ran")
    assert sum(counted.values()) >= IMAGES_LEAST, counted
