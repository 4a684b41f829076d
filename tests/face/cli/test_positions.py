"""Where to begin, as people write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from penstock.cli.positions import position

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_words_offsets_and_times_are_told_apart() -> None:
    assert position("earliest", NOW) == "earliest"
    assert position("latest", NOW) == "latest"
    assert position("0", NOW) == 0
    assert position("-15m", NOW) == NOW - timedelta(minutes=15)
    assert position("2026-01-30T08:00:00+02:00", NOW) == datetime(2026, 1, 30, 6, tzinfo=UTC)
    assert position("2026-01-30", NOW) == datetime(2026, 1, 30).astimezone(UTC)


OUT_OF_YEARS = ["0001-01-01T00:00+12:00", "9999-12-31T23:59-12:00"]


@pytest.mark.parametrize("text", ["", "soon", "1.5", "2026-13-01", "-", "-soon", "yesterday", "²", *OUT_OF_YEARS])
def test_what_is_no_position_is_quoted_back(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no position|is not a time"):
        position(text, NOW)
