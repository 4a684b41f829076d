"""Late flights: both ways of reading them agree, and how each fares follows from its line."""

from __future__ import annotations

import numpy as np
from penstock.demo.expected import Columns
from penstock.demo.flights import COLUMNS
from penstock.demo.late import ATTEMPTS, failures, late, minutes_late
from penstock.demo.tally import fingerprint


def line(number: int, delay: str) -> str:
    fields = dict.fromkeys(COLUMNS, "1") | {"flight": str(number), "dep_delay": delay, "carrier": "UA"}
    return ",".join(fields[name] for name in COLUMNS)


DELAYS = ["5", "-3", "0", "NA", "120"] * 2000
LINES = [line(number, delay) for number, delay in enumerate(DELAYS)]
CONTENT = "\n".join([",".join(COLUMNS), *LINES]).encode()


def test_numpy_and_the_workers_read_the_same_flights_as_late():
    found = late(CONTENT)
    minutes = [minutes_late(each.encode()) for each in LINES]
    assert minutes[:5] == [5, 0, 0, 0, 120]
    assert found.minutes.tolist() == [each for each in minutes if each]
    prints = [fingerprint(each.encode()) for each, how_late in zip(LINES, minutes, strict=True) if how_late]
    assert found.fingerprints.tolist() == prints
    assert len(found) == len(prints)
    doomed = sorted(each for each in prints if failures(each) == ATTEMPTS)
    assert found.doomed.tolist() == doomed
    assert doomed


def test_only_the_first_so_many_flights_count():
    assert len(late(CONTENT, most=5)) == 2
    assert Columns(CONTENT + b"\n", COLUMNS).text("flight")[1] == b"1"


def test_of_a_thousand_flights_one_never_succeeds_and_150_fail_first():
    counts = np.bincount([failures(number) for number in range(1000)])
    assert counts[[0, 1, 2, ATTEMPTS]].tolist() == [849, 100, 50, 1]
