"""The verbs of groups, as steps: setting a barrier and sending its members; listing and deleting barriers.

Contract: the barrier is committed before a member is sent, and is not set where a queue of its members is missing. An
error leaves what was sent: those tasks run, and the callback never comes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...broker.errors import UnknownBarrier, UnknownProducer
from ...transport.barrier_messages import MEMBERS_MAX
from ...transport.messages import (
    Barrier,
    Barriers,
    DeleteBarrier,
    Done,
    ListBarriers,
    MemberQueue,
    Produce,
    Produced,
    SetBarrier,
    Tie,
    Topic,
)
from ...transport.partitioner import partition_of
from ..connection.asking_again import gone
from ..connection.connection import Connection
from ..connection.question import Question
from ..connection.steps import Steps
from ..errors import InvalidArgument
from ..queues.task_ids import task_id
from .descriptions import Callback, GroupTask, barrier_id
from .members import MemberBatch, MemberProducer, Producers, portions

LIFETIME_S = 30 * 86400.0
"""How long a barrier waits, beside the longest delay of its members."""


class BarrierVerbs:
    """The verbs of both kinds of clients, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._producers = Producers(os.urandom)

    def barriers(self, topic: str | None, most: int) -> Steps[list[Barrier]]:
        """All barriers, or those of one topic."""
        if most < 1:
            raise InvalidArgument(f"most={most!r} is not a number of barriers from 1 on")
        deadline, id_ = self.connection.deadline(), b""
        if topic is not None:
            id_ = (yield from self.connection.find_topic(topic, deadline)).topic
        answer = yield from self.connection.ask(
            lambda request: ListBarriers(request, id_, most), Barriers, deadline=deadline, what="listing barriers"
        )
        return answer.barriers

    def delete_barrier(self, topic: str, id_: str) -> Steps[None]:
        """Delete a barrier."""
        barrier, deadline = barrier_id(id_), self.connection.deadline()
        found = yield from self.connection.find_topic(topic, deadline)
        question = Question(self.connection, lambda request: DeleteBarrier(request, found.topic, barrier))
        what = f"deleting barrier {id_} of topic {topic}"
        yield from gone(self.connection, question, UnknownBarrier, deadline=deadline, what=what)

    def send_group(self, tasks: Sequence[GroupTask], then: Callback) -> Steps[list[str]]:
        """Send tasks, and have a record appended once they have ended. Returns the ids of the tasks."""
        if not 1 <= len(tasks) <= MEMBERS_MAX:
            raise InvalidArgument(f"a group of {len(tasks)} members cannot be sent: 1 to {MEMBERS_MAX} can")
        deadline, connection = self.connection.deadline(), self.connection
        topics: dict[str, Topic] = {}
        for name in dict.fromkeys(task.topic for task in tasks):
            topics[name] = yield from connection.find_topic(name, deadline)
        home = topics.get(then.topic) or (yield from connection.find_topic(then.topic, deadline))
        barrier = os.urandom(16)
        number = partition_of(barrier, len(home.partitions))
        queues = [MemberQueue(topics[name].topic, group) for name, group in dict.fromkeys(map(_queue, tasks))]
        delay_us = max(max(task.not_before for task in tasks) - connection.channel.now_us(), 0)
        set_barrier = Question(
            connection,
            lambda request: SetBarrier(
                request, home.topic, number, barrier, len(tasks), then.ended, then.headers, then.priority,
                round(LIFETIME_S * 1000) + delay_us // 1000, queues,
            ),
        )  # fmt: skip
        set_barrier.checked()
        what = f"setting a barrier of topic {then.topic}"
        yield from connection.wait_for(set_barrier, Done, deadline=deadline, what=what)
        ids: dict[int, str] = {}
        sending: list[_Sending] = []
        try:
            for portion in portions(tasks, topics, os.urandom):
                tie = Tie(portion.group, home.topic, number, barrier, portion.numbers)
                sending.append(_Sending(connection, self._producers, portion, tie, tasks))
            for each in sending:
                connection.post(each.question)
            for each in sending:
                offset = yield from each.stands(deadline)
                name, partition = each.portion.topic.name, each.portion.partition
                ids.update((no, task_id(name, partition, at)) for at, no in enumerate(each.portion.numbers, offset))
        finally:
            for each in sending:
                each.question.cancel()
        return [ids[no] for no in range(len(tasks))]


def _queue(task: GroupTask) -> tuple[str, str]:
    return task.topic, task.group


class _Sending:
    """One batch of members on its way."""

    def __init__(
        self, connection: Connection, producers: Producers, portion: MemberBatch, tie: Tie, tasks: Sequence[GroupTask]
    ) -> None:
        self.portion = portion
        self._connection = connection
        self._producers = producers
        self._tie = tie
        self._tasks = [tasks[number] for number in portion.numbers]
        self._producer = producers.take(portion.topic.topic, portion.partition)
        self.question = self._ask(self._producer)

    def _ask(self, producer: MemberProducer) -> Question:
        topic, partition, tie = self.portion.topic.topic, self.portion.partition, self._tie
        batch = producer.batch(self._tasks)
        refused = self._connection.too_large(batch, len(self._tasks))
        if refused is not None:
            raise refused
        return Question(self._connection, lambda request: Produce(request, topic, partition, tie), payload=batch)

    def stands(self, deadline: float) -> Steps[int]:
        """Wait until it is committed; returns the first offset."""
        try:
            answer = yield from self._answer(deadline)
        except UnknownProducer:
            if not self._producer.next_sequence:
                raise
            self._producer = self._producers.fresh()  # the broker has forgotten the other one: nothing was appended
            self.question = self._ask(self._producer)
            self._connection.post(self.question)
            answer = yield from self._answer(deadline)
        topic, count = self.portion.topic, len(self._tasks)
        self._producers.give_back(topic.topic, self.portion.partition, self._producer, count)
        return answer.offset

    def _answer(self, deadline: float) -> Steps[Produced]:
        what = f"sending {len(self._tasks)} tasks to topic {self.portion.topic.name}"
        return (yield from self._connection.answer_to(self.question, Produced, deadline=deadline, what=what))
