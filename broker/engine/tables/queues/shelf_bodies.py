"""Shelves in a snapshot: small parts inline, large parts in runs that the snapshot names.

Contract: `load(dump(shelves), ...)` equals `shelves`. Equal shelves without large parts have equal bodies; all that
are equal have equal `content`. A missing run raises Corrupt, and the snapshot cannot be used. Numbers are little-endian
int64. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain

import msgspec
import numpy as np
from msgspec import Struct
from xxhash import xxh3_64_intdigest

from .....storage.errors import Corrupt
from .placing import Placed
from .shelves import Filed, Shelf, Shelves
from .timers import TimerRun, Timers

Read = Callable[[int, int], bytes]
"""`read(number, checksum)`: the bytes of a run. Raises Corrupt."""


class RunName(Struct, array_like=True, frozen=True):
    """A run of a snapshot."""

    number: int
    checksum: int


class RunBody(Struct, array_like=True, frozen=True):
    """A run: timers by time, or offsets of records without a delay, and then no times."""

    times: bytes
    offsets: bytes


class ShelfBody(Struct, array_like=True, frozen=True):
    """One priority: timers by time, offsets of records without a delay, and the runs of both."""

    level: int
    times: bytes
    timers: bytes
    offsets: bytes
    timer_runs: list[RunName] = []
    offset_runs: list[RunName] = []


class ShelvesBody(Struct, array_like=True, frozen=True):
    """All of them, by priority. `last_run` is the highest number of a run.

    `carried` are (offset, priority) of records that were carried forward and have one; none in snapshots of before.
    """

    shelves: list[ShelfBody] = []
    last_run: int = 0
    carried: list[tuple[int, int]] = []


NO_SHELVES = ShelvesBody()


def no_runs(number: int, checksum: int) -> bytes:
    """For a state without runs."""
    raise Corrupt(f"the snapshot names run {number}, which is not there")


def encode_run(times: np.ndarray, offsets: np.ndarray) -> bytes:
    """The bytes of a run."""
    return msgspec.msgpack.encode(RunBody(_bytes(times), _bytes(offsets)))


def dump(shelves: Shelves) -> ShelvesBody:
    """Dump for a snapshot."""
    bodies = [_dump(level, shelves.by_level[level]) for level in sorted(shelves.by_level)]
    return ShelvesBody(bodies, shelves.last_run, [each for each in shelves.carried.items() if each[1]])


def _dump(level: int, shelf: Shelf) -> ShelfBody:
    times, timers = shelf.timers.unfiled()
    offsets = shelf.offsets.slice(shelf.unfiled_from(), len(shelf.offsets))
    return ShelfBody(
        level, _bytes(times), _bytes(timers), _bytes(offsets),
        [RunName(run.number, run.checksum) for run in shelf.timers.filed()],
        [RunName(filed.number, filed.checksum) for filed in shelf.filed],
    )  # fmt: skip


_CONTENT = struct.Struct("<BQQQQ")
_SPREADS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def content(shelves: Shelves) -> bytes:
    """What is on the shelves, in few bytes: the same wherever runs begin and end, and whichever are filed."""
    return b"".join(_content(level, shelves.by_level[level]) for level in sorted(shelves.by_level))


def _content(level: int, shelf: Shelf) -> bytes:
    offsets = shelf.offsets.slice(0, len(shelf.offsets))
    timers = sum(map(_sum, shelf.timers.runs)) & 0xFFFF_FFFF_FFFF_FFFF
    return _CONTENT.pack(level, len(offsets), xxh3_64_intdigest(_bytes(offsets)), len(shelf.timers), timers)


def _sum(run: TimerRun) -> int:
    """The sum of a hash of each timer, which does not depend on their order."""
    first, second = _SPREADS
    hashed = run.times.astype(np.uint64) * first + run.offsets(0, len(run)).astype(np.uint64)
    hashed ^= hashed >> np.uint64(29)
    hashed *= second
    hashed ^= hashed >> np.uint64(32)
    return int(hashed.sum(dtype=np.uint64))


def load(body: ShelvesBody, first: int, keep: np.ndarray, read: Read) -> Shelves:
    """Restore from a snapshot of a log that begins at `first` and has carried records `keep`. Raises Corrupt."""
    shelves = Shelves()
    shelves.last_run = body.last_run
    for each in body.shelves:
        shelves.by_level[each.level] = _load(each, read)
    shelves.restore(_all(shelves))
    shelves.drop_below(first, keep)
    shelves.carried |= dict(body.carried)
    return shelves


def _load(body: ShelfBody, read: Read) -> Shelf:
    shelf = Shelf()
    runs = [_timers(each, read) for each in body.timer_runs]
    if body.times or body.timers:
        runs.append(_run(_numbers(body.times), _numbers(body.timers)))
    shelf.timers = Timers(sorted(runs, key=lambda run: run.base))
    for name in body.offset_runs:
        offsets = _numbers(_read(name, read).offsets)
        shelf.offsets.add(_ascending(offsets))
        shelf.filed.append(Filed(int(offsets[-1]), name.number, name.checksum))
    shelf.offsets.add(_ascending(_numbers(body.offsets)))
    return shelf


def _timers(name: RunName, read: Read) -> TimerRun:
    body = _read(name, read)
    return _run(_numbers(body.times), _numbers(body.offsets), name.number, name.checksum)


def _run(times: np.ndarray, offsets: np.ndarray, number: int = 0, checksum: int = 0) -> TimerRun:
    if len(times) != len(offsets) or not len(times):
        raise Corrupt(f"a snapshot has {len(times)} times for {len(offsets)} delayed records")
    return TimerRun.of(times, offsets, number, checksum)


def _read(name: RunName, read: Read) -> RunBody:
    try:
        body = msgspec.msgpack.decode(read(name.number, name.checksum), type=RunBody)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"run {name.number} of a snapshot cannot be read: {error}") from error
    if not body.offsets:
        raise Corrupt(f"run {name.number} of a snapshot is empty")
    return body


def _all(shelves: Shelves) -> Placed:
    """Every record of all shelves, in the order of offsets; where it stands is all that is needed of it."""
    offsets, levels = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
    for level, shelf in shelves.by_level.items():
        runs = (run.offsets(0, len(run)) for run in shelf.timers.runs)
        for found in chain(runs, (shelf.offsets.slice(0, len(shelf.offsets)),)):
            offsets.append(found)
            levels.append(np.full(len(found), level, np.uint8))
    placed = np.concatenate(offsets)
    order = placed.argsort(kind="stable")
    placed = _ascending(placed[order])
    return Placed(placed, np.concatenate(levels)[order], np.zeros(len(placed), np.int64))


def _ascending(numbers: np.ndarray) -> np.ndarray:
    if np.count_nonzero(numbers[1:] <= numbers[:-1]):
        raise Corrupt("a snapshot has a record with a priority or a delay twice")
    return numbers


def _bytes(numbers: np.ndarray) -> bytes:
    return numbers.astype("<i8").tobytes()


def _numbers(data: bytes) -> np.ndarray:
    if len(data) % 8:
        raise Corrupt(f"a snapshot has {len(data)} bytes where numbers of 8 bytes belong")
    return np.frombuffer(data, "<i8").astype(np.int64)
