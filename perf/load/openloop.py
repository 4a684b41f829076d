"""The open loop: messages that are due at fixed moments, whether or not the system is ready for them.

Idea: the schedule is absolute, message n is due at start + n / rate, and every message carries the moment at which it
was due. Latency is counted from there, so a stall is charged to every message that should have gone during it, and a
sender that comes late makes no figure better. What has not arrived when the run ends counts with the age it had then.

Contract: `offer` and `collect` run in processes of their own that share a clock (CLOCK_MONOTONIC); they get clock and
sleep as arguments and touch nothing but the sender and the receiver they are handed. `Over`, raised out of either of
those, ends the loop with what there is. Knows no system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..systems.system import Receiver, Sender

Clock = Callable[[], int]
"""Now, in nanoseconds of a clock that all processes share."""

SleepUntil = Callable[[int], None]

SECOND_NS = 1_000_000_000
STAMP_BYTES = 8
NEVER = np.iinfo(np.int64).max
AT_ONCE = 10_000
"""Most messages handed to a sender in one call: one that is far behind still reports from time to time."""


class Over(Exception):
    """The time of the run is over."""


@dataclass(frozen=True)
class Schedule:
    """The times when messages are due. The first `warm` are sent like all others and not counted."""

    start_ns: int
    rate: int  # messages per second
    count: int
    warm: int = 0

    def at(self, number: int) -> int:
        """The time when a message is due."""
        return self.start_ns + number * SECOND_NS // self.rate

    def due(self, now_ns: int) -> int:
        """How many messages are due by now."""
        passed = now_ns - self.start_ns
        return min(self.count, ((passed + 1) * self.rate - 1) // SECOND_NS + 1) if passed >= 0 else 0

    @property
    def end_ns(self) -> int:
        """The time when the last message is due."""
        return self.at(self.count - 1)

    def stamps(self) -> np.ndarray:
        """The times when messages are due."""
        return self.start_ns + np.arange(self.count, dtype=np.int64) * SECOND_NS // self.rate


class Offered(NamedTuple):
    """The result of a sender: how many messages it handed over, and how late it was with the oldest of each wake-up."""

    sent: int
    lateness_ns: np.ndarray


class Arrivals(NamedTuple):
    """The result of a receiver: the stamp of every message, and by wake-up when it was and how many came."""

    stamps: list[bytes]
    moments_ns: list[int]
    sizes: list[int]


class Ages(NamedTuple):
    """The latencies of the counted messages, in the order in which they were due."""

    ages_ns: np.ndarray  # from due to received, or to the end of the run for those that are missing
    missing: int
    growth: float  # seconds of latency gained per second: above 0, the backlog grows


def offer(send: Sender, schedule: Schedule, size: int, clock: Clock, sleep_until: SleepUntil) -> Offered:
    """Send every message when it is due, all that are due at each wake-up."""
    padding = bytes(size - STAMP_BYTES)
    late: list[int] = []
    sent = 0
    try:
        while sent < schedule.count:
            now = clock()
            due = min(schedule.due(now), sent + AT_ONCE)
            if due == sent:
                sleep_until(schedule.at(sent))
                continue
            late.append(now - schedule.at(sent))
            send([schedule.at(number).to_bytes(STAMP_BYTES, "little") + padding for number in range(sent, due)])
            sent = due
    except Over:
        late.append(clock() - schedule.at(sent))
    return Offered(sent, np.array(late, dtype=np.int64))


def collect(receive: Receiver, count: int, clock: Clock) -> Arrivals:
    """Receive until `count` messages came or the time is over."""
    got = Arrivals([], [], [])
    try:
        while count > 0:
            values = receive()
            got.moments_ns.append(clock())
            got.stamps.extend([bytes(value[:STAMP_BYTES]) for value in values])
            got.sizes.append(len(values))  # last: `Over` may come between any two of these
            count -= len(values)
    except Over:
        pass
    return got


def ages(schedule: Schedule, got: Arrivals, ended_ns: int) -> Ages:
    """Age of each message on first arrival; missing ones have the age of `ended_ns`."""
    expected = schedule.stamps()
    due = np.frombuffer(b"".join(got.stamps[: sum(got.sizes)]), dtype="<i8")
    place = np.minimum(np.searchsorted(expected, due), schedule.count - 1)
    if strange := int((expected[place] != due).sum()):
        raise ValueError(f"{strange} of {len(due)} messages received were never sent by this run")
    first = np.full(schedule.count, NEVER)
    np.minimum.at(first, place, np.repeat(np.array(got.moments_ns[: len(got.sizes)], dtype=np.int64), got.sizes))
    missing = first == NEVER
    first[missing] = np.maximum(ended_ns, expected[missing])
    counted = (first - expected)[schedule.warm :]
    if len(counted) and counted.min() < 0:
        raise ValueError("a message was received before it was due: sender and receiver do not share a clock")
    return Ages(counted, int(missing[schedule.warm :].sum()), _growth(counted, schedule.rate))


def _growth(ages_ns: np.ndarray, rate: int) -> float:
    """Latency growth, in seconds per second: median of the last quarter minus that of the first."""
    quarter = len(ages_ns) // 4
    if not quarter:
        return 0.0
    gained_ns = float(np.median(ages_ns[-quarter:]) - np.median(ages_ns[:quarter]))
    return gained_ns / SECOND_NS / (3 * quarter / rate)
