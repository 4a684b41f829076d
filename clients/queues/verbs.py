"""The verbs of queues, as steps for sync and async clients: queue groups, dead letters, tasks by id, schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import structs

from ...broker.errors import UnknownGroup, UnknownSchedule
from ...storage.encoding import PRIORITY_MAX
from ...storage.header_list import as_map
from ...transport.messages import Done, Topic
from ...transport.queue_messages import (
    FOREVER_US,
    AskTask,
    CancelTask,
    Counted,
    DeadTasks,
    DeleteQueue,
    DeleteSchedule,
    DiscardDead,
    Leased,
    ListDead,
    ListPending,
    ListQueues,
    ListSchedules,
    ListWorkers,
    PauseQueue,
    PendingRecords,
    Queue,
    Queues,
    RedriveDead,
    ResetQueue,
    Schedule,
    Schedules,
    SetQueue,
    SetSchedule,
    SettleRecords,
    SetWorker,
    TaskState,
    Verb,
    Workers,
)  # fmt: skip
from ...transport.removal_messages import DeletedRecords, DeleteRecords, ListDeleted
from ..arguments.quantities import (
    Duration,
    Start,
    lease_milliseconds,
    microseconds,
    seconds,
    setting_values,
    start_time,
)
from ..connection.asking_again import gone
from ..connection.connection import Connection
from ..connection.pages import all_pages
from ..connection.question import BatchesQuestion, Question
from ..connection.steps import FOREVER, Steps
from ..errors import InvalidArgument, TimedOut
from .claiming import claim, claim_plan, idle_milliseconds
from .descriptions import (
    Claimed,
    ClaimedTask,
    DeadTask,
    PendingTask,
    TaskInfo,
    claimed_of,
    dead_of,
    pending_of,
    task_of,
)
from .outcomes import Outcome, check_belongs, checked_reason, checked_result, delay_milliseconds
from .task_ids import parse_task_id, task_id

OFFSETS_MAX = 1 << 14
"""Tasks that one request names; more go in several."""

RESULTS_BYTES_MAX = 1 << 20
"""Bytes of results in one request; more go in several."""

ASK_WAIT_S = 30.0
"""The longest that one question about a task waits at the broker; the client repeats it."""

LATE_S = 2.0
"""The answer that a wait has no more time for says the task's state: it is waited for so long, and not for a broker."""

PAGE = 1000
"""Dead-lettered tasks that are asked for at once."""

CLAIM_BYTES = 1 << 20
"""Records of claimed tasks that are asked for at once."""


class QueueVerbs:
    """The queue verbs of both kinds of clients, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def _deadline(self) -> float:
        return self.connection.deadline()

    # -- queue groups -----------------------------------------------------------------------------------

    def queues(self, topic: str | None, group: str = "") -> Steps[list[Queue]]:
        """All queue groups, or those of one topic, or of one name."""
        deadline, id_ = self._deadline(), b""
        if topic is not None:
            id_ = (yield from self.connection.find_topic(topic, deadline)).topic
        pages = yield from all_pages(
            self.connection, lambda request, after: ListQueues(request, id_, group, after), Queues,
            deadline=deadline, what="listing queues",
        )  # fmt: skip
        return [queue for page in pages for queue in page.queues]

    def queue(self, topic: str, group: str) -> Steps[Queue]:
        """One queue group. Raises UnknownGroup."""
        found = yield from self.queues(topic, group)
        if not (group and found):  # without a name, all were listed
            known = ", ".join(sorted(queue.group for queue in (yield from self.queues(topic)))) or "none"
            raise UnknownGroup(f"topic {topic} has no queue group {group!r}; it has: {known}")
        return found[0]

    def set_queue(self, topic: str, group: str, start: Start, settings: Mapping[str, Any]) -> Steps[Queue]:
        """Create a queue group or change its settings."""
        given, time_us, deadline = setting_values(settings), start_time(start), self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        answer = yield from self.connection.ask(
            lambda request: SetQueue(request, found.topic, group, given, time_us),
            Queues,
            deadline=deadline,
            what=f"setting up queue {group} of topic {topic}",
        )
        return answer.queues[0]

    def pause_queue(self, topic: str, group: str, until: datetime | None) -> Steps[None]:
        """Lease nothing until a time, or until told otherwise."""
        until_us = FOREVER_US if until is None else max(microseconds(until, "until"), 1)
        yield from self._pause(topic, group, until_us, f"pausing queue {group} of topic {topic}")

    def resume_queue(self, topic: str, group: str) -> Steps[None]:
        """Resume leasing."""
        yield from self._pause(topic, group, 0, f"resuming queue {group} of topic {topic}")

    def _pause(self, topic: str, group: str, until_us: int, what: str) -> Steps[None]:
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        yield from self.connection.ask(
            lambda request: PauseQueue(request, found.topic, group, until_us), Done, deadline=deadline, what=what
        )

    def reset_queue(self, topic: str, group: str, to: Start | Mapping[int, int]) -> Steps[None]:
        """Let a queue group go on elsewhere."""
        positions = list(to.items()) if isinstance(to, Mapping) else []
        time_us, deadline = 0 if isinstance(to, Mapping) else start_time(to, "to"), self._deadline()
        if isinstance(to, Mapping) and not positions:
            raise InvalidArgument('to={} moves nothing: give offsets by partition, "earliest", "latest" or a datetime')
        found = yield from self.connection.find_topic(topic, deadline)
        yield from self.connection.ask(
            lambda request: ResetQueue(request, found.topic, group, time_us, positions),
            Done,
            deadline=deadline,
            what=f"resetting queue {group} of topic {topic}",
        )

    def delete_queue(self, topic: str, group: str) -> Steps[None]:
        """Delete a queue group. If the connection was lost meanwhile, a missing group counts as deleted."""
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        question = Question(self.connection, lambda request: DeleteQueue(request, found.topic, group))
        what = f"deleting queue {group} of topic {topic}"
        yield from gone(self.connection, question, UnknownGroup, deadline=deadline, what=what)

    # -- tasks ------------------------------------------------------------------------------------------

    def task(self, id_: str, group: str) -> Steps[TaskInfo]:
        """One record as a queue group has it."""
        return (yield from self._ask_task(id_, group, self._deadline(), FOREVER))

    def wait_task(self, id_: str, group: str, timeout: Duration | None) -> Steps[TaskInfo]:
        """Wait until a task is final. Raises TimedOut, which says its state if the broker does within LATE_S."""
        clock = self.connection.clock
        until = self._deadline() if timeout is None else clock() + seconds(timeout, "timeout")
        while True:
            late_s = min(LATE_S, self.connection.timeout)
            found = yield from self._ask_task(id_, group, max(until, clock()) + late_s, until)
            if found.final:
                return found
            if clock() >= until:
                raise TimedOut(f"timed out: waiting for task {id_}: it is {found.state}: {found.why}")

    def _ask_task(self, id_: str, group: str, deadline: float, until: float) -> Steps[TaskInfo]:
        name, number, offset = parse_task_id(id_)
        topic = yield from self.connection.find_topic(name, deadline)
        question = Question(
            self.connection,
            lambda request: AskTask(request, topic.topic, group, number, offset, self._wait_ms(until)),
        )
        what = f"asking for task {id_}"
        answer = yield from self.connection.wait_for(question, TaskState, deadline=deadline, what=what)
        return task_of(id_, group, answer)

    def _wait_ms(self, until: float) -> int:
        """How long the broker may delay its answer; FOREVER stands for a question that does not wait."""
        left_s = 0.0 if until == FOREVER else until - self.connection.clock()
        return round(min(max(left_s, 0.0), ASK_WAIT_S) * 1000)

    def cancel_task(self, id_: str, group: str) -> Steps[TaskInfo]:
        """Cancel a task: its record is not leased again."""
        name, number, offset = parse_task_id(id_)
        deadline = self._deadline()
        topic = yield from self.connection.find_topic(name, deadline)
        answer = yield from self.connection.ask(
            lambda request: CancelTask(request, topic.topic, group, number, offset),
            TaskState,
            deadline=deadline,
            what=f"cancelling task {id_}",
        )
        return task_of(id_, group, answer)

    def settle(
        self,
        topic: str,
        group: str,
        ids: Iterable[str],
        verb: Outcome,
        delay: Duration | None,
        reason: str,
        result: bytes | None,
    ) -> Steps[int]:
        """Settle tasks under whichever leases they are."""
        check_belongs(verb, delay=delay, reason=reason, result=result)
        places, delay_ms = _places(topic, ids), delay_milliseconds(delay)
        said, value = checked_reason(reason), checked_result(result)

        def make(id_: bytes, part: list[tuple[int, int]], request: int) -> SettleRecords:
            results = [] if value is None else [(number, offset, value) for number, offset in part]
            return SettleRecords(request, id_, group, Verb[verb.upper()], part, delay_ms, said, results)

        most = OFFSETS_MAX if not value else max(RESULTS_BYTES_MAX // len(value), 1)
        what = f"settling tasks of queue {group}"
        return (yield from self._counted(topic, _parts(places, min(most, OFFSETS_MAX)), make, what))

    # -- leased tasks -----------------------------------------------------------------------------------

    def pending(
        self,
        topic: str,
        group: str,
        worker: str | None,
        idle: Duration,
        number: int | None,
        first: int,
        end: int | None,
        max_records: int,
    ) -> Steps[list[PendingTask]]:
        """Leased tasks, by partition and offset."""
        _check_most(max_records)
        _check_places(number, offset=first, end=end)
        idle_ms, beyond = idle_milliseconds(idle), -1 if end is None else end
        found = yield from self.connection.find_topic(topic, self._deadline())
        taken: list[PendingTask] = []
        for each in range(len(found.partitions)) if number is None else [number]:
            offset = first
            while offset >= 0 and len(taken) < max_records:
                asked = ListPending(
                    0, found.topic, group, each, max_records - len(taken), offset, beyond, worker, idle_ms
                )
                answer = yield from self.connection.ask(
                    partial(_numbered, asked),
                    PendingRecords,
                    deadline=self._deadline(),
                    what=f"listing the leased tasks of queue {group} of topic {topic}",
                )
                taken += pending_of(topic, each, answer)
                offset = answer.next_offset
        return taken

    def claim(
        self, topic: str, group: str, worker: str, ids: Iterable[str] | None, *, lease: Duration | None,
        records: bool, **terms: Any,
    ) -> Steps[Claimed]:  # fmt: skip
        """Give leased tasks to another worker. `terms` are those of `claim_plan`."""
        lease_ms = 0 if lease is None else lease_milliseconds(lease)
        found = yield from self.connection.find_topic(topic, self._deadline())
        most = CLAIM_BYTES if records else 0
        plan = claim_plan(found, group, worker, ids, lease_ms=lease_ms, max_bytes=most, **terms)
        tasks: list[ClaimedTask] = []
        gone: list[str] = []

        def take(answer: Leased, payload: bytes, began: float) -> None:
            tasks.extend(claimed_of(topic, answer, payload if records else None))
            gone.extend(task_id(topic, answer.partition, offset) for offset in answer.gone)

        following = yield from claim(self.connection, topic, plan, take)
        return Claimed(tasks, gone, following)

    def workers(self, topic: str, group: str) -> Steps[Workers]:
        """What each worker of a queue group holds."""
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        return (
            yield from self.connection.ask(
                lambda request: ListWorkers(request, found.topic, group),
                Workers,
                deadline=deadline,
                what=f"listing the workers of queue {group} of topic {topic}",
            )
        )

    def forget_worker(self, topic: str, group: str, worker: str, verb: Outcome) -> Steps[int]:
        """Forget a worker and settle what it holds. Returns how many tasks that were."""

        def make(id_: bytes, _: object, request: int) -> SetWorker:
            return SetWorker(request, id_, group, worker, False, Verb[verb.upper()])

        return (yield from self._counted(topic, [[]], make, f"forgetting worker {worker} of queue {group}"))

    # -- records ----------------------------------------------------------------------------------------

    def delete_records(self, topic: str, ids: Iterable[str]) -> Steps[int]:
        """Delete records. Returns how many were there."""

        def make(id_: bytes, part: list[tuple[int, int]], request: int) -> DeleteRecords:
            return DeleteRecords(request, id_, part)

        return (yield from self._counted(topic, _parts(_places(topic, ids), OFFSETS_MAX), make, "deleting records"))

    def deleted(self, topic: str, partition: int, start: int, end: int) -> Steps[list[tuple[int, int]]]:
        """The deleted records of a range, as (first offset, how many)."""
        if end < start:
            raise InvalidArgument(f"end={end} is before start={start}")
        found, deadline = list[tuple[int, int]](), self._deadline()
        id_ = (yield from self.connection.find_topic(topic, deadline)).topic
        while start < end:
            ask = partial(_list_deleted, id_, partition, start, end)
            what = f"listing deleted records of topic {topic}"
            answer = yield from self.connection.ask(ask, DeletedRecords, deadline=self._deadline(), what=what)
            found += answer.ranges
            start = answer.next_offset
        return found

    # -- dead letters -----------------------------------------------------------------------------------

    def dead_letters(
        self, topic: str, group: str, number: int | None, first: int, reason: str, max_records: int
    ) -> Steps[list[DeadTask]]:
        """Dead-lettered tasks, by partition and offset."""
        _check_most(max_records)
        _check_places(number, offset=first)
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        chosen = range(len(found.partitions)) if number is None else [number]
        taken: list[DeadTask] = []
        for each in chosen:
            offset = first
            while offset >= 0 and len(taken) < max_records:
                most = min(max_records - len(taken), PAGE)
                question = _DeadQuestion(self.connection, found, group, each, offset, most, reason)
                what = f"listing dead-lettered tasks of queue {group} of topic {topic}"
                answer = yield from self.connection.wait_for(question, DeadTasks, deadline=self._deadline(), what=what)
                taken += dead_of(topic, each, answer.tasks, question.batches)
                offset = answer.next_offset
        return taken

    def redrive(self, topic: str, group: str, ids: Iterable[str] | None, reason: str, per_s: float) -> Steps[int]:
        """Retry dead-lettered tasks."""

        def make(id_: bytes, offsets: list[tuple[int, int]], request: int) -> RedriveDead:
            return RedriveDead(request, id_, group, offsets, reason, float(per_s))

        return (yield from self._count(topic, ids, reason, make, f"redriving dead-lettered tasks of queue {group}"))

    def discard(self, topic: str, group: str, ids: Iterable[str] | None, reason: str) -> Steps[int]:
        """Discard dead-lettered tasks."""

        def make(id_: bytes, offsets: list[tuple[int, int]], request: int) -> DiscardDead:
            return DiscardDead(request, id_, group, offsets, reason)

        return (yield from self._count(topic, ids, reason, make, f"discarding dead-lettered tasks of queue {group}"))

    def _count(self, topic: str, ids: Iterable[str] | None, reason: str, make: Any, what: str) -> Steps[int]:
        """Apply a request to all, or to these ids in as many requests as needed. Returns how many it concerned."""
        if ids is not None and reason:
            raise InvalidArgument(f"ids and reason={reason!r} both choose: give one of them")
        parts = [[]] if ids is None else _parts(_places(topic, ids), OFFSETS_MAX)
        return (yield from self._counted(topic, parts, make, what))

    def _counted(self, topic: str, parts: list[list[tuple[int, int]]], make: Any, what: str) -> Steps[int]:
        """Send a request for each part. Returns how many tasks all of them concerned."""
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        total = 0
        for part in parts:
            answer = yield from self.connection.ask(
                partial(make, found.topic, part), Counted, deadline=self._deadline(), what=f"{what} of topic {topic}"
            )
            total += answer.count
        return total

    # -- schedules --------------------------------------------------------------------------------------

    def schedule(
        self,
        topic: str,
        name: str,
        spec: str,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        zone: str,
        priority: int,
        coalesce: bool,
    ) -> Steps[Schedule]:
        """Append a record at stated times."""
        if priority > PRIORITY_MAX:
            raise InvalidArgument(f"priority={priority!r} is not a number from 0 to {PRIORITY_MAX}; higher goes first")
        # The same bytes whatever becomes of buffers: a broker in this process keeps what it is given.
        own, own_key = bytes(value), None if key is None else bytes(key)
        own_headers = as_map(headers or {})
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        answer = yield from self.connection.ask(
            lambda request: SetSchedule(
                request, found.topic, name, spec, zone, own, own_key, own_headers, priority, coalesce
            ),
            Schedules,
            deadline=deadline,
            what=f"setting schedule {name} of topic {topic}",
        )
        return answer.schedules[0]

    def schedules(self, topic: str | None) -> Steps[list[Schedule]]:
        """All schedules, or those of one topic."""
        deadline, id_ = self._deadline(), b""
        if topic is not None:
            id_ = (yield from self.connection.find_topic(topic, deadline)).topic
        answer = yield from self.connection.ask(
            lambda request: ListSchedules(request, id_), Schedules, deadline=deadline, what="listing schedules"
        )
        return answer.schedules

    def delete_schedule(self, topic: str, name: str) -> Steps[None]:
        """Delete a schedule."""
        deadline = self._deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        question = Question(self.connection, lambda request: DeleteSchedule(request, found.topic, name))
        what = f"deleting schedule {name} of topic {topic}"
        yield from gone(self.connection, question, UnknownSchedule, deadline=deadline, what=what)


class _DeadQuestion(BatchesQuestion):
    """Asks for dead letters."""

    def __init__(
        self, connection: Connection, topic: Topic, group: str, number: int, offset: int, most: int, reason: str
    ) -> None:
        super().__init__(
            connection, lambda request: ListDead(request, topic.topic, group, number, offset, most, reason)
        )


def _numbered(asked: ListPending, request: int) -> ListPending:
    return structs.replace(asked, request=request)


def _check_most(max_records: int) -> None:
    if max_records < 1:
        raise InvalidArgument(f"max_records={max_records!r} is not a number of tasks from 1 on")


def _check_places(number: int | None, **places: int | None) -> None:
    """Refuse offsets without a partition."""
    for name, offset in places.items():
        if offset and number is None:
            raise InvalidArgument(f"{name}={offset} is one of a partition: give that, too")


def _list_deleted(topic: bytes, partition: int, start: int, end: int, request: int) -> ListDeleted:
    return ListDeleted(request, topic, partition, start, end)


def _places(topic: str, ids: Iterable[str]) -> list[tuple[int, int]]:
    """Partition and offset of ids, which must all be of this topic."""
    found = [(id_, parse_task_id(id_)) for id_ in ids]
    for id_, (name, _, _) in found:
        if name != topic:
            raise InvalidArgument(f"task {id_} is of topic {name}, not of {topic}")
    return sorted({(number, offset) for _, (_, number, offset) in found})


def _parts(places: Sequence[tuple[int, int]], most: int) -> list[list[tuple[int, int]]]:
    return [list(places[at : at + most]) for at in range(0, len(places), most)]
