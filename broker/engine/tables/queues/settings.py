"""The settings of a queue group: fields, defaults (lease, attempts, back-off, ...) and ranges.

Idea: as the settings of topics: a frozen struct of plain numbers and strings. The effect QueueSet carries all of them,
so replay has them; changing one never changes earlier decisions.

Contract: `parse` and `altered` raise InvalidSettings with one sentence that names key, value and what is allowed.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, structs

from .....transport.queue_messages import FOREVER_US
from ..settings import checked
from .pace import COUNT_MAX, LeasePace, pace_of

DAY_S = 86400.0


class QueueSettings(Struct, frozen=True, kw_only=True):
    """Settings of one queue group. Times in seconds."""

    lease_s: float | None = 30.0  # how long a worker holds a record, unless it asks otherwise; None: until settled
    lease_max_s: float = 12 * 3600.0  # the longest lease that may be asked for
    max_attempts: int | None = 20  # when the last one fails, a record is dead-lettered; None: any number
    backoff_s: float = 1.0  # delay before the second attempt; doubles with each further one
    backoff_max_s: float = 300.0  # limit of that delay
    jitter: float = 0.5  # a random part of up to this share is taken off a delay
    order: Literal["none", "key"] = "none"  # key: one record of a key at a time, in order
    fair: bool = False  # keys take turns
    key_concurrency: int | None = None  # records of one key that may be leased at once
    key_rate_per_s: float | None = None  # leases of one key in a second; a tenth of a second's worth may go at once
    rate: str | None = None  # leases of the group in a time over all workers: "100/s", "10/m", "500/h", "1/d"
    rate_burst: int | None = None  # leases that may go at once after a pause; None: a tenth of a second's worth
    look_ahead: int = 1000  # with keys: records examined beyond the first that cannot go
    dead_retention_s: float = 14 * DAY_S  # dead letters are discarded after this long
    dead_topic: str = ""  # gets one copy of each dead-lettered record
    carry_after_s: float = DAY_S  # records open for longer are carried forward, so that their segments can go
    keep_finished_s: float | None = None  # finished records and results go after this; None: by topic retention

    @property
    def pace(self) -> LeasePace | None:
        """That of all leases of the group; None: any."""
        return None if self.rate is None else pace_of(self.rate, self.rate_burst)

    def named(self) -> dict[str, Any]:
        """Settings by name, as on the wire."""
        return structs.asdict(self)

    def lease_end(self, now_us: int, lease_ms: int) -> int:
        """When a lease that is given or extended now ends: as the worker asked, 0 for as long as the group says."""
        if lease_ms:
            return now_us + lease_ms * 1000
        return FOREVER_US if self.lease_s is None else now_us + round(self.lease_s * 1e6)

    def used_up(self, attempt: int) -> bool:
        """Whether a record whose attempt failed has no further one."""
        return self.max_attempts is not None and attempt >= self.max_attempts


RANGES: dict[str, tuple[float, float]] = {
    "lease_s": (0.001, 7 * DAY_S),
    "lease_max_s": (0.001, 7 * DAY_S),
    "max_attempts": (1, 1_000_000),
    "backoff_s": (0, 7 * DAY_S),
    "backoff_max_s": (0, 366 * DAY_S),
    "jitter": (0, 1),
    "key_concurrency": (1, 1_000_000),
    "key_rate_per_s": (1e-6, 1e9),
    "rate_burst": (1, COUNT_MAX),
    "look_ahead": (1, 100_000),
    "dead_retention_s": (1, 100 * 366 * DAY_S),
    "carry_after_s": (1, 100 * 366 * DAY_S),
    "keep_finished_s": (1, 100 * 366 * DAY_S),
}


def parse(given: dict[str, Any]) -> QueueSettings:
    """Settings of a new group, defaults for the rest."""
    return _checked({}, given)


def altered(current: QueueSettings, given: dict[str, Any]) -> QueueSettings:
    """`current` with `given` changed."""
    return _checked(current.named(), given)


def _checked(base: dict[str, Any], given: dict[str, Any]) -> QueueSettings:
    settings = checked("queue setting", QueueSettings, RANGES, base, given)
    if settings.rate is not None:
        pace_of(settings.rate, settings.rate_burst)
    return settings
