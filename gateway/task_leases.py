"""Tasks for doors: leased by one request, settled or extended by another one.

Idea: a task under a lease is known by its id and the lease's token, so that a door keeps nothing of it. A caller
without a token settles whatever lease the task is under.

Contract: what was leased for a caller that left meanwhile is released. Raises LeaseLost for a task that is not leased
(any more), and what the broker refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..broker.errors import LeaseLost
from ..clients.queues.outcomes import (
    Outcome,
    check_belongs,
    checked_progress,
    checked_reason,
    checked_result,
    delay_milliseconds,
)
from ..clients.queues.picking import Unreadable, pick
from ..clients.queues.task_ids import parse_task_id, task_id
from ..clients.working.options import lease_milliseconds
from ..storage.errors import Error
from ..storage.record import Record
from ..transport.failures import error_from
from ..transport.queue_messages import ANY, Extended, ExtendLeases, Settle, Settled, SettleTasks, Verb
from .asking import ask
from .leases import LeaseTerms, Taken, pass_over, take
from .link import BrokerLink, TopicPlace

LEASED_BYTES_MAX = 8 << 20
"""About as much comes with one lease."""

FROM_THE_FIRST = -1
"""Where a group begins that is not there yet."""


class LeasedRecord(NamedTuple):
    """A record under a lease. `until_us` is of the broker's clock."""

    record: Record
    attempt: int
    token: int
    until_us: int

    def id(self, topic: str) -> str:
        """The id of the task."""
        return task_id(topic, self.record.partition, self.record.offset)


class SettleTerms(NamedTuple):
    """How a task is settled. Without a token, under whichever lease it is."""

    verb: Outcome
    token: int | None = None
    delay_s: float | None = None
    reason: str = ""
    result: bytes | None = None


async def lease(
    link: BrokerLink,
    topic: str,
    group: str,
    worker: str,
    *,
    most: int,
    lease_s: float | None,
    wait_s: float,
    check: Callable[[], object],
) -> list[LeasedRecord]:
    """Lease records of one partition, and wait for some; [] when none came. A new group begins at the first record.

    For `check` see `take`.
    """
    found = (await link.driver.run(link.verbs.topics([topic])))[0]
    lease_ms = 0 if lease_s is None else lease_milliseconds(lease_s)
    wanted = LeaseTerms(TopicPlace(found, ANY), group, worker, most, LEASED_BYTES_MAX, lease_ms, FROM_THE_FIRST)
    (taken,) = await take(link, [wanted], wait_s, check)
    return [] if taken is None else await _records(link, taken)


async def _records(link: BrokerLink, taken: Taken) -> list[LeasedRecord]:
    attempts = {at: attempt for first, count, attempt in taken.runs for at in range(first, first + count)}
    found: list[LeasedRecord] = []
    bad: list[tuple[int, Error]] = []
    for rows in pick(taken.payload, [(first, count) for first, count, _ in taken.runs]):
        if isinstance(rows, Unreadable):
            bad += [(offset, rows.error) for offset in range(rows.offset, rows.offset + rows.count)]
        else:
            records = [Record(*row, taken.partition) for row in zip(*rows, strict=False)]
            found += [LeasedRecord(each, attempts[each.offset], taken.token, taken.until_us) for each in records]
    if bad:
        await pass_over(link, taken, bad)
    return found


async def settle_task(link: BrokerLink, id_: str, group: str, terms: SettleTerms) -> None:
    """Settle a task. Raises InvalidArgument, LeaseLost, UnknownLease, UnknownGroup ..."""
    check_belongs(terms.verb, delay=terms.delay_s, reason=terms.reason, result=terms.result)
    topic, partition, offset = parse_task_id(id_)
    if terms.token is None:
        client = link.client
        count = await client.settle(
            topic, group, [id_], terms.verb, delay=terms.delay_s, reason=terms.reason, result=terms.result
        )
        if not count:
            raise LeaseLost(f"task {id_} is not leased in group {group}")
        return
    result = checked_result(terms.result)
    settle = Settle(
        partition, terms.token, Verb[terms.verb.upper()], [(offset, 1)], delay_milliseconds(terms.delay_s),
        checked_reason(terms.reason), [] if result is None else [(offset, result)],
    )  # fmt: skip
    found = (await link.driver.run(link.verbs.topics([topic])))[0]
    answer, _ = await ask(
        link.driver, lambda request: SettleTasks(request, found.topic, group, [settle]), Settled, "settling a task"
    )
    for refusal in answer.refused:
        raise error_from(refusal.code, refusal.message)


async def extend_task(
    link: BrokerLink, id_: str, group: str, token: int, *, lease_s: float | None, progress: bytes | None
) -> tuple[int, bool]:
    """Keep a task's lease, and say how far the task is. Returns until when, and whether it was cancelled meanwhile."""
    topic, partition, offset = parse_task_id(id_)
    lease_ms = 0 if lease_s is None else lease_milliseconds(lease_s)
    said = [] if progress is None else [(partition, offset, checked_progress(progress))]
    found = (await link.driver.run(link.verbs.topics([topic])))[0]
    answer, _ = await ask(
        link.driver,
        lambda request: ExtendLeases(request, found.topic, group, [(partition, token)], lease_ms, said),
        Extended,
        "extending a lease",
    )
    if answer.lost:
        raise LeaseLost(f"the lease of task {id_} is over")
    return answer.until_us, (partition, offset) in answer.cancelled
