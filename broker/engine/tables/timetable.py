"""The schedules of a partition: the sum of their effects.

Contract: applies logged effects and decides nothing. ScheduleFired is in the same batch as the record, so a schedule
fired exactly as often as it is logged. Pure.
"""

from __future__ import annotations

from msgspec import Struct, structs

from ....transport.queue_messages import FOREVER_US
from . import effects as fx


class ScheduleBody(Struct, array_like=True, frozen=True):
    """One schedule, as it stands and in a snapshot."""

    name: str
    spec: str
    zone: str
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    priority: int
    next_us: int
    last_us: int = -1
    coalesce: bool = False
    offset: int = -1  # of the last record of a schedule that coalesces


class Timetable:
    """The schedules of one partition, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, ScheduleBody] = {}

    def next_us(self, after_us: int = -1) -> int:
        """When the first schedule is due, of those that are due after a time."""
        return min((each.next_us for each in self.by_name.values() if each.next_us > after_us), default=FOREVER_US)

    def due(self, time_us: int) -> list[ScheduleBody]:
        """The schedules due at a time, the longest overdue first."""
        found = [each for each in self.by_name.values() if each.next_us <= time_us]
        return sorted(found, key=lambda each: (each.next_us, each.name))

    def set(self, effect: fx.ScheduleSet) -> None:
        """Set a schedule. It replaces one of the same name, and keeps its last firing time.

        A schedule that coalesces keeps the place of its last record, too, while its records stay the same.
        """
        known = self.by_name.get(effect.name)
        same = effect.coalesce and known is not None and _record(known) == _record(effect)
        self.by_name[effect.name] = ScheduleBody(
            effect.name, effect.spec, effect.zone, effect.value, effect.key, effect.headers, effect.priority,
            effect.next_us, -1 if known is None else known.last_us, effect.coalesce,
            known.offset if known is not None and same else -1,
        )  # fmt: skip

    def deleted(self, name: str) -> None:
        """Delete a schedule."""
        self.by_name.pop(name, None)

    def fired(self, effect: fx.ScheduleFired) -> None:
        """A schedule appended its record."""
        known = self.by_name.get(effect.name)
        if known is not None:
            self.by_name[effect.name] = structs.replace(
                known, next_us=effect.next_us, last_us=effect.fired_us, offset=effect.offset
            )

    def coalesced(self, effect: fx.ScheduleCoalesced) -> None:
        """A schedule was due and appended nothing."""
        known = self.by_name.get(effect.name)
        if known is not None:
            self.by_name[effect.name] = structs.replace(known, next_us=effect.next_us)

    def dump(self) -> list[ScheduleBody]:
        """Dump for a snapshot, by name."""
        return [self.by_name[name] for name in sorted(self.by_name)]

    @classmethod
    def load(cls, bodies: list[ScheduleBody]) -> Timetable:
        """Restore from a snapshot."""
        table = cls()
        table.by_name = {body.name: body for body in bodies}
        return table


def _record(schedule: ScheduleBody | fx.ScheduleSet) -> tuple[bytes, bytes | None, dict[str, bytes], int]:
    """What each record of a schedule is."""
    return schedule.value, schedule.key, schedule.headers, schedule.priority
