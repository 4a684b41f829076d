"""Random lives of a shard, as many as one has time for: `make sim SEEDS=10000`, `make sim FROM=17 SEEDS=1 STEPS=90`.
`LIFE=groups`: those in which groups of tasks run; `LIFE=transactions`: those in which programs commit transactions.

Idea: a seed decides a life, and the steps of a shorter life are the first ones of a longer. So the shortest life that
fails has the steps up to the fault, and is found again without those faults of nodes and disks that it does not need.

Contract: runs on all processors, and ends with what the lives met how often, and how many there were. A life that fails
is shrunk, and shown with the command that runs it again; the exit code is 1 then.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

from support.epoch_life import EpochLife
from support.group_life import GroupLife
from support.member_life import FAULTS, MemberLife

CHUNK = 25
LIVES = {"members": MemberLife, "groups": GroupLife, "transactions": EpochLife}


def failure(
    seed: int, steps: int, without: Collection[str] = (), kind: str = "members", counts: Counter[str] | None = None
) -> str:
    """What goes wrong in a life; "" for one that goes well. What it meets is added to `counts`."""
    life = LIVES[kind](seed, steps)
    life.faults -= set(without)
    try:
        life.run()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    finally:
        if counts is not None:
            counts.update(life.shard.counts)
    return ""


class Lived(NamedTuple):
    """Lives up to the first that failed, if any did: its seed, what went wrong, and what all of them have met."""

    failed: int | None
    problem: str
    counts: Counter[str]


@cache
def lived(seeds: range, kind: str = "members", steps: int = 250) -> Lived:
    """Run lives. Asked for again in a process, it is what was found."""
    counts = Counter[str]()
    for seed in seeds:
        if problem := failure(seed, steps, kind=kind, counts=counts):
            return Lived(seed, problem, counts)
    return Lived(None, "", counts)


def met(lives: Iterable[Lived]) -> Counter[str]:
    """What lives have met, and how often."""
    return sum((each.counts for each in lives), Counter[str]())


def shrink(steps: int, fails: Callable[[int, Collection[str]], Any]) -> tuple[int, set[str]]:
    """The fewest steps that still fail, and the faults that this does not need."""
    without: set[str] = set()
    for fault in FAULTS:
        if fails(steps, without | {fault}):
            without.add(fault)
    good = 0
    while steps - good > 1:
        middle = (good + steps) // 2
        if fails(middle, without):
            steps = middle
        else:
            good = middle
    return steps, without


def _show(seed: int, steps: int, without: Collection[str], kind: str) -> None:
    steps, without = shrink(steps, lambda fewer, more: failure(seed, fewer, {*without, *more}, kind))
    print(failure(seed, steps, without, kind))
    how = f"STEPS={steps} WITHOUT={','.join(sorted(without))} LIFE={kind}"
    print(f"seed {seed} fails within {steps} steps: make sim SEEDS=1 FROM={seed} {how}")


def main(seeds: int, first: int, steps: int, without: Collection[str], kind: str) -> int:
    """Run lives. Returns the exit code."""
    if seeds == 1:
        found = failure(first, steps, without, kind)
        print(found or f"seed {first}: well")
        return bool(found)
    chunks = [range(at, min(at + CHUNK, first + seeds)) for at in range(first, first + seeds, CHUNK)]
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(lived, chunks, repeat(kind), repeat(steps)))
    for what, times in sorted(met(found).items()):
        print(f"{times:8} {what}")
    failed = [each.failed for each in found if each.failed is not None]
    for seed in failed:
        _show(seed, steps, without, kind)
    print(f"{seeds} lives from seed {first} on, {len(failed)} of their {len(chunks)} chunks failed")
    return bool(failed)


if __name__ == "__main__":
    given = os.environ
    start = int(given.get("FROM") or random.SystemRandom().randrange(1 << 32))
    names = {each for each in given.get("WITHOUT", "").split(",") if each}
    seeds, steps = int(given.get("SEEDS") or 1000), int(given.get("STEPS") or 250)
    sys.exit(main(seeds, start, steps, names, given.get("LIFE") or "members"))
