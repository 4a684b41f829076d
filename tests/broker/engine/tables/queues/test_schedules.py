"""When schedules are due: fields of cron, zones whose clocks change, intervals, and what cannot be read."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from penstock.broker.engine.tables.queues.schedules import check, next_us
from penstock.broker.errors import InvalidRequest
from penstock.transport.queue_messages import FOREVER_US

VIENNA = "Europe/Vienna"
MINUTE = 60_000_000


def us(text: str) -> int:
    """Microseconds of a time, in UTC unless it says otherwise."""
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp()) * 1_000_000


def times(spec: str, zone: str, after: str, count: int) -> list[str]:
    """The next times that a schedule is due, in its zone."""
    at, found = us(after), []
    for _ in range(count):
        at = next_us(spec, zone, at, at)
        found.append(datetime.fromtimestamp(at / 1e6, ZoneInfo(zone)).isoformat(" ", "minutes"))
    return found


def test_cron_fields_are_read_in_their_zone():
    assert times("30 7 * * MON-FRI", VIENNA, "2026-01-02T12:00", 3) == [
        "2026-01-05 07:30+01:00", "2026-01-06 07:30+01:00", "2026-01-07 07:30+01:00",
    ]  # fmt: skip
    assert times("0 0 29 2 *", "UTC", "2026-01-01", 2) == ["2028-02-29 00:00+00:00", "2032-02-29 00:00+00:00"]


def test_a_time_is_due_after_now_and_never_now():
    assert times("*/5 * * * *", "UTC", "2026-01-01T10:05", 1) == ["2026-01-01 10:10+00:00"]
    assert next_us("*/5 * * * *", "UTC", us("2026-01-01T10:05") - 1, 0) == us("2026-01-01T10:05")


def test_a_time_that_spring_skips_is_due_right_after_the_gap_and_only_once():
    assert times("30 2 * * *", VIENNA, "2026-03-28T12:00", 3) == [
        "2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00", "2026-03-31 02:30+02:00",
    ]  # fmt: skip


def test_a_time_that_autumn_has_twice_is_due_the_first_time_only():
    assert times("30 2 * * *", VIENNA, "2026-10-24T12:00", 3) == [
        "2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00", "2026-10-27 02:30+01:00",
    ]  # fmt: skip


def test_a_schedule_set_in_the_hour_that_comes_again_is_not_due_in_the_past():
    second = us("2026-10-25T02:10+01:00")
    assert next_us("30 2 * * *", VIENNA, second, second) == us("2026-10-26T02:30+01:00")


def test_stars_go_by_real_time_when_clocks_change():
    assert times("*/30 * * * *", VIENNA, "2026-10-25T00:29", 5) == [
        "2026-10-25 02:30+02:00", "2026-10-25 02:00+01:00", "2026-10-25 02:30+01:00", "2026-10-25 03:00+01:00",
        "2026-10-25 03:30+01:00",
    ]  # fmt: skip


@pytest.mark.parametrize("zone", [VIENNA, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize("spec", ["17 2 * * *", "*/20 * * * *", "0 */3 * * *", "5 1,2,3 * 3,4,10,11 *", "0 0 L * *"])
def test_the_next_time_is_always_later(zone: str, spec: str):
    chance = random.Random(f"{zone} {spec}")
    at = us("2011-12-01")
    for _ in range(300):
        at += chance.randint(0, 3 * 86_400) * 1_000_000
        found = next_us(spec, zone, at, at)
        assert at < found
        assert found % MINUTE == 0


def test_an_interval_keeps_its_beat_also_when_it_was_late():
    set_us = us("2026-01-01T10:00:07")
    first = next_us("every 30s", "", set_us, set_us)
    assert first == set_us + 30_000_000
    assert next_us("every 30s", "", first + 1_234_567, first) == first + 30_000_000
    assert next_us("every 30s", "", first + 95_000_000, first) == first + 120_000_000, "what was missed is one"
    assert next_us("every 30s", "", first + 30_000_000, first) == first + 60_000_000
    assert next_us("every 1.5h", "", 0, 0) == 5_400_000_000


@pytest.mark.parametrize(
    ("spec", "zone", "said"),
    [
        ("", "UTC", "five fields"),
        ("* * * *", "UTC", "five fields"),
        ("0 * * * * *", "UTC", "five fields"),
        ("every", "UTC", "five fields"),
        ("every day", "UTC", "not a time"),
        ("every 0.5s", "UTC", "1 second to 366 days"),
        ("every 367d", "UTC", "1 second to 366 days"),
        ("every -5s", "UTC", "not a time"),
        ("61 * * * *", "UTC", "bad minute, minutes are 0 to 59, hours 0 to 23, "),
        ("* 24 * * *", "UTC", "bad hour"),
        ("* * 0 * *", "UTC", "bad day-of-month"),
        ("* * * JANUARY *", "UTC", "bad month"),
        ("* * * * 8", "UTC", "bad day-of-week"),
        ("5-1 * * * *", "UTC", "bad minute"),
        ("*/0 * * * *", "UTC", "bad minute"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("9" * 100 + " * * * *", "UTC", "bad minute"),
        ("9" * 5000 + " * * * *", "UTC", "five fields"),
        ("0 7 * * *", "Europe/Wien", "zone 'Europe/Wien' is unknown"),
        ("0 7 * * *", "../../etc/passwd", "is unknown"),
        ("0 7 * * *", "Europe", "is unknown"),
        ("0 7 * * *", "a\0b", "is unknown"),
        ("0 7 * * *", "x" * 5000, "is unknown"),
        ("every 30s", "Nowhere", "zone 'Nowhere' is unknown"),
    ],
)
def test_what_cannot_be_read_is_one_short_sentence(spec: str, zone: str, said: str):
    with pytest.raises(InvalidRequest) as raised:
        check(spec, zone, us("2026-01-01"))
    assert said in raised.value.message
    assert len(raised.value.message) < 300


def test_what_never_comes_again_is_refused_when_it_is_set_and_never_due_later():
    last = us("9999-06-01")
    assert next_us("0 0 1 5 *", VIENNA, last, last) == FOREVER_US
    assert next_us("* * * * *", "UTC", FOREVER_US, FOREVER_US) == FOREVER_US
    with pytest.raises(InvalidRequest, match="no such day"):
        check("0 0 1 5 *", VIENNA, last)


def test_whatever_is_written_is_read_or_refused():
    chance, signs = random.Random(5), "0123456789*/-,#LW MONJANevery s.²½é\0\t"
    read = 0
    for _ in range(20_000):
        spec = "".join(chance.choice(signs) for _ in range(chance.randint(0, 14)))
        spec = chance.choice([spec, f"every {spec}", " ".join([spec, *"****"]), f"0 0 {spec} * *", f"0 0 * * {spec}"])
        try:
            assert check(spec, chance.choice(["UTC", VIENNA]), us("2026-05-05")) > us("2026-05-05")
            read += 1
        except InvalidRequest:
            pass
    assert read > 100
