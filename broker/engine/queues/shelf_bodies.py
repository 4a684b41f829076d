"""Shelves in a snapshot: what is small stands in it.

Contract: `load(dump(shelves))` is what it was; equal shelves have equal bodies. Numbers are little-endian int64. Pure.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ....storage.errors import Corrupt
from .intake import Placed
from .shelves import Shelf, Shelves


class ShelfBody(Struct, array_like=True, frozen=True):
    """One priority: timers by time and offset, and offsets of records without a delay."""

    level: int
    times: bytes
    timers: bytes
    offsets: bytes


class ShelvesBody(Struct, array_like=True, frozen=True):
    """All of them, by priority."""

    shelves: list[ShelfBody] = []


NO_SHELVES = ShelvesBody()


def dump(shelves: Shelves) -> ShelvesBody:
    """For a snapshot."""
    return ShelvesBody([_dump(level, shelves.by_level[level]) for level in sorted(shelves.by_level)])


def _dump(level: int, shelf: Shelf) -> ShelfBody:
    times, timers = shelf.timers.all()
    return ShelfBody(level, _bytes(times), _bytes(timers), _bytes(shelf.offsets.slice(0, len(shelf.offsets))))


def load(body: ShelvesBody, first: int) -> Shelves:
    """From a snapshot of a log that begins at offset `first`. Raises Corrupt."""
    shelves = Shelves()
    if body.shelves:
        shelves.add(_all(body))
    shelves.drop_below(first)
    return shelves


def _all(body: ShelvesBody) -> Placed:
    """Every record of a body, in the order of offsets."""
    offsets, levels, times = [], [], []
    for each in body.shelves:
        due, timers, now = _numbers(each.times), _numbers(each.timers), _numbers(each.offsets)
        if len(due) != len(timers):
            raise Corrupt(f"a snapshot has {len(due)} times for {len(timers)} delayed records of priority {each.level}")
        offsets += [timers, now]
        levels.append(np.full(len(timers) + len(now), each.level, np.uint8))
        times += [due, np.zeros(len(now), np.int64)]
    placed = np.concatenate(offsets)
    order = placed.argsort(kind="stable")
    if len(placed) > 1 and np.diff(placed[order]).min() == 0:
        raise Corrupt("a snapshot has a delayed record twice")
    return Placed(placed[order], np.concatenate(levels)[order], np.concatenate(times)[order])


def _bytes(numbers: np.ndarray) -> bytes:
    return numbers.astype("<i8").tobytes()


def _numbers(data: bytes) -> np.ndarray:
    if len(data) % 8:
        raise Corrupt(f"a snapshot has {len(data)} bytes where numbers of 8 bytes belong")
    return np.frombuffer(data, "<i8").astype(np.int64)
