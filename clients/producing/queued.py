"""Queue options of a record: delay, priority and dedup key.

Contract: checked before the record joins others, so that an invalid one is refused alone and not sent. A delay counts
from the producer's clock; a moment is absolute. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from ...storage.encoding import PRIORITY_MAX
from ..arguments.quantities import Duration, microseconds, seconds
from ..errors import InvalidArgument

DEDUP_BYTES_MAX = 1 << 10
"""Limit of one key, as brokers take it."""

AHEAD_MOST_S = 3650 * 86400
"""As far ahead as a broker lets a record wait, about."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """The columns of one record that queues look at. 0 and b"" stand for none."""

    priority: int = 0
    not_before: int = 0
    dedup: bytes = b""


PLAIN = Queued()
"""A record that says nothing about itself as a task."""


def queue_columns(records: Sequence[Queued]) -> dict[str, Any]:
    """Columns of records, as `encode` takes them."""
    return {
        "priorities": [record.priority for record in records],
        "not_before": [record.not_before for record in records],
        "dedup": [record.dedup for record in records],
    }


def uniform_columns(record: Queued, count: int) -> dict[str, Any]:
    """The columns of many records that all say the same, as `encode` and `encode_arrow` take them."""
    found: dict[str, Any] = {}
    if record.priority:
        found["priorities"] = bytes([record.priority]) * count
    if record.not_before:
        found["not_before"] = np.full(count, record.not_before, np.int64)
    return found


def as_queued(
    delay: Duration | None, at: datetime | None, priority: int | None, dedup: bytes | None, now_us: int
) -> Queued:
    """The columns for these options. Raises InvalidArgument."""
    level = 0 if priority is None else priority
    if type(level) is not int or not 0 <= level <= PRIORITY_MAX:
        raise InvalidArgument(f"priority={priority!r} is not a number from 0 to {PRIORITY_MAX}; higher goes first")
    return Queued(level, not_before(delay, at, now_us), _checked_dedup(dedup))


def not_before(delay: Duration | None, at: datetime | None, now_us: int) -> int:
    """The earliest time at which a record may be leased, 0 for at once. Raises InvalidArgument."""
    if at is None:
        if delay is None:
            return 0
        wait_us = round(_checked_ahead(seconds(delay, "delay"), f"delay={delay!r}") * 1e6)
        return now_us + wait_us if wait_us else 0
    if delay is not None:
        raise InvalidArgument(f"delay={delay!r} and at={at!r} both say when: give one of them")
    if not isinstance(at, datetime):
        raise InvalidArgument(f"at={at!r} is not a datetime; for a time from now there is delay=")
    moment = microseconds(at, "at")
    _checked_ahead((moment - now_us) / 1e6, f"at={at!r}")
    return max(moment, 0)


def _checked_ahead(ahead_s: float, given: str) -> float:
    if ahead_s > AHEAD_MOST_S:
        raise InvalidArgument(f"{given} is too far ahead: {AHEAD_MOST_S // 86400} days at most")
    return ahead_s


def _checked_dedup(dedup: Any) -> bytes:
    if dedup is None:
        return b""
    if not isinstance(dedup, bytes) or not dedup:
        raise InvalidArgument(f"dedup={dedup!r} is not a key of 1 to {DEDUP_BYTES_MAX} bytes; text needs .encode()")
    if len(dedup) > DEDUP_BYTES_MAX:
        raise InvalidArgument(
            f"a dedup key of {len(dedup)} bytes is over {DEDUP_BYTES_MAX}: give a digest of it instead"
        )
    return dedup
