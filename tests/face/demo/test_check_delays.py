"""The verdict on the Spark part: nothing to say when all is as it should be, and each difference is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from penstock.clients.testing import penstock_broker, penstock_client
from penstock.demo.check_delays import differences
from penstock.demo.expected import expected
from penstock.demo.feeder import CLOSING
from penstock.demo.flights import COLUMNS
from penstock.demo.hours import delays

__all__ = ["penstock_broker", "penstock_client"]

HOURS = ("2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z")


def line(hour: str, minutes: str) -> bytes:
    fields = dict.fromkeys(COLUMNS, "1") | {"carrier": "UA", "dep_delay": minutes, "time_hour": hour}
    return ",".join(fields[name] for name in COLUMNS).encode()


LINES = [line(HOURS[0], "5"), line(HOURS[0], "NA"), line(HOURS[1], "-2")]
CONTENT = b"\n".join([",".join(COLUMNS).encode(), *LINES]) + b"\n"


def told(hour: str, flights: int, departed: int, minutes: int) -> bytes:
    """As Spark writes it."""
    return json.dumps({"hour": hour, "flights": flights, "departed": departed, "delay_minutes": minutes}).encode()


SUMS = [told(HOURS[0], 2, 1, 5), told(HOURS[1], 1, 1, -2)]

Judge = Callable[..., list[str]]


@pytest.fixture
def judge(penstock_client, tmp_path: Path) -> Judge:
    """The verdict on these sums in the topic, and these values in the archive."""

    def archive(topic: str, values: list[bytes]) -> None:
        place = tmp_path / f"topic={topic}" / "date=2026-01-01" / "hour=00"
        place.mkdir(parents=True)
        for number, value in enumerate(values):
            parquet.write_table(pa.table({"value": [value]}), place / f"{number}.parquet")

    def run(sums: list[bytes], flights: list[bytes] | None = None, archived: list[bytes] | None = None) -> list[str]:
        client = penstock_client
        client.create_topic("delays")
        with client.producer("delays") as producer:
            producer.send_many(sums, keys=[b"UA"] * len(sums))
        archive("flights", [*LINES, CLOSING] if flights is None else flights)
        archive("delays", sums if archived is None else archived)
        return differences(client, ("flights", "delays"), tmp_path, delays(CONTENT), expected(CONTENT))

    return run


def test_what_is_as_it_should_be_is_no_difference(judge):
    assert judge(SUMS) == []


def test_an_hour_that_is_there_twice_is_seen(judge):
    assert judge([*SUMS, SUMS[0]]) == [f"UA {HOURS[0]} is in the topic 2 times"]


def test_an_hour_that_is_missing_is_seen(judge):
    assert judge(SUMS[:1]) == [f"1 hours are missing, UA {HOURS[1]} is the first of them"]


def test_a_wrong_sum_is_seen(judge):
    (found,) = judge([told(HOURS[0], 2, 1, 6), SUMS[1]])
    assert found == (f"UA {HOURS[0]}: Spark says 1 of 2 flights 6 minutes late, the file 1 of 2 flights 5 minutes late")


def test_an_hour_of_no_flight_is_seen(judge):
    (found,) = judge([*SUMS, told("2013-02-01T10:00:00Z", 1, 1, 1)])
    assert found.endswith("the file nothing")


@pytest.mark.parametrize("flights", [LINES, [*LINES, CLOSING, LINES[0]], [*LINES[:2], b"other", CLOSING]])
def test_an_archive_of_other_flights_is_seen(judge, flights):
    (found,) = judge(SUMS, flights=flights)
    assert found == f"4 records in topic flights, {len(flights)} archived, and they are not the same ones"


def test_an_archive_of_other_delays_is_seen(judge):
    assert judge(SUMS, archived=SUMS[:1]) == ["2 records in topic delays, 1 archived, and they are not the same ones"]
