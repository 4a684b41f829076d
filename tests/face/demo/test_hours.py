"""What the file says of delays per carrier and hour, and how the flights are fed in."""

from __future__ import annotations

from typing import Any

import penstock
import pytest
from penstock.demo.feeder import CLOSING, CLOSING_HOUR, days, feed
from penstock.demo.flights import COLUMNS, parse
from penstock.demo.hours import Delays, delays
from penstock.demo.roles import Go, Progress


def line(carrier: str, day: str, hour: str, delay: str) -> bytes:
    year, month, date = day.split("-")
    known = {"year": year, "month": month, "day": date, "carrier": carrier, "dep_delay": delay, "distance": "7"}
    return ",".join(
        {**dict.fromkeys(COLUMNS, "1"), **known, "time_hour": f"{hour}:00:00Z"}[n] for n in COLUMNS
    ).encode()


HEAD = ",".join(COLUMNS).encode()
LINES = [
    line("UA", "2013-10-1", "2013-10-01T10", "4"),
    line("UA", "2013-10-1", "2013-10-01T10", "-3"),
    line("9E", "2013-10-1", "2013-10-01T10", "NA"),
    line("UA", "2013-2-28", "2013-03-01T01", "9"),
    line("UA", "2013-2-27", "2013-02-27T12", "0"),
]
CONTENT = b"\n".join([HEAD, *LINES]) + b"\n"


def test_each_carrier_and_hour_has_its_flights_and_minutes():
    assert delays(CONTENT) == {
        ("UA", "2013-10-01T10:00:00Z"): Delays(2, 2, 1),
        ("9E", "2013-10-01T10:00:00Z"): Delays(1, 0, 0),
        ("UA", "2013-03-01T01:00:00Z"): Delays(1, 1, 9),
        ("UA", "2013-02-27T12:00:00Z"): Delays(1, 1, 0),
    }


def test_only_the_first_so_many_flights_count_when_asked_so():
    assert delays(CONTENT, most=1) == {("UA", "2013-10-01T10:00:00Z"): Delays(1, 1, 4)}


def test_days_are_fed_in_the_order_of_the_year_each_in_that_of_the_file():
    found = list(days(parse(CONTENT)))
    assert [lines for lines, _ in found] == [LINES[4:], LINES[3:4], LINES[:3]]
    assert [carriers for _, carriers in found] == [[b"UA"], [b"UA"], [b"UA", b"UA", b"9E"]]


def test_the_closing_record_has_the_fields_of_a_flight_and_an_hour_behind_all_others():
    fields = dict(zip(COLUMNS, CLOSING.decode().split(","), strict=True))
    assert {name for name, field in fields.items() if field} == {"time_hour"}
    assert fields["time_hour"] == CLOSING_HOUR > max(hour for _, hour in delays(CONTENT))


class Conductor:
    """Has these orders to give, and hears."""

    def __init__(self, *orders: Go) -> None:
        self.orders = list(orders)
        self.heard: list[Any] = []

    def wait_for_go(self) -> Go | None:
        return self.orders.pop(0) if self.orders else None

    def progress(self, records: int) -> None:
        self.heard.append(records)

    def say(self, event: Any) -> None:
        self.heard.append(event)


@pytest.mark.parametrize(("orders", "sent"), [(0, 0), (1, 1), (2, 6)])
def test_the_first_day_is_fed_at_the_first_order_and_the_others_at_the_second(orders, sent, tmp_path):
    url = f"file://{tmp_path}"
    with penstock.connect(url) as client:
        client.create_topic("t")
    conductor = Conductor(*[Go(url, "t", 5)] * orders)
    feed(parse(CONTENT), conductor)  # type: ignore[arg-type]
    with penstock.connect(url) as client:
        records = client.read("t", 0, 0) if sent else []
    assert [record.value for record in records] == [LINES[4], LINES[3], *LINES[:3], CLOSING][:sent]
    assert conductor.heard[:1] == [Progress(1)][:orders]
    assert bool(conductor.heard[1:]) == (orders == 2)
