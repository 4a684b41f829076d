"""Sizes, times and places as people give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from penstock.clients import InvalidArgument
from penstock.clients.arguments.quantities import (
    EVENT_TIME_MAX,
    EVENT_TIME_MIN,
    event_time,
    microseconds,
    seconds,
    setting_values,
    size_bytes,
    start_time,
)
from penstock.clients.producing.queued import not_before
from penstock.storage.header import EVENT_TIMES


def test_sizes_and_times_are_read_as_written():
    assert [size_bytes(given) for given in (0, 4096, "64MB", "1.5 GB", "7")] == [0, 4096, 64 << 20, 3 << 29, 7]
    assert [seconds(given) for given in (0, 1.5, "200ms", "7d", timedelta(minutes=2))] == [0, 1.5, 0.2, 604800, 120]


@pytest.mark.parametrize("given", ["many", "5 XB", -1, None, object()])
def test_what_is_no_size_is_named(given):
    with pytest.raises(InvalidArgument, match="window_bytes"):
        size_bytes(given, "window_bytes")


@pytest.mark.parametrize("given", ["soon", "5 parsecs", -0.1, float("nan"), timedelta(seconds=-1), None])
def test_what_is_no_time_is_named(given):
    with pytest.raises(InvalidArgument, match="timeout"):
        seconds(given, "timeout")


def test_places_to_start():
    assert (start_time("earliest"), start_time("latest")) == (-1, -2)
    assert start_time(datetime(1970, 1, 2, tzinfo=UTC)) == 86400 * 1_000_000
    for given in ("first", 5, None):
        with pytest.raises(InvalidArgument, match="earliest"):
            start_time(given)


@pytest.mark.parametrize("given", [EVENT_TIME_MIN, EVENT_TIME_MAX, 1_600_000_000_000_000])
def test_event_times_are_microseconds(given):
    assert event_time(given) == given


def test_event_times_are_moments_of_any_year():
    assert event_time(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1_000_000
    assert [event_time(each.replace(tzinfo=UTC)) for each in (datetime.min, datetime.max)] == [*EVENT_TIMES]


@pytest.mark.parametrize(
    "given",
    [EVENT_TIME_MIN - 1, EVENT_TIME_MAX + 1, 1_600_000_000, 1_600_000_000_000, 1_600_000_000_000_000_000, 0, -1],
)
def test_a_number_that_counts_something_else_is_no_event_time(given):
    with pytest.raises(InvalidArgument, match=rf"^timestamp={given} counts no microseconds since 1970 UTC"):
        event_time(given)


@pytest.mark.parametrize("given", ["now", 1.5, True, b"1"])
def test_what_is_no_event_time_is_named(given):
    with pytest.raises(InvalidArgument, match="datetime with a zone"):
        event_time(given)


def test_a_moment_without_a_zone_is_refused():
    naive = datetime(2026, 1, 1)
    for taken in (start_time, event_time, microseconds):
        with pytest.raises(InvalidArgument, match="has no zone"):
            taken(naive)
    with pytest.raises(InvalidArgument, match=r"^at=datetime.datetime\(2026, 1, 1, 0, 0\) has no zone"):
        not_before(None, naive, 0)


def test_microseconds_are_exact():
    assert microseconds(datetime(2024, 5, 17, 12, 30, 0, 123457, tzinfo=UTC)) == 1_715_949_000_123_457


def test_a_rate_is_no_time():
    assert setting_values({"key_rate_per_s": 2.5}) == {"key_rate_per_s": 2.5}
    assert setting_values({"key_rate_per_s": "10m"}) == {"key_rate_per_s": "10m"}  # which the broker refuses


def test_settings_become_numbers_by_their_names():
    given = {"segment_bytes": "1MB", "retention_s": timedelta(days=1), "retention_bytes": None, "commit": "written"}
    assert setting_values(given) == {
        "segment_bytes": 1 << 20, "retention_s": 86400.0, "retention_bytes": None, "commit": "written",
    }  # fmt: skip
