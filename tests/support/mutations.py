"""Hostile variants of well-formed bytes, from a seed: what a fuzzer would send, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

EDGES = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xc0",
    b"\xc1",
    b"\xdd",
    b"\xdf",
    b"\xdb",
    b"\xc6",
    b"\xcf" + b"\xff" * 8,
)
"""Bytes with a meaning of their own in msgpack or at the rim of a number."""


def mutations(samples: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` damaged variants of `samples`, each with one to four damages."""
    rng = random.Random(seed)
    for _ in range(count):
        found = bytearray(rng.choice(samples))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            rng.choice(_DAMAGES)(found, rng, samples)
        yield bytes(found)


def _flip(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if found:
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)


def _overwrite(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if found:
        found[rng.randrange(len(found))] = rng.randrange(256)


def _edge(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    edge = rng.choice(EDGES)
    at = rng.randrange(len(found) + 1)
    found[at : at + rng.choice((0, 1, len(edge)))] = edge


def _cut(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    del found[rng.randrange(len(found) + 1) :]


def _delete(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(found) + 1)
    del found[at : at + rng.randrange(1, 9)]


def _repeat(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(found) + 1)
    found[at:at] = found[at : at + rng.randrange(1, 33)]


def _splice(found: bytearray, rng: random.Random, samples: Sequence[bytes]) -> None:
    other = rng.choice(samples)
    found[rng.randrange(len(found) + 1) :] = other[rng.randrange(len(other) + 1) :]


def _nest(found: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(found) + 1)
    found[at:at] = rng.choice((b"\x91", b"\x81", b"\xdc\xff\xff")) * rng.choice((1, 3, 2000))


_DAMAGES = (_flip, _flip, _overwrite, _edge, _cut, _delete, _repeat, _splice, _nest)
