"""The verdict finds each kind of difference and says which, and finds none where all is equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from penstock.demo import report
from penstock.demo.check import differences
from penstock.demo.expected import Expected
from penstock.demo.report import Seen
from penstock.demo.tally import Tally, Totals, fingerprint
from penstock.storage.record import NO_HEADERS, Record

PARTITION = {"AA": 0, "UA": 1, "DL": 1}


def line(carrier: str, number: int) -> bytes:
    return f"2013,1,1,1,1,{number},1,1,1,{carrier},1,N,A,B,1,{100 + number},1,1,t".encode()


FILE = [("AA", 0), ("UA", 1), ("DL", 2), ("UA", 3), ("AA", 4), ("UA", 5)]


def wanted() -> Expected:
    tally = Tally()
    tally.add(log())
    orders = {
        carrier: np.array([fingerprint(line(c, n)) for c, n in FILE if c == carrier], np.uint64)
        for carrier in PARTITION
    }
    return Expected(tally.totals, orders)


def log() -> list[Record]:
    """The file as it stands in the topic."""
    ends = [0, 0]
    found = []
    for carrier, number in FILE:
        partition = PARTITION[carrier]
        found.append(Record(line(carrier, number), carrier.encode(), NO_HEADERS, ends[partition], 0, partition, "t"))
        ends[partition] += 1
    return found


def seen(*members: list[Record]) -> list[Seen]:
    tallies = [Tally() for _ in members]
    for tally, records in zip(tallies, members, strict=True):
        tally.add(records)
    return [Seen(tally.totals, tally.trace) for tally in tallies]


def split(records: list[Record]) -> tuple[list[Record], list[Record]]:
    return [r for r in records if r.partition == 0], [r for r in records if r.partition == 1]


def changed(at: int, **changes: object) -> list[Record]:
    records = log()
    fields = {name: getattr(records[at], name) for name in Record.__struct_fields__}
    records[at] = Record(**{**fields, **changes})  # type: ignore[arg-type]
    return records


def test_nothing_differs_when_the_members_saw_all_of_it_together() -> None:
    assert differences(wanted(), seen(log())) == []
    assert differences(wanted(), seen(*split(log()))) == []
    first, second = log()[:2], log()[2:]
    assert differences(wanted(), seen(first, second)) == []


def test_the_order_between_partitions_does_not_matter() -> None:
    zero, one = split(log())
    assert differences(wanted(), seen(one + zero)) == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: log()[:-1], ["6 flights in the file, 5 consumed", "UA: 3 flights in the file, 2 consumed"]),
        (lambda: [*log(), log()[-1]], ["handed out twice", "partition 1 offset 3", "out of order after offset 3"]),
        (lambda: [log()[4], *log()[:4], log()[5]], ["member 0 was handed partition 0 out of order after offset 1"]),
        (lambda: changed(3, value=line("UA", 7)), ["1 records consumed are no lines", "UA: delay_minutes is 9 "]),
        (lambda: changed(3, offset=9), ["UA: order differs from the file at its flight number 2 of 3"]),
        (lambda: changed(5, partition=2), ["UA: its flights are spread over partitions [1, 2]"]),
        (lambda: changed(5, key=b"XX"), ["UA: flights is 3 in the file, 2 by the consumers", "XX: flights is 0 in"]),
    ],
)  # fmt: skip
def test_each_kind_of_difference_is_said(make: Callable[[], list[Record]], says: list[str]) -> None:
    found = "\n".join(differences(wanted(), seen(make())))
    for sentence in says:
        assert sentence in found


def test_seeing_nothing_at_all_is_a_difference() -> None:
    found = differences(wanted(), seen([], []))
    assert found[0] == "6 flights in the file, 0 consumed"


def test_a_report_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    (one,) = seen(log())
    report.save(one, tmp_path / "report")
    assert report.load(tmp_path / "report") == one
    assert one.totals["AA"] == Totals(2, 2, 4, 204)
