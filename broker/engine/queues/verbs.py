"""The verbs of queue groups on one partition.

Idea: a verb is a function of a partition. It judges a request against the proposed state (as if all proposals were
committed) and proposes an effect that carries the decision.

Contract: a verb that raises has changed nothing. Its result holds once its waiter is told, and never leaves the broker
before. Times are log time. Must not know peers or answers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ....storage.errors import Error
from ....transport.queue_messages import Settle, Verb
from ...errors import LeaseLost, UnknownLease
from ..tables import effects as fx
from ..tables.queues.backoff import backed_off
from ..tables.queues.leases import Lease
from ..tables.queues.outcomes import (
    LIMIT_FELL,
    check_granted,
    check_settle,
    check_there,
    failed,
    ready_at,
    returned,
    settled,
)
from ..tables.queues.unfinished import next_plain
from .choosing.choosing import Choice, RecordSource, choose, joined
from .choosing.keyed import is_keyed
from .topic_queues import check_serves, find, proposed, serves

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..logs.overlay import Waiter
    from ..logs.partition import Partition
    from ..tables.queues.backoff import Chance
    from ..tables.queues.leases import Range, Run
    from ..tables.queues.queue import Queue
    from ..tables.queues.settings import QueueSettings
    from .choosing.key_scheduler import KeySchedulers
    from .group_rates import GroupRates

RAN_OUT = "the lease ran out"
"""Reason of a retry after the worker's lease expired."""

Progress = tuple[int, bytes]
"""An offset, and its worker's progress."""

KEYED_MOST = 1000
"""Records of one lease where keys are looked at, which takes some 20 us for each."""

PASSED_MAX = 1000
"""Void or cancelled untouched records that each lease may skip again."""

EXPIRED = 256
"""Leases that end in one step: some milliseconds."""

PASSED_AGAIN_US = 1_000_000
"""How often a group's place on the shelves is logged without a lease."""


class Granted(NamedTuple):
    """A lease that is proposed, or records that are taken without one: `taken` has those that no worker has yet."""

    token: int
    until_us: int
    runs: list[Run]
    taken: Lease | None = None


class Extension(NamedTuple):
    """The outcome of an extension."""

    lost: list[int]  # tokens
    cancelled: list[int]  # offsets of records still leased that were cancelled


def log_time(partition: Partition, now_us: int) -> int:
    """`now_us`, or the time of the last batch where a restart put the clock before it."""
    return max(now_us, partition.proposed.time_us)


# -- groups -----------------------------------------------------------------------------------------


def configure(
    partition: Partition, group: str, settings: QueueSettings, start: int, waiter: Waiter | None = None
) -> None:
    """Create a group, or change its settings; `start` counts when it is new. Raises Corrupt."""
    queue = find(partition, group)
    offset = max(partition.find(start), partition.proposed.first) if queue is None else queue.start
    partition.propose(fx.QueueSet(group, settings.named(), offset), waiter)
    if queue is not None:
        _give_up(partition, queue)


def _give_up(partition: Partition, queue: Queue) -> None:
    """Dead-letter retrying records that have reached a lowered limit of attempts."""
    used_up = queue.settings.used_up
    tried = sorted([(at, each.attempt) for at, each in queue.retrying.items() if used_up(each.attempt)])
    if tried:
        reason = f"{LIMIT_FELL} to {queue.settings.max_attempts}"
        partition.propose(fx.TasksDied(queue.group, 0, list(joined(tried)), reason))


def pause(partition: Partition, group: str, until_us: int, waiter: Waiter) -> None:
    """Lease nothing until a time."""
    partition.propose(fx.QueuePaused(group, until_us), waiter)


def move(partition: Partition, group: str, offset: int, waiter: Waiter) -> None:
    """Let a group go on at an offset."""
    partition.propose(fx.QueueMoved(group, offset), waiter)


def delete(partition: Partition, group: str, waiter: Waiter) -> None:
    """Delete a group."""
    partition.propose(fx.QueueDeleted(group), waiter)


def remember(partition: Partition, group: str, worker: str) -> None:
    """Remember a worker, also while there is nothing for it."""
    queue = find(partition, group)
    if queue is not None and not queue.knows(worker):
        partition.propose(fx.WorkerMade(group, worker))


def forget(partition: Partition, group: str, worker: str, waiter: Waiter) -> None:
    """Forget a worker, unless it holds something."""
    try:
        check_serves(partition)
    except Error as error:
        waiter.failed(error)
    else:
        partition.propose(fx.WorkerForgotten(group, worker), waiter)


# -- leases -----------------------------------------------------------------------------------------


def lease(
    partition: Partition,
    group: str,
    worker: str,
    limit: int,
    lease_ms: int,
    now_us: int,
    waiter: Waiter,
    schedulers: KeySchedulers,
    group_rates: GroupRates,
    *,
    takes: bool = False,
) -> Granted | None:
    """Give up to `limit` records to a worker; None when there is none for it now.

    `schedulers` choose by keys, `group_rates` limit the rate.

    `lease_ms`: how long, 0 for as long as the group says. `takes`: without a lease, so that they are done.
    """
    queue, node_us = proposed(partition, group), now_us
    now_us = log_time(partition, now_us)
    if queue.paused_until_us > now_us:
        return None
    limit = min(limit, group_rates.room(partition, queue, node_us))
    if not limit:
        return None
    source = record_source(partition, queue)
    if is_keyed(queue):
        choice = schedulers.choose(partition, queue, source, min(limit, KEYED_MOST), now_us)
    else:
        choice = choose(queue, source, limit, now_us)
    if not choice.runs:
        _move_on(partition, queue, source, choice, now_us)
        return None
    above = max(choice.frontier, partition.decided_end)
    full_us = group_rates.spend(partition, queue, node_us, sum(count for _, count, _ in choice.runs))
    if takes:
        ranges = [(first, count) for first, count, _ in choice.runs]
        partition.propose(fx.TasksTaken(group, ranges, *choice[1:4], worker, full_us), waiter, above=above)
        return Granted(0, 0, choice.runs, Lease.of(0, worker, 0, choice.runs))
    token, until_us = next_token(partition, queue), queue.settings.lease_end(now_us, lease_ms)
    effect = fx.LeaseGranted(group, token, worker, until_us, *choice, given_us=now_us, full_us=full_us)
    partition.propose(effect, waiter, above=above)
    return Granted(token, until_us, choice.runs)


def next_token(partition: Partition, queue: Queue) -> int:
    """A token that no lease of the group ever had: offices number from their terms, and each has a term of its own."""
    token = partition.next_token()
    assert token > queue.last_token, (
        f"group {queue.group} on {partition!r} gave token {queue.last_token} already, and the next is {token}: this "
        "office has the term of another one, and would settle its leases"
    )
    return token


def _move_on(partition: Partition, queue: Queue, source: RecordSource, choice: Choice, now_us: int) -> None:
    """Log the frontier behind many void or cancelled records, so that the next lease does not scan them again."""
    far = source.first - queue.frontier >= PASSED_MAX
    if (far or (choice.cursors and now_us - queue.last_us >= PASSED_AGAIN_US)) and not choice.held:
        effect = fx.FrontierMoved(queue.group, max(queue.frontier, source.first), choice.cursors)
        partition.propose(effect, above=max(effect.frontier, partition.decided_end))


def is_dry(partition: Partition, queue: Queue) -> bool:
    """Whether a group has certainly nothing to lease, by a cheap check: most requests find earlier records taken."""
    untouched = partition.predicted_end - queue.frontier
    return untouched <= 0 and not (queue.retrying or queue.held or partition.committed.shelves)


def record_source(partition: Partition, queue: Queue) -> RecordSource:
    """The records of a group, proposed ones too: their lease stands behind them in the log, so one sync serves both."""
    applied = partition.committed
    voids, shelves = partition.proposed.voids, applied.shelves
    first = next_plain(queue, shelves, voids, max(queue.frontier, partition.first))
    if partition.unshelved:  # what is special about these records is known once they are committed
        return RecordSource(first, applied.end, voids.between, shelves, applied.time_us)
    return RecordSource(first, partition.predicted_end, voids.between, shelves)


def release(partition: Partition, group: str, granted: Granted, ranges: Sequence[Range], now_us: int) -> None:
    """Take records back (none: all) that never reached a worker: the attempt does not count."""
    found = _still_given(partition, group, granted, ranges)
    if found is not None:
        queue, lease, left = found
        for effect in returned(queue, lease.token, left, log_time(partition, now_us), ended=False):
            partition.propose(effect)


def bury(partition: Partition, group: str, granted: Granted, first: int, end: int, reason: str) -> None:
    """Dead-letter records that were given, from `first` on and below `end`, and cannot be read."""
    found = _still_given(partition, group, granted, [(first, end - first)])
    if found is not None:
        partition.propose(fx.TasksDied(group, granted.token, found[2], reason, ended=False))


def put_off(
    partition: Partition, group: str, granted: Granted, offset: int, reason: str, now_us: int, chance: Chance
) -> None:
    """A record that was given could not be read this time: an attempt of it failed."""
    found = _still_given(partition, group, granted, [(offset, 1)])
    if found is not None:
        queue, lease, left = found
        retry = partial(backed_off, queue.settings, log_time(partition, now_us), chance)
        for effect in failed(queue, lease, left, reason, retry, ended=False):
            partition.propose(effect)


def _still_given(
    partition: Partition, group: str, granted: Granted, ranges: Sequence[Range]
) -> tuple[Queue, Lease, list[Run]] | None:
    """As `_still_leased`; what was taken leaves `granted` with this, so that it comes back once."""
    taken = granted.taken
    if taken is None:
        return _still_leased(partition, group, granted.token, ranges)
    queue = find(partition, group) if serves(partition) else None
    if queue is None:
        return None
    taken.clear(0, queue.start)
    _clear_gone(partition, taken)
    left = taken.among(ranges)
    for first, count, _ in left:
        taken.clear(first, count)
    return (queue, taken, left) if left else None


def _clear_gone(partition: Partition, taken: Lease) -> None:
    """Records that were taken are done, so retention may have passed them: the log has them no more."""
    first, kept = partition.proposed.first, partition.committed.kept
    stays = first == partition.first  # else what is kept of them goes, too
    for begin, count, _ in list(taken.runs()):
        for offset in range(begin, min(begin + count, first)):
            if not (stays and kept.seq(offset)):
                taken.clear(offset, 1)


def _still_leased(
    partition: Partition, group: str, token: int, ranges: Sequence[Range]
) -> tuple[Queue, Lease, list[Run]] | None:
    """A lease, and what it still has of ranges (none: of all); None where that is nothing, or cannot be logged."""
    queue = find(partition, group) if serves(partition) else None
    lease = None if queue is None else queue.leases.get(token)
    left = [] if lease is None else lease.among(ranges)
    return None if queue is None or lease is None or not left else (queue, lease, left)


def expire(partition: Partition, group: str, now_us: int, waiter: Waiter) -> bool:
    """End leases whose time is up, EXPIRED at most. Returns whether there may be more."""
    queue = find(partition, group)
    if queue is None or not serves(partition):
        return False
    for _ in range(EXPIRED):
        lease = queue.leases.next_end()
        if lease is None or lease.until_us > now_us:
            return False
        for effect in failed(queue, lease, list(lease.runs()), RAN_OUT, ready_at(now_us), ended=False):
            partition.propose(effect, waiter)
    return True


def extend(
    partition: Partition,
    group: str,
    tokens: Sequence[int],
    until_us: int,
    progress: Sequence[Progress],
    own: Collection[int],
) -> Extension:
    """Propose to keep leases until a time. Those that are over are lost, but not those that the worker settled.

    All are where the partition would refuse their outcomes: the worker begins no more of their tasks.
    `progress` counts where it is of a record of a lease of `own`. What changes nothing is not proposed: so hears a
    worker at no cost what became of leases without an end.
    """
    queue = find(partition, group) if serves(partition) else None
    if queue is None:
        return Extension(list(tokens), [])
    leases = [queue.leases[token] for token in tokens if token in queue.leases]
    lost = [token for token in tokens if token not in queue.leases and token not in queue.ended]
    holding = [(offset, value, queue.lease_of(offset)) for offset, value in progress]
    said = [(offset, value) for offset, value, lease in holding if lease is not None and lease.token in own]
    changed = [lease.token for lease in leases if lease.until_us != until_us]
    if changed or said:
        partition.propose(fx.LeasesExtended(group, changed, until_us, said))
    return Extension(lost, _cancelled(queue, leases) if queue.cancelling else [])


# -- settling ---------------------------------------------------------------------------------------


def settle(partition: Partition, group: str, settle: Settle, now_us: int, chance: Chance) -> None:
    """Settle leased records; records settled before stay as they are.

    Raises what `judge_settle` does.
    """
    lease = judge_settle(partition, group, settle)
    if lease is None:
        return
    if settle.verb == Verb.ACK and not (settle.ranges or settle.results):
        partition.propose(fx.TasksFinished(group, lease.token))
        return
    left = lease.among(settle.ranges)
    if left:
        queue = proposed(partition, group)
        for effect in settled(queue, lease, left, settle, log_time(partition, now_us), chance):
            partition.propose(effect)


def judge_settle(partition: Partition, group: str, settle: Settle) -> Lease | None:
    """The lease that a worker settles; None when it settled all of it before.

    Raises Unavailable, Poisoned, UnknownGroup, LeaseLost, UnknownLease, InvalidRequest.
    """
    check_serves(partition)
    queue = proposed(partition, group)
    check_settle(settle)
    return _held(partition, queue, settle)


def settle_held(partition: Partition, group: str, settle: Settle, now_us: int, chance: Chance) -> list[Range]:
    """Settle records of a lease for its worker, as far as they are still leased. Returns which were.

    Unless they are acked, the worker finds its lease lost when it held nothing else. `settle` is checked, with ranges.
    """
    found = _still_leased(partition, group, settle.token, settle.ranges)
    if found is None:
        return []
    queue, lease, left = found
    for effect in settled(queue, lease, left, settle, log_time(partition, now_us), chance, ended=False):
        partition.propose(effect)
    return [(first, count) for first, count, _ in left]


def _held(partition: Partition, queue: Queue, settle: Settle) -> Lease | None:
    """The lease that a worker settles; None when it settled all of it before."""
    token = settle.token
    lease = queue.leases.get(token)
    if lease is not None:
        check_granted(lease, settle)
        return lease
    check_there(partition.predicted_end, settle)
    if token in queue.ended:
        return None
    if token <= queue.last_token:
        raise LeaseLost(
            f"group {queue.group} on {partition!r} has no lease {token} now: it ran out, was taken back or never was; "
            "what was done under it does not count"
        )
    raise UnknownLease(f"group {queue.group} on {partition!r} has no lease {token}: settle under the token of Leased")


def _cancelled(queue: Queue, leases: Sequence[Lease]) -> list[int]:
    """Cancelled records that these leases hold."""
    runs = [run for lease in leases for run in lease.runs()]
    return sorted({offset for first, count, _ in runs for offset in range(first, first + count)} & queue.cancelling)
