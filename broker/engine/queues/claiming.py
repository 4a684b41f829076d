"""Claiming: leased records go to another worker.

Idea: a claim is a return and a lease in one. The records leave the leases that hold them, which is no failed attempt,
and go into one new lease. By force, records that wait for a retry, were held back or are untouched are leased, too.

Contract: as of verbs.py. Records that are settled, dead-lettered, cancelled or being cancelled are not claimed; nor, by
force, those on a shelf, or further ahead than the group looks. Pauses, and limits and order of keys, are for those who
ask for work: only a forced record waits for the end of a pause. Must not know peers, answers, or how records are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..tables import effects as fx
from .choosing.choosing import joined, untouched
from .topic_queues import proposed
from .verbs import Granted, log_time, next_token, record_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..logs.partition import Partition
    from ..tables.queues.leases import Lease
    from ..tables.queues.queue import Queue

CLAIMED_OUT = "it was claimed after its last attempt"
"""Reason of a record that is dead-lettered because the claim would have been an attempt too many."""

NEXT, SAME = -1, 0
"""The attempt of a claimed record: one more than before, or as before."""

AHEAD_MAX = 1000
"""The most untouched records that a forced claim looks at."""


class ClaimTerms(NamedTuple):
    """How records are claimed."""

    worker: str
    attempt: int = NEXT  # or SAME, or the number of the attempt
    given_us: int = 0  # the time that counts as that of the lease; 0: now
    lease_ms: int = 0  # 0: as long as the group says
    force: bool = False


def claim(
    partition: Partition,
    group: str,
    offsets: Sequence[int],
    may_lose: Callable[[Lease], bool],
    terms: ClaimTerms,
    now_us: int,
) -> Granted | None:
    """Lease records (ascending, committed) to a worker, as far as they may be claimed; None if none may.

    Args:
        may_lose: whether a lease may lose its records.

    Raises: UnknownGroup.
    """
    queue, now_us = proposed(partition, group), log_time(partition, now_us)
    above = max([partition.decided_end, *(offset + 1 for offset in offsets[-1:])])
    taken = _returned(partition, queue, offsets, may_lose, terms, now_us, above)
    ahead = list[int]()
    if terms.force and queue.paused_until_us <= now_us:
        ahead = _untouched(partition, queue, offsets)
        taken |= {offset for offset in offsets if offset in queue.retrying or offset in queue.held}
    new = set(ahead).intersection(offsets)
    chosen = sorted(taken | new)
    if not chosen:
        return None
    last = max(new, default=-1)
    effect = fx.LeaseGranted(
        group, next_token(partition, queue), terms.worker, queue.settings.lease_end(now_us, terms.lease_ms),
        list(joined((offset, _attempt(queue, offset, terms.attempt)) for offset in chosen)),
        max(queue.frontier, last + 1), [], [(offset, 0) for offset in ahead if offset < last and offset not in new],
        _keys(queue, chosen), terms.given_us or now_us,
    )  # fmt: skip
    partition.propose(effect, above=above)
    return Granted(effect.token, effect.until_us, effect.runs)


def drop(partition: Partition, group: str, offsets: Sequence[int], may_lose: Callable[[Lease], bool]) -> list[int]:
    """Take records that the log has no more out of their leases. Returns those it took out. Raises UnknownGroup."""
    queue = proposed(partition, group)
    dropped: list[int] = []
    for offset in offsets:
        lease = queue.lease_of(offset)
        if lease is not None and may_lose(lease):
            partition.propose(fx.TasksFinished(group, lease.token, [(offset, 1)]))
            dropped.append(offset)
    return dropped


def _returned(
    partition: Partition,
    queue: Queue,
    offsets: Sequence[int],
    may_lose: Callable[[Lease], bool],
    terms: ClaimTerms,
    now_us: int,
    above: int,
) -> set[int]:
    """Return leased records to be leased again, and dead-letter those without a further attempt."""
    held: dict[int, list[tuple[int, int]]] = {}  # offset and attempt by token
    for offset in offsets:
        lease = queue.lease_of(offset)
        if lease is not None and may_lose(lease) and offset not in queue.cancelling:
            held.setdefault(lease.token, []).append((offset, lease.attempt(offset)))
    returned: set[int] = set()
    for token, tried in held.items():
        over = [each for each in tried if terms.attempt == NEXT and queue.settings.used_up(each[1])]
        again = [each for each in tried if each not in over]
        if again:
            runs = [(*run, now_us) for run in joined(again)]
            partition.propose(fx.TasksReturned(queue.group, token, runs, ended=False), above=above)
            returned.update(offset for offset, _ in again)
        if over:
            effect = fx.TasksDied(queue.group, token, list(joined(over)), CLAIMED_OUT, ended=False)
            partition.propose(effect, above=above)
    return returned


def _untouched(partition: Partition, queue: Queue, offsets: Sequence[int]) -> list[int]:
    """The untouched records that may be claimed by force, up to the last of `offsets`."""
    last = offsets[-1] if offsets else -1
    room = min(queue.settings.look_ahead - len(queue.held), AHEAD_MAX, last + 1 - queue.frontier)
    runs = untouched(queue, record_source(partition, queue), room)
    return [offset for first, count, _ in runs for offset in range(first, first + count) if offset <= last]


def _attempt(queue: Queue, offset: int, attempt: int) -> int:
    waiting = queue.retrying.get(offset)
    before = 0 if waiting is None else waiting.attempt
    return before + 1 if attempt == NEXT else attempt or max(before, 1)


def _keys(queue: Queue, offsets: Sequence[int]) -> list[int]:
    """The key hashes of records, if those of all are known."""
    waiting = [queue.retrying.get(offset) for offset in offsets]
    keys = [
        queue.held.get(offset, 0) if each is None else each.key for offset, each in zip(offsets, waiting, strict=True)
    ]
    return keys if all(keys) else []
