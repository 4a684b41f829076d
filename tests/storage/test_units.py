"""Sizes and times as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from penstock.storage.units import SECONDS_MAX, count_text, seconds, size_bytes, size_text, span_text, time_text


@pytest.mark.parametrize(
    ("text", "count"),
    [(4096, 4096), ("0", 0), ("4096", 4096), ("64KB", 65536), ("64 kib", 65536), ("1.5M", 1572864), ("2g", 2 << 30),
     ("1TiB", 1 << 40), ("7B", 7)],
)  # fmt: skip
def test_a_size_is_read_in_every_way_people_write_it(text: str | int, count: int) -> None:
    assert size_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "duration"),
    [(2, 2.0), (0.25, 0.25), ("0", 0.0), ("2s", 2.0), ("200ms", 0.2), ("30 s", 30.0), ("15m", 900.0), ("7D", 604800.0),
     ("50us", 5e-5), (timedelta(minutes=2), 120.0)],
)  # fmt: skip
def test_a_time_is_read_in_every_way_people_write_it(text: str | float | timedelta, duration: float) -> None:
    assert seconds(text) == pytest.approx(duration)


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "64XB", "1e3", "64 M B", "1.MB", "ib"])
def test_what_is_not_a_size_is_quoted_back(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size") as caught:
        size_bytes(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 parsecs", "1:30"])
def test_what_is_not_a_time_is_quoted_back(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time") as caught:
        seconds(text)
    assert repr(text) in str(caught.value)


def test_no_time_is_over_a_hundred_years() -> None:
    assert seconds("36600d") == SECONDS_MAX
    for text in ("36601d", "9" * 400 + "d"):
        with pytest.raises(ValueError, match="is over a hundred years, the longest time"):
            seconds(text)


@pytest.mark.parametrize(("text", "ways"), [("7", "7s for seconds, or 7d"), ("1.5 ", "1.5s for seconds, or 1.5d")])
def test_a_time_without_its_unit_is_refused_with_what_may_be_meant(text: str, ways: str) -> None:
    with pytest.raises(ValueError, match=f"without a unit: write {ways}"):
        seconds(text)


def test_sizes_and_times_are_written_short() -> None:
    assert [size_text(n) for n in (0, 512, 1536, 64 << 20, 5 << 40)] == ["0 B", "512 B", "1.5 KB", "64 MB", "5120 GB"]
    assert [time_text(t) for t in (0.00012, 0.25, 2.5, 90, 7200, 604800)] == [
        "120 us", "250 ms", "2.5 s", "90 s", "2 h", "7 d",
    ]  # fmt: skip
    assert [count_text(n, "record") for n in (0, 1, 1234)] == ["0 records", "1 record", "1,234 records"]


def test_offsets_of_an_empty_partition_are_none() -> None:
    assert [span_text(0, 10), span_text(3, 4)] == ["0 to 9", "3 to 3"]
    assert [span_text(0, 0), span_text(7, 7)] == ["none yet, the next one is 0", "none yet, the next one is 7"]
