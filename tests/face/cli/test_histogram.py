"""Durations for people: percentiles that were measured, bars that add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.cli.histogram import histogram, summary

durations = st.lists(st.floats(0, 1000, allow_nan=False), min_size=1, max_size=50)


def test_percentiles_are_measured_values_by_nearest_rank() -> None:
    found = summary([number / 1000 for number in range(1, 1001)])
    assert found == {"min": 0.001, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    assert summary([7.0]) == dict.fromkeys(("min", "p50", "p90", "p99", "p99.9", "max"), 7.0)


@given(durations)
def test_every_duration_is_in_exactly_one_bar(values: list[float]) -> None:
    lines = histogram(values)
    assert sum(int(line.split()[-1].replace(",", "")) for line in lines) == len(values)


def test_the_longest_bar_is_the_most_common_range() -> None:
    lines = histogram([0.00012] * 30 + [0.0004] * 15 + [0.0021], width=20)
    assert lines[0].split("  ")[0] == "100 us - 150 us"
    assert [line.count("█") for line in lines] == [20, 0, 0, 10, 0, 0, 0, 0, 0][: len(lines)]
    assert lines[-1].endswith("  1")


@pytest.mark.parametrize("values", [[], ()])
def test_nothing_measured_shows_nothing(values: list[float]) -> None:
    assert histogram(values) == []
