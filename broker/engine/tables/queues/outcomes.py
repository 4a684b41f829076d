"""Outcomes of leased records when they are settled, or when their lease expires.

Idea: an outcome is an effect that carries the decision: done, retrying until a time, or dead-lettered. A failed record
is dead-lettered at the group's limit of attempts at that time, and retried below it.

Contract: `check_*` raise before anything is proposed; the others decide and change nothing. Times are log time. Must
not know logs, peers, or how a lease was found. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from .....transport.queue_messages import BY_GROUP, Settle, Verb
from ....errors import InvalidRequest, UnknownLease
from .. import effects as fx
from .backoff import Chance, backed_off, untried

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .backoff import TimedRun
    from .leases import Lease, Run
    from .queue import Queue

LIMIT_FELL = "max_attempts was lowered"
"""Reason of a retrying record that is dead-lettered because its group's limit fell."""

REASON_MAX = 4096
"""Limit of a reason, in characters."""

RESULT_MAX = 1_000_000
"""Bytes of a result: with the rest of its message it fits into a request."""

DELAY_MOST_MS = 366 * 86_400_000
"""The longest delay of a nack or a release."""

Outcome = fx.TasksFinished | fx.TasksReturned | fx.TasksDied

VERBS = frozenset(Verb)

Retry = Callable[["Run"], "Sequence[TimedRun]"]
"""The retry times of a run of records."""


def check_settle(settle: Settle) -> None:
    """Raise InvalidRequest for an impossible settle."""
    if settle.verb not in VERBS:
        known = ", ".join(f"{verb.value} {verb.name.lower()}" for verb in Verb)
        raise InvalidRequest(f"verb {settle.verb} is not known: {known} are")
    if settle.delay_ms < BY_GROUP:
        raise InvalidRequest(
            f"a delay of {settle.delay_ms} ms is not allowed: 0 or more, or -1 for the group's back-off"
        )
    if settle.delay_ms > DELAY_MOST_MS:
        raise InvalidRequest(f"a delay of {settle.delay_ms} ms is not allowed: {DELAY_MOST_MS} at most")
    if len(settle.reason) > REASON_MAX:
        raise InvalidRequest(f"a reason of {len(settle.reason)} characters is not allowed: {REASON_MAX} at most")
    for offset, result in settle.results:
        if len(result) > RESULT_MAX:
            raise InvalidRequest(
                f"the result of record {offset} has {len(result)} bytes, {RESULT_MAX} are allowed: store it elsewhere "
                "and say where as the result"
            )


def check_granted(lease: Lease, settle: Settle) -> None:
    """Raise UnknownLease if the lease never had one of the records."""
    for first, count in _named(settle):
        if not lease.granted(first, count):
            raise UnknownLease(
                f"lease {lease.token} was never given all of offsets {first} to {first + count - 1}: settle what came "
                "with Leased"
            )


def check_there(end: int, settle: Settle) -> None:
    """Raise UnknownLease for records that no lease can have had: their partition ends before."""
    for first, count in _named(settle):
        if first + count > end:
            raise UnknownLease(
                f"lease {settle.token} never had record {max(first, end)}: partition {settle.partition} ends at {end}"
            )


def _named(settle: Settle) -> Iterator[tuple[int, int]]:
    """The ranges that a settle is about; none mean all of its lease."""
    yield from settle.ranges
    yield from ((offset, 1) for offset, _ in settle.results)


def _attempts(runs: Iterable[Run], offsets: Iterable[int]) -> list[int]:
    """The attempts of records, 0 where one is not among the runs."""
    in_order, found = sorted(runs), list[int]()
    for offset in offsets:
        at = bisect_right(in_order, offset, key=itemgetter(0)) - 1
        first, count, attempt = in_order[at] if at >= 0 else (0, 0, 0)
        found.append(attempt if first <= offset < first + count else 0)
    return found


def settled(
    queue: Queue, lease: Lease, left: list[Run], settle: Settle, now_us: int, chance: Chance, *, ended: bool = True
) -> Iterator[Outcome]:
    """The outcome of the rest of a lease. `ended`: its worker reports it, so one that it reports later is no error."""
    match settle.verb:
        case Verb.ACK:
            ranges = [(first, count) for first, count, _ in left] if settle.ranges else []
            attempts = _attempts(left, [at for at, _ in settle.results])
            results = [result for result, attempt in zip(settle.results, attempts, strict=True) if attempt]
            yield fx.TasksFinished(queue.group, lease.token, ranges, results, [each for each in attempts if each])
        case Verb.NACK:
            if settle.delay_ms == BY_GROUP:
                retry = partial(backed_off, queue.settings, now_us, chance)
            else:
                retry = ready_at(now_us + settle.delay_ms * 1000)
            yield from failed(queue, lease, left, settle.reason, retry, ended=ended)
        case Verb.REJECT:
            yield fx.TasksDied(queue.group, lease.token, left, settle.reason, ended)
        case _:
            ready_us = now_us + max(settle.delay_ms, 0) * 1000
            yield from returned(queue, lease.token, left, ready_us, ended=ended)


def failed(queue: Queue, lease: Lease, runs: list[Run], reason: str, retry: Retry, *, ended: bool) -> Iterator[Outcome]:
    """An attempt failed: retry records with attempts left, dead-letter the rest."""
    used_up = queue.settings.used_up
    again = [timed for run in runs if not used_up(run[2]) for timed in retry(run)]
    dead = [run for run in runs if used_up(run[2])]
    if again:
        yield fx.TasksReturned(queue.group, lease.token, again, reason, ended)
    if dead:
        yield fx.TasksDied(queue.group, lease.token, dead, reason, ended)


def returned(queue: Queue, token: int, runs: list[Run], ready_us: int, *, ended: bool) -> Iterator[Outcome]:
    """Ready at a time without an attempt. Records at or over a limit that was lowered meanwhile are dead-lettered."""
    used_up = queue.settings.used_up
    again = [run for run in runs if not used_up(run[2] - 1)]
    over = [(first, count, attempt - 1) for first, count, attempt in runs if used_up(attempt - 1)]
    if again:
        yield fx.TasksReturned(queue.group, token, untried(again, ready_us), ended=ended, released=True)
    if over:
        yield fx.TasksDied(queue.group, token, over, f"{LIMIT_FELL} to {queue.settings.max_attempts}", ended)


def ready_at(time_us: int) -> Retry:
    """All at one time."""
    return lambda run: [(*run, time_us)]
