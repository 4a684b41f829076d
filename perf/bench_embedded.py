"""The embedded log: what a record costs to write and to read without a broker.

100-byte records, every batch checksummed on the way in and again on the way out. `written` rows end when the last
record is in the page cache, `durable` rows sync after every flush. Arrow batches are mapped, and their checksums
are verified, so that a record cannot cost less than reading its bytes from memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import penstock

from . import limits
from .harness import Lab
from .rows import Row

BULK = 10_000
BUFFERED = 1000
Commit = Literal["durable", "written"]
WRITE_GOALS: dict[Commit, float | None] = {"written": 322.0, "durable": None}
APPEND_GOALS: dict[Commit, float | None] = {"written": 200.0, "durable": None}


def rows(lab: Lab) -> Iterator[Row]:
    values = [b"%0100d" % number for number in range(BULK)]
    yield from _appends(lab, values * (lab.count(1_000_000) // BULK or 1))
    with lab.place() as place:
        _bulk(place / "log", values * (lab.count(2_000_000) // BULK or 1), "written")
        yield from _reads(place / "log")


def _appends(lab: Lab, values: list[bytes]) -> Iterator[Row]:
    def write(commit: Commit) -> float:
        with lab.place() as place:
            return _buffered(place, values, commit)

    def bulk(commit: Commit) -> float:
        with lab.place() as place:
            return _bulk(place, values, commit)

    pwrite = {"pwrite": lambda: limits.pwrite_ns_per_record(lab.directory)}
    for commit, goal in WRITE_GOALS.items():
        name = f"embedded: write() one by one, flushed every {BUFFERED:,}"
        yield Row(name, "ns/record", lambda c=commit: write(c), False, goal, pwrite, durability=commit)
    for commit, goal in APPEND_GOALS.items():
        name = f"embedded: append() of {BULK:,} at a time"
        yield Row(name, "ns/record", lambda c=commit: bulk(c), False, goal, pwrite, durability=commit)


def _buffered(place: Path, values: list[bytes], commit: Commit) -> float:
    with penstock.Log(place / "log", commit=commit, flush_records=BUFFERED) as log:
        begun = time.perf_counter()
        write = log.write
        for value in values:
            write(value)
        log.flush()
        return (time.perf_counter() - begun) / len(values) * 1e9


def _bulk(place: Path, values: list[bytes], commit: Commit) -> float:
    with penstock.Log(place / "log", commit=commit) as log:
        begun = time.perf_counter()
        for first in range(0, len(values), BULK):
            log.append(values[first : first + BULK])
        log.flush()
        return (time.perf_counter() - begun) / len(values) * 1e9


def _reads(place: Path) -> Iterator[Row]:
    with penstock.Log(place / "log", read_only=True) as log:

        def as_bytes() -> float:
            log.seek("earliest")
            return _drained(log.values(), log)

        def as_records() -> float:
            log.seek("earliest")
            return _drained(iter(log), log)

        def as_arrow() -> float:
            log.seek("earliest")
            begun = time.perf_counter()
            count = sum(batch.num_rows for batch in log.batches("arrow"))
            return (time.perf_counter() - begun) / count * 1e9

        memcpy = {"memcpy": limits.memcpy_ns_per_record}
        yield Row("embedded: iterate values as bytes", "ns/record", as_bytes, False, 150.0, memcpy)
        yield Row("embedded: iterate records as objects", "ns/record", as_records, False, limits=memcpy)
        yield Row("embedded: read Arrow batches, mapped", "ns/record", as_arrow, False, 15.0, memcpy)


def _drained(items: Iterator[object], log: penstock.Log) -> float:
    begun = time.perf_counter()
    deque(items, maxlen=0)
    return (time.perf_counter() - begun) / (log.end_offset - log.first_offset) * 1e9
