"""Claims: tasks that other workers hold, asked for page by page.

Idea: a claim names tasks by their ids, or looks through the leased ones, partition by partition. A broker gives at most
a hundred at a time; each answer goes to `take`, and the next page is asked for.

Contract: impossible arguments raise InvalidArgument before anything is sent. Must not know what becomes of the tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ...transport.messages import Answer, Topic
from ...transport.queue_messages import Claim, Leased
from ..arguments.quantities import Duration, microseconds, seconds
from ..connection.question import BatchesQuestion
from ..errors import InvalidArgument
from .task_ids import parse_task_id, task_id

if TYPE_CHECKING:
    from ..connection.connection import Connection
    from ..connection.steps import Steps

PART = 100
"""Tasks that one request names."""

IDLE_MOST_S = 100 * 366 * 86400
"""Nothing is idle for longer."""

NEXT = -1
"""Of a claim's `attempt` on the wire: one more than before."""


class ClaimPlan(Struct, frozen=True):
    """The tasks of a claim: offsets by partition, or the leased tasks from a place on and below partition `partitions`,
    at most `most`, those included that are gone, and none once batches of `most_bytes` came. `asked` has the rest."""

    asked: Claim
    named: dict[int, list[int]] | None
    begin: tuple[int, int]
    most: int
    partitions: int
    most_bytes: int = sys.maxsize

    def places(self) -> Iterator[tuple[int, list[int], int]]:
        """Partition, offsets that are named, and the offset to begin with, of one request after the other."""
        if self.named is None:
            first, offset = self.begin
            yield from ((number, [], offset if number == first else 0) for number in range(first, self.partitions))
            return
        for number, offsets in sorted(self.named.items()):
            for at in range(0, len(offsets), PART):
                yield number, offsets[at : at + PART], 0


def claim_plan(
    topic: Topic,
    group: str,
    worker: str,
    ids: Iterable[str] | None,
    *,
    holder: str | None,
    idle: Duration | None,
    begin: str | None,
    attempt: int | None,
    given: datetime | Duration | None = None,
    lease_ms: int = 0,
    force: bool,
    max_bytes: int,
    max_records: int,
) -> ClaimPlan:
    """Check the arguments of a claim."""
    if max_records < 1:
        raise InvalidArgument(f"max_records={max_records!r} is not a number of tasks from 1 on")
    if ids is not None and begin is not None:
        raise InvalidArgument(f"ids and begin={begin!r} both choose: give one of them")
    if force and ids is None:
        raise InvalidArgument("force=True is for tasks that are named: give ids")
    asked = Claim(
        0, topic.topic, group, worker, 0, holder=holder, min_idle_ms=idle_milliseconds(idle or 0.0),
        attempt=NEXT if attempt is None else attempt, given_us=_given_us(given), lease_ms=lease_ms, force=force,
        max_bytes=max_bytes,
    )  # fmt: skip
    named = None if ids is None else _named(topic.name, ids)
    place = (0, 0) if begin is None else _place(topic.name, begin)
    if ids is holder is idle is None:
        raise InvalidArgument(
            "this would claim the tasks of all workers: say which by ids, holder or idle (idle=0: all that are leased)"
        )
    return ClaimPlan(asked, named, place, max_records, len(topic.partitions))


def claim(
    connection: Connection, topic: str, plan: ClaimPlan, take: Callable[[Leased, bytes, float], None]
) -> Steps[str | None]:
    """Claim page by page. Returns the id to go on with, None at the end.

    Args:
        topic: its name.
        take: gets each answer with its second frame, and when its lease began on the client's clock.
    """
    left, left_bytes = plan.most, plan.most_bytes
    for number, named, begin in plan.places():
        offsets, offset = named, begin
        while offset >= 0:
            if left <= 0 or left_bytes <= 0:
                return task_id(topic, number, offset)
            asked = structs.replace(plan.asked, partition=number, max_records=left, offsets=offsets, offset=offset)
            question = _ClaimQuestion(connection, asked)
            what = f"claiming tasks of queue {asked.group} of topic {topic}"
            answer = yield from connection.wait_for(question, Leased, deadline=connection.deadline(), what=what)
            take(answer, question.batches, question.began)
            left_bytes -= len(question.batches)
            offset = answer.next_offset
            offsets = [each for each in offsets if each >= offset]
            if plan.named is None:
                left -= sum(count for _, count, _ in answer.runs) + len(answer.gone)
    return None


def idle_milliseconds(idle: Duration) -> int:
    """The least time since a task was given to its worker, as the wire has it."""
    found = seconds(idle, "idle")
    if found > IDLE_MOST_S:
        raise InvalidArgument(f"idle={idle!r} is over {IDLE_MOST_S // 86400} days")
    return round(found * 1000)


class _ClaimQuestion(BatchesQuestion):
    """Keeps when the answer came, too."""

    def __init__(self, connection: Connection, asked: Claim) -> None:
        super().__init__(connection, partial(_numbered, asked))
        self.began = self._asked_at = connection.clock()

    def answered(self, answer: Answer) -> None:
        super().answered(answer)
        self.began = self._connection.arrived_at(self._asked_at)


def _numbered(asked: Claim, request: int) -> Claim:
    return structs.replace(asked, request=request)


def _given_us(given: datetime | Duration | None) -> int:
    """The time that counts as that of the lease, or how long it was ago, as the wire has it."""
    if given is None:
        return 0
    if isinstance(given, datetime):
        return max(microseconds(given, "given"), 1)
    return -round(min(seconds(given, "given"), IDLE_MOST_S) * 1e6)


def _named(topic: str, ids: Iterable[str]) -> dict[int, list[int]]:
    places: dict[int, set[int]] = {}
    for id_ in ids:
        number, offset = _place(topic, id_)
        places.setdefault(number, set()).add(offset)
    return {number: sorted(offsets) for number, offsets in places.items()}


def _place(topic: str, id_: str) -> tuple[int, int]:
    name, number, offset = parse_task_id(id_)
    if name != topic:
        raise InvalidArgument(f"task {id_} is of topic {name}, not of {topic}")
    return number, offset
