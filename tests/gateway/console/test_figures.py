"""Numbers and times as pages show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from penstock.gateway.console import figures


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (figures.count, 1234567, "1,234,567"),
        (figures.count, None, "–"),
        (figures.brief, 0, "0"),
        (figures.brief, 0.25, "0.2"),
        (figures.brief, 9.96, "10.0"),
        (figures.brief, 9999, "9,999"),
        (figures.brief, 10_000, "10.0 k"),
        (figures.brief, 123_456, "123 k"),
        (figures.brief, 999_999, "1000 k"),
        (figures.brief, 1_000_000, "1.00 M"),
        (figures.brief, 2.5e9, "2.50 G"),
        (figures.rate, 12.0, "12 /s"),
        (figures.rate, None, "–"),
        (figures.size, 0, "0 B"),
        (figures.size, 1023, "1023 B"),
        (figures.size, 1024, "1.0 KiB"),
        (figures.size, 150 << 10, "150 KiB"),
        (figures.size, 3 << 60, "3072 PiB"),
        (figures.size, None, "–"),
        (figures.age, 0, "0 s"),
        (figures.age, 0.5, "under 1 s"),
        (figures.age, 59.9, "59 s"),
        (figures.age, 60, "1 min"),
        (figures.age, 61, "1 min 1 s"),
        (figures.age, 3600, "1 h"),
        (figures.age, 86_400 + 7200 + 60, "1 d 2 h"),
        (figures.age, None, "–"),
        (figures.micros, 999, "999 µs"),
        (figures.micros, 1000, "1.00 ms"),
        (figures.micros, 999_999, "1000 ms"),
        (figures.micros, 2_500_000, "2.50 s"),
        (figures.micros, None, "–"),
        (figures.percent, 0.123, "12.3 %"),
        (figures.percent, None, "–"),
    ],
)
def test_a_figure_has_its_unit(show, value, text):
    assert show(value) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("lease_s", 90, "1 min 30 s"),
        ("backoff_s", 0.25, "250 ms"),
        ("backoff_s", 0, "0 s"),
        ("segment_bytes", 64 << 20, "64.0 MiB"),
        ("max_attempts", 1000, "1,000"),
        ("fair", True, "yes"),
        ("fair", False, "no"),
        ("retention_s", None, "not set"),
        ("dead_topic", "", "not set"),
        ("codec", "lz4", "lz4"),
    ],
)
def test_a_setting_has_the_unit_that_its_name_says(name, value, text):
    assert figures.setting(name, value) == text


def test_a_time_is_in_utc():
    moment = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert figures.iso(moment) == "2026-01-01T00:00:00.000Z"
    assert figures.iso(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31")


def test_a_graph_ends_at_its_right_edge_and_keeps_within_it():
    assert figures.spark([], 5) == figures.spark([1.0], 5) == ""
    assert figures.spark([0.0, 2.0, 1.0], 3) == "0.0,26.0 60.0,2.0 120.0,14.0"
    assert figures.spark([4.0, 4.0], 3) == "60.0,2.0 120.0,2.0"
    assert figures.spark([0.0, 0.0], 3) == "60.0,26.0 120.0,26.0"
