"""Leases by hand: taken in one process, settled in another, never extended.

Idea: a worker extends its leases and returns them when it closes. The command line, and callers without a lasting
connection, need neither: the lease is a number, kept with the task's id as `id@token`.

Contract: a lease taken here lasts until it expires or is settled, also after this client has closed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from ..storage.errors import InvalidBatch
from ..storage.record import Record
from ..transport.failures import error_from
from ..transport.messages import Answer
from ..transport.queue_messages import FOREVER_US, Lease, Leased, Settle, Settled, SettleTasks, Verb
from .arguments.quantities import Duration, lease_milliseconds, seconds
from .client import Client
from .connection.connection import Connection
from .connection.question import Question
from .connection.steps import Steps
from .connection.unavailable import UnavailablePartitions, is_not_worked_on
from .errors import InvalidArgument
from .queues.outcomes import delay_milliseconds
from .queues.picking import Unreadable, pick
from .queues.task_ids import parse_task_id, task_id
from .working.options import check_count

_NAME = re.compile(r"(.+)@([0-9]{1,19})", re.ASCII | re.DOTALL)


class LeasedTask(Struct, frozen=True):
    """A leased task. `name` settles it. `until` is None when the lease has no end."""

    record: Record
    attempt: int
    token: int
    until: datetime | None

    @property
    def id(self) -> str:
        """The public id of the task."""
        return task_id(self.record.topic, self.record.partition, self.record.offset)

    @property
    def name(self) -> str:
        """The task under this lease."""
        return f"{self.id}@{self.token}"


class ByHand:
    """Leases and settles over a client, for one queue group's name."""

    def __init__(self, client: Client, group: str) -> None:
        self._driver = client._driver
        self._connection = client._connection
        self._group = group

    def lease(
        self, topic: str, worker: str, *, max_records: int = 1, lease: Duration | None = None, wait: Duration = 0.0
    ) -> list[LeasedTask]:
        """Lease at most `max_records` tasks of one partition; [] when none came within `wait`."""
        check_count(max_records)
        lease_ms = 0 if lease is None else lease_milliseconds(lease)
        return self._driver.run(self._lease(topic, worker, max_records, lease_ms, seconds(wait, "wait")))

    def settle(
        self,
        names: Sequence[str],
        verb: Verb,
        *,
        delay: Duration | None = None,
        reason: str = "",
        result: bytes | None = None,
    ) -> None:
        """Settle tasks, named `id@token`. Raises the first refusal; the others are settled.

        Raises: InvalidArgument for a malformed name; LeaseLost, UnknownLease.
        """
        delay_ms = delay_milliseconds(delay)
        topics: dict[str, list[Settle]] = {}
        for name in names:
            topic, partition, offset, token = parse_leased(name)
            results = [] if result is None else [(offset, result)]
            settle = Settle(partition, token, verb, [(offset, 1)], delay_ms, reason, results)
            topics.setdefault(topic, []).append(settle)
        for topic, settles in topics.items():
            self._driver.run(self._settle(topic, settles))

    def _lease(self, topic: str, worker: str, most: int, lease_ms: int, wait_s: float) -> Steps[list[LeasedTask]]:
        connection = self._connection
        deadline = connection.deadline() + wait_s
        found = yield from connection.find_topic(topic, deadline)
        question = _LeaseQuestion(
            connection,
            Lease(0, found.topic, self._group, worker, most, lease_ms=lease_ms, wait_ms=round(wait_s * 1000)),
        )
        answer = yield from connection.wait_for(
            question, Leased, deadline=deadline, what=f"leasing tasks of topic {topic}"
        )
        until = None if answer.until_us >= FOREVER_US else datetime.fromtimestamp(answer.until_us / 1e6, UTC)
        if not answer.runs:
            UnavailablePartitions(connection, found, is_not_worked_on).raise_next()
        attempts = {at: attempt for first, count, attempt in answer.runs for at in range(first, first + count)}
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        for rows in pick(question.batches, [(first, count) for first, count, _ in answer.runs]):
            if isinstance(rows, Unreadable):
                unreadable.append(rows)
            else:
                records += [Record(*row, answer.partition, topic) for row in zip(*rows, strict=False)]
        if unreadable:
            yield from self._pass_over(topic, answer, unreadable, alone=not records)
        return [LeasedTask(record, attempts[record.offset], answer.token, until) for record in records]

    def _pass_over(self, topic: str, answer: Leased, unreadable: list[Unreadable], *, alone: bool) -> Steps[None]:
        """Reject damaged records, release other unreadable ones. Raises the reason if no record can be read."""
        settles: list[Settle] = []
        for bad in unreadable:
            verb = Verb.REJECT if isinstance(bad.error, InvalidBatch) else Verb.RELEASE
            reason = f"it cannot be read: {bad.error.message}" if verb == Verb.REJECT else ""
            settles.append(Settle(answer.partition, answer.token, verb, [(bad.offset, bad.count)], reason=reason))
        yield from self._settle(topic, settles)
        if alone:
            raise unreadable[0].error

    def _settle(self, topic: str, settles: list[Settle]) -> Steps[None]:
        connection, group = self._connection, self._group
        deadline = connection.deadline()
        found = yield from connection.find_topic(topic, deadline)
        answer = yield from connection.ask(
            lambda request: SettleTasks(request, found.topic, group, settles),
            Settled,
            deadline=deadline,
            what=f"settling tasks of topic {topic}",
        )
        for refusal in answer.refused:
            raise error_from(refusal.code, refusal.message)


class _LeaseQuestion(Question):
    """Keeps the batches of the answer."""

    def __init__(self, connection: Connection, lease: Lease) -> None:
        super().__init__(connection, lambda request: msgspec.structs.replace(lease, request=request), self._keep)
        self.batches = b""

    def _keep(self, answer: Answer) -> None:
        self.batches = bytes(self._connection.payload)


def is_leased(name: str) -> bool:
    """Whether a name is of a task under a lease, and not its id alone."""
    return "@" in name


def parse_leased(name: str) -> tuple[str, int, int, int]:
    """Topic, partition, offset and token of a task under a lease. Raises InvalidArgument."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidArgument(f"{name!r} is no leased task: one is id@token, as in mails-0-17@1099511627777")
    return *parse_task_id(found[1]), int(found[2])
