"""When a schedule is due: five cron fields in a time zone, or an interval.

Idea: cronsim reads the fields as Debian's cron does across clock changes: a time skipped in spring is due right after
the gap, a time repeated in autumn is due the first time, and minutes or hours that begin with `*` follow real time. An
interval counts from when it was set, so a late turn does not shift the next one.

Contract: `check` raises InvalidRequest with one sentence; `next_us` always returns a time after `after_us`, so nothing
is due twice. The result is logged: replay needs neither this code nor time zone rules. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from .....storage.units import seconds
from .....transport.queue_messages import FOREVER_US
from ....errors import InvalidRequest

SPEC_MAX = 200
"""Characters of a line of cron, and of a zone's name."""

RANGES = "minutes are 0 to 59, hours 0 to 23, days 1 to 31, months 1 to 12, weekdays 0 to 7"

INTERVAL_MIN_S, INTERVAL_MAX_S = 1.0, 366 * 86400.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVERY = "every "


def next_us(spec: str, zone: str, after_us: int, due_us: int) -> int:
    """The first time after `after_us` that a schedule is due which was due at `due_us`; FOREVER_US when there is none.

    Raises InvalidRequest for what cannot be read.
    """
    where = _zone(zone)
    if spec.startswith(EVERY):
        interval_us = _interval_us(spec)
        return due_us + (max(after_us - due_us, 0) // interval_us + 1) * interval_us
    if len(spec) > SPEC_MAX or len(spec.split()) != 5:
        raise _unreadable(spec, "it takes five fields (minute, hour, day, month, weekday)")
    try:
        return _next_of_cron(spec, where, after_us)
    except (CronSimError, ValueError) as error:
        raise _unreadable(spec, f"{str(error).lower()}, {RANGES}") from None


def check(spec: str, zone: str, now_us: int) -> int:
    """The first time a new schedule is due. Raises InvalidRequest, also when there is none."""
    found = next_us(spec, zone, now_us, now_us)
    if found == FOREVER_US:
        raise _unreadable(spec, "there is no such day in the next 50 years")
    return found


def _next_of_cron(spec: str, where: tzinfo, after_us: int) -> int:
    try:
        after = (EPOCH + timedelta(microseconds=after_us)).astimezone(where)
        for due in CronSim(spec, after):
            due_us = (due - EPOCH) // timedelta(microseconds=1)
            if due_us > after_us:  # in an hour that comes twice, what is given first may be over
                return due_us
    except OverflowError:
        pass  # beyond the last year of a datetime
    return FOREVER_US


def _interval_us(spec: str) -> int:
    try:
        interval_s = seconds(spec.removeprefix(EVERY))
    except ValueError as error:
        raise _unreadable(spec, str(error)) from None
    if not INTERVAL_MIN_S <= interval_s <= INTERVAL_MAX_S:
        raise InvalidRequest(f"schedule {_shown(spec)} is not allowed: an interval is 1 second to 366 days long")
    return round(interval_s * 1e6)


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        if len(name) <= SPEC_MAX:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise InvalidRequest(
        f"zone {_shown(name)} is unknown here: give a name of the tz database, as in Europe/Vienna, or UTC "
        "(a machine without that database needs the package tzdata)"
    )


def _unreadable(spec: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"schedule {_shown(spec)} cannot be read: {why}; write cron fields as in '0 7 * * MON-FRI', or 'every 30s'"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
