"""A record's time, whatever the year."""

from __future__ import annotations

import pytest
from penstock.storage.arguments import microseconds
from penstock.storage.header import EVENT_TIMES
from penstock.storage.record import Record

TIMES = [-1, 0, 1_700_000_000_123_457, 9_300_000_000_000_001, -9_300_000_000_000_001, EVENT_TIMES[1] - 1, *EVENT_TIMES]


@pytest.mark.parametrize("time_us", TIMES)
def test_its_time_is_right_to_the_microsecond(time_us: int) -> None:
    assert microseconds(Record(b"", None, {}, 0, time_us).time) == time_us
