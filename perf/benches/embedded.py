"""The embedded log: the cost per record without a broker, beside other stores that write to a disk.

Every store of stores/ is beside every row, at the same durability and with batches of as many records: `written` ends
when the last record is with the kernel, `durable` syncs after every flush. Penstock checksums every batch on the way
in and again on the way out; goals compare it with stores that check too, the others are only shown. Peers read values
as bytes in all three forms of reading. Arrow batches are mapped and verified, so a record cannot cost less than
reading its bytes.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import penstock

from ..bare import limits
from ..lab.harness import Lab
from ..lab.rows import Absent, Beside, Row, Sample
from ..stores import every_store, label
from ..stores.store import Store

Commit = Literal["durable", "written"]
OURS = "penstock.Log"
UNIT = "ns/record"
NOTE = "checked: reading verifies a checksum of the bytes; the others read what is there"


@dataclass(frozen=True)
class Shape:
    """Records of one size, and how many make a batch when written one by one and when appended together."""

    record_bytes: int
    buffered: int
    bulk: int

    def values(self, count: int) -> list[bytes]:
        """`count` values, drawn from a few random ones."""
        few = _random_values(self.record_bytes)
        return (few * (count // len(few) + 1))[:count]

    def count(self, of_100_bytes: int) -> int:
        """The number of records of this size as large as `of_100_bytes` records of 100; at least one batch."""
        return max(of_100_bytes * 100 // self.record_bytes, min(self.bulk, of_100_bytes))

    def named(self, name: str) -> str:
        size = "" if self.record_bytes == 100 else f", {self.record_bytes >> 10} KiB"
        return f"embedded: {name}{size}"


USUAL = Shape(100, 1000, 10_000)
LARGER = (Shape(1 << 10, 1000, 4000), Shape(64 << 10, 16, 64))


@lru_cache(maxsize=1)
def _random_values(record_bytes: int) -> list[bytes]:
    source = random.Random(record_bytes)
    return [source.randbytes(record_bytes) for _ in range(max(1_000_000 // record_bytes, 64))]


def rows(lab: Lab) -> Iterator[Row]:
    for shape in (USUAL, *(LARGER if lab.full else ())):
        yield from _appends(lab, shape)
        yield from reads(lab, shape)


# -- appending ------------------------------------------------------------------------------------


def _appends(lab: Lab, shape: Shape) -> Iterator[Row]:
    values = shape.values(shape.count(lab.count(300_000)))
    levels: tuple[Commit, ...] = ("written", "durable")
    ways = (
        (_one_by_one, f"write() one by one, flushed every {shape.buffered:,}", shape.buffered, 322.0),
        (in_bulk, f"append() of {shape.bulk:,} at a time", shape.bulk, 200.0),
    )
    for way, name, batch, goal in ways:
        for commit in levels:
            yield Row(
                shape.named(name),
                UNIT,
                partial(fresh, lab, way, values, batch, commit),
                more_is_better=False,
                goal=goal if shape is USUAL and commit == "written" else None,
                limits={"pwrite": partial(limits.pwrite_ns_per_record, lab.directory, record_bytes=shape.record_bytes)},
                peers=_peers(partial(_appending, lab, shape, batch, commit)),
                ratio_goals=_ahead_of_those_that_check(),
                durability=commit,
                note=NOTE,
                stated="embedded",
                full=shape is not USUAL,
            )


def fresh(lab: Lab, way: Callable[..., float], values: list[bytes], batch: int, commit: Commit) -> float:
    with lab.place() as place:
        return way(place / "log", values, batch, commit)


def _one_by_one(path: Path, values: list[bytes], batch: int, commit: Commit) -> float:
    with penstock.Log(path, commit=commit, flush_records=batch) as log:
        begun = time.perf_counter()
        write = log.write
        for value in values:
            write(value)
        log.flush()
        return (time.perf_counter() - begun) / len(values) * 1e9


def in_bulk(path: Path, values: list[bytes], batch: int, commit: Commit) -> float:
    with penstock.Log(path, commit=commit) as log:
        begun = time.perf_counter()
        for first in range(0, len(values), batch):
            log.append(values[first : first + batch])
        return (time.perf_counter() - begun) / len(values) * 1e9


# -- reading --------------------------------------------------------------------------------------


def reads(lab: Lab, shape: Shape) -> Iterator[Row]:
    values = shape.values(shape.count(lab.count(1_000_000)))
    with lab.place() as place:
        in_bulk(place / "log", values, shape.bulk, "written")
        with penstock.Log(place / "log", read_only=True) as log:
            forms = (
                (_values, "iterate values as bytes", 150.0),
                (_records, "iterate records as objects", None),
                (_arrow, "read Arrow batches, mapped", 15.0),
            )
            for form, name, goal in forms:
                yield Row(
                    shape.named(name),
                    UNIT,
                    partial(form, log, len(values)),
                    more_is_better=False,
                    goal=goal if shape is USUAL else None,
                    limits={"memcpy": partial(limits.memcpy_ns_per_record, shape.record_bytes)},
                    peers=_peers(partial(_reading, lab, shape)),
                    ratio_goals=_ahead_of_those_that_check(),
                    note=NOTE,
                    stated="embedded",
                    full=shape is not USUAL,
                )


def _values(log: penstock.Log, count: int) -> float:
    return _drained(log, count, log.values)


def _records(log: penstock.Log, count: int) -> float:
    return _drained(log, count, lambda: iter(log))


def _arrow(log: penstock.Log, count: int) -> float:
    return _drained(log, count, lambda: log.batches("arrow"))


def _drained(log: penstock.Log, count: int, items: Callable[[], Iterator[object]]) -> float:
    log.seek("earliest")
    begun = time.perf_counter()
    deque(items(), maxlen=0)
    elapsed = time.perf_counter() - begun
    if log.position != count:
        raise AssertionError(f"{log.position} of {count} records were read")
    return elapsed / count * 1e9


# -- the other stores -----------------------------------------------------------------------------


def _peers(beside: Callable[[Store], AbstractContextManager[Sample]]) -> Mapping[str, Beside[Sample]]:
    return {label(store): partial(beside, store) for store in every_store() if store.name != OURS}


def _ahead_of_those_that_check() -> Mapping[str, float]:
    return {label(store): 1.0 for store in every_store() if store.checks and store.name != OURS}


@contextmanager
def _appending(lab: Lab, shape: Shape, batch: int, commit: Commit, store: Store) -> Iterator[Sample]:
    values = shape.values(shape.count(lab.count(_present(store, commit).chunk)))

    def sample() -> float:
        with lab.place() as place:
            return store.append_ns(place, values, batch, durable=commit == "durable")

    yield sample


@contextmanager
def _reading(lab: Lab, shape: Shape, store: Store) -> Iterator[Sample]:
    values = shape.values(shape.count(lab.count(_present(store).chunk)))
    with lab.place() as place:
        store.append_ns(place, values, shape.bulk, durable="written" not in store.durabilities)
        yield partial(store.read_ns, place, len(values))


def _present(store: Store, commit: Commit | None = None) -> Store:
    """The store, if it can run here, at this durability. Raises Absent."""
    if reason := store.absent():
        raise Absent(reason)
    if commit is not None and commit not in store.durabilities:
        raise Absent(f"it is only ever {', '.join(store.durabilities)}")
    return store
