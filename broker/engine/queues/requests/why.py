"""Why: one sentence that says why a record is not being worked on, or how it ended.

Idea: checks the possible reasons in order: its lease, its own delay, a pause of the group, limits on its key, the
rate of the group, and last its place in line.

Contract: reads state and changes none. Each sentence, for people, names the thing, its number and the time that ends
it; programs read the status beside it. Times are log time, and are arguments. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from .....transport.queue_messages import FOREVER_US
from ...tables.queues.keys import OWN, UNKNOWN
from ...tables.queues.leases import Lease
from ...tables.queues.queue import Queue
from ...tables.queues.retrying import RetryingRecord
from ..choosing.keyed import looks_at_keys

LAST_US = 253_402_300_799_999_999
"""The last datetime there is."""


class Facts(NamedTuple):
    """Facts about a record and its group besides the state of the group.

    Each has a default that leaves its sentence out, so that a caller gives what it has.
    """

    not_before_us: int = 0  # column NOT_BEFORE, where that is later than the record was appended
    level: int = 0  # column PRIORITY
    key: int = UNKNOWN  # keys.hash_of its key, for groups that look at keys; held and retrying records know theirs
    rate_us: int = 0  # when the rate of its key lets the next one go (KeySchedulers.again_us); 0: at once
    group_rate_us: int = 0  # when the rate of the group lets the next one go (GroupRates.again_us); 0: at once
    asking: int = 1  # requests for a lease that wait for records of this partition
    final: str = ""  # its outcome, if it is done: "completed", "discarded"
    final_us: int = 0  # and when


NOTHING = Facts()


def why(queue: Queue, offset: int, now_us: int, facts: Facts = NOTHING) -> str:
    """The sentence.

    Args:
        queue: the group's state on the partition: what is committed, or `head` to see what is about to be.
        offset: a record of the partition, below its end.
        now_us: log time.
    """
    lease = queue.lease_of(offset)
    if lease is not None:
        return _leased(queue, lease, offset, now_us)
    retrying = queue.retrying.get(offset)
    if retrying is None:
        return _idle(queue, offset, now_us, facts)
    paused = queue.paused_until_us > retrying.ready_us
    waits = retrying.ready_us > now_us and not paused
    ahead = f"to be retried from {_moment(retrying.ready_us, now_us)}" if waits else ""
    then = ahead or _idle(queue, offset, now_us, facts)
    before = _before(queue, retrying)
    return f"{before}; {then}" if before else then


def _idle(queue: Queue, offset: int, now_us: int, facts: Facts) -> str:
    """Why a record that no worker has is not given to one."""
    return (
        _ended(queue, offset, facts, now_us)
        or _delayed(facts, now_us)
        or _paused(queue, now_us)
        or _keyed(queue, offset, facts, now_us)
        or _in_line(queue, offset, facts, now_us)
    )


def _leased(queue: Queue, lease: Lease, offset: int, now_us: int) -> str:
    told = "; it is cancelled, and ends with this lease" if offset in queue.cancelling else ""
    held = f"leased by {_quoted(lease.worker)}"
    if lease.until_us < FOREVER_US:
        held += f" until {_moment(lease.until_us, now_us)}"
    elif lease.given_us:
        held += f" since {_moment(lease.given_us, now_us)}, until it is settled"
    return f"{held}, {_attempt(queue, lease.attempt(offset))}{told}"


def _attempt(queue: Queue, attempt: int) -> str:
    most = queue.settings.max_attempts
    return f"attempt {attempt}" if most is None else f"attempt {attempt} of {most}"


def _before(queue: Queue, retrying: RetryingRecord) -> str:
    """What came of a record's last lease; "" where that was no attempt."""
    if retrying.released:
        return f"released after {_attempt(queue, retrying.attempt)}" if retrying.attempt else "released"
    if not retrying.attempt:
        return ""
    reason = f": {retrying.history[-1][2]}" if retrying.history else ""
    return f"{_attempt(queue, retrying.attempt)} failed{reason}"


def _ended(queue: Queue, offset: int, facts: Facts, now_us: int) -> str:
    dead = queue.dead_letters.get(offset)
    if dead is not None:
        reason = f": {dead.reason}" if dead.reason else ""
        attempts = _counted(dead.attempt, "attempt")
        return f"dead-lettered since {_moment(dead.time_us, now_us)}, after {attempts}{reason}; redrive it to try again"
    if offset in queue.cancelled:
        return "cancelled: no worker gets it"
    if facts.final:
        return facts.final + (f" {_moment(facts.final_us, now_us)}" if facts.final_us else "")
    return "the group began behind it" if offset < queue.start else ""


def _delayed(facts: Facts, now_us: int) -> str:
    if facts.not_before_us <= now_us:
        return ""
    return f"delayed by its producer until {_moment(facts.not_before_us, now_us)}"


def _paused(queue: Queue, now_us: int) -> str:
    until_us = queue.paused_until_us
    if until_us <= now_us:
        return ""
    until = "it is resumed" if until_us >= FOREVER_US else _moment(until_us, now_us)
    return f"the group is paused until {until}"


def _keyed(queue: Queue, offset: int, facts: Facts, now_us: int) -> str:
    settings = queue.settings
    if not looks_at_keys(settings):
        return ""
    key = key_of(queue, offset, facts)
    if key not in (OWN, UNKNOWN):
        reason = _ordered(queue, offset, key) if settings.order == "key" else _limited(queue, key)
        if reason or facts.rate_us > now_us:
            return reason or f"the rate of its key lets the next one go at {_moment(facts.rate_us, now_us)}"
    if offset >= queue.frontier and offset not in queue.retrying and len(queue.held) >= settings.look_ahead:
        return (
            f"{len(queue.held)} records before it wait for their keys, and no more than {settings.look_ahead} are "
            "looked past (look_ahead)"
        )
    return ""


def _ordered(queue: Queue, offset: int, key: int) -> str:
    """Why a group ordered by key does not lease this record yet."""
    for lease in queue.leases.values():
        for busy, other in lease.keys.items():
            if other == key:
                return f"its key is busy: record {busy} is leased by {_quoted(lease.worker)}"
    before = [busy for busy, record in queue.retrying.items() if record.key == key and busy < offset]
    if before:
        return f"its key is busy: record {min(before)} waits to be retried"
    before = [busy for busy, other in queue.held.items() if other == key and busy < offset]
    return f"its key is busy: {_counted(len(before), 'record')} before it, first {min(before)}" if before else ""


def _limited(queue: Queue, key: int) -> str:
    most = queue.settings.key_concurrency
    if most is None:
        return ""
    out = sum(other == key for lease in queue.leases.values() for other in lease.keys.values())
    if out < most:
        return ""
    return f"{_counted(out, 'record')} of its key leased, and no more than {most} may be (key_concurrency)"


def key_of(queue: Queue, offset: int, facts: Facts) -> int:
    """The hash of a record's key, as far as it is known."""
    retrying = queue.retrying.get(offset)
    known = retrying.key if retrying is not None else queue.held.get(offset, UNKNOWN)
    return known or facts.key


def _in_line(queue: Queue, offset: int, facts: Facts, now_us: int) -> str:
    """Its place among the records that could go, and what the rate of the group has to do with it."""
    special = bool(facts.level or facts.not_before_us)
    if offset < queue.frontier and not special and offset not in queue.retrying and offset not in queue.held:
        return "done"
    if special and offset not in queue.retrying:
        place = f"in line with priority {facts.level}"
    else:
        before = sum(other < offset for other in (*queue.retrying, *queue.held)) + max(offset - queue.frontier, 0)
        place = f"behind {_counted(before, 'record')}" if before else "next: the coming lease takes it"
    if queue.settings.rate is not None:
        place += f"; the rate of its group is {queue.settings.rate}"
        if facts.group_rate_us > now_us:
            place += f": the next one goes at {_moment(facts.group_rate_us, now_us)}"
    return place if facts.asking else f"no worker asks for records of this group; {place}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _quoted(worker: str) -> str:
    return f"worker {worker!r}" if worker else "a worker without a name"


def _moment(time_us: int, now_us: int) -> str:
    """A time for people: absolute, and how far away."""
    if time_us > LAST_US:
        return "after the year 9999"
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    distance = _span(abs(time_us - now_us) / 1e6)
    return f"{moment} (in {distance})" if time_us >= now_us else f"{moment} ({distance} ago)"


def _span(seconds: float) -> str:
    for unit, length_s in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.1f} s"
