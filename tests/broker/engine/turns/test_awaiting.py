"""Requests that await what a partition will have: who is tried, in which portions, and what a failure does."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.broker.engine.turns.alarms import Alarms
from penstock.broker.engine.turns.awaiting import AwaitingRequests
from penstock.broker.engine.turns.portions import STEPS, Portions
from penstock.broker.errors import UnknownTopic
from penstock.storage.errors import Corrupt, Error
from support.engine import MemoryPort


class Part:
    """A partition, which is told of its damage."""

    def __init__(self) -> None:
        self.damages: list[Corrupt] = []

    def met(self, damage: Corrupt) -> None:
        self.damages.append(damage)


@dataclass(eq=False)
class Question:
    number: int
    partition: Part
    peer: Hashable = "a"
    deadline_s: float = 0.0
    cold: bool = False
    message: Any = field(init=False)

    def __post_init__(self) -> None:
        self.message = SimpleNamespace(request=self.number)


class Desk:
    """One owner of such requests. `ready` are answered when they are tried, or raise their error."""

    def __init__(self, looks: int = 100) -> None:
        self.port = MemoryPort()
        self.wakes = Portions()
        self.ready: dict[int, Exception | None] = {}
        self.tried: list[int] = []
        self.awaiting = AwaitingRequests[Question](
            "questions", self.port, self.wakes, Alarms(), answer=self._answer, overdue=self._answer, looks=looks
        )

    def _answer(self, question: Question) -> bool:
        self.tried.append(question.number)
        error = self.ready.get(question.number)
        if error is not None:
            raise error
        return question.number in self.ready

    def add(self, *questions: Question) -> None:
        for question in questions:
            self.awaiting.add(question)

    def waits(self) -> bool:
        """Whether anything is remembered."""
        return bool(self.awaiting.parked.standing or self.awaiting._by_partition or self.awaiting._telling)

    def more(self, partition: Part) -> list[int]:
        """Who is tried in the first portion, and how it goes on, when a partition has more."""
        self.tried.clear()
        self.awaiting.more(partition)
        self.wakes.work()
        return list(self.tried)


@pytest.mark.parametrize(
    ("error", "code", "damaged"),
    [
        (Corrupt("bad"), "corrupt", True),
        (OSError("I/O"), "read_failed", False),
        (UnknownTopic("gone"), "unknown_topic", False),
    ],
    ids=["corrupt", "not read", "refused"],
)
def test_what_cannot_be_read_fails_its_request_and_damage_marks_the_partition(
    error: Exception, code: str, damaged: bool
):
    desk, part = Desk(), Part()
    desk.add(Question(1, part), Question(2, part))
    desk.ready[1] = error
    desk.more(part)
    desk.more(part)
    assert [(answer.request, answer.code) for _, answer, _ in desk.port.sent] == [(1, code)]
    assert bool(part.damages) is damaged
    assert desk.tried == [2]


def test_one_that_is_answered_ends_a_step_and_so_do_many_that_are_not():
    desk, part = Desk(looks=3), Part()
    desk.add(*(Question(number, part) for number in range(5 * STEPS)))
    assert desk.more(part) == list(range(3 * STEPS))
    while desk.wakes.work():
        pass
    assert desk.tried == list(range(5 * STEPS)), "each once"
    desk.ready = dict.fromkeys(range(5 * STEPS))
    assert desk.more(part) == list(range(STEPS))


def test_what_comes_while_it_is_told_is_told_after_it():
    desk, part = Desk(looks=1), Part()
    desk.add(*(Question(number, part) for number in range(STEPS + 1)))
    desk.more(part)
    desk.awaiting.more(part)
    while desk.wakes.work():
        pass
    assert desk.tried == [*range(STEPS + 1), *range(STEPS + 1)]


def test_one_of_which_the_pages_are_on_their_way_is_tried_once_they_are_there():
    desk, part = Desk(), Part()
    cold = Question(1, part, cold=True)
    desk.add(cold)
    desk.ready[1] = None
    assert desk.more(part) == []
    for _ in range(2):
        desk.awaiting.warmed(cold)
    assert (desk.tried, desk.waits()) == ([1], False)


def test_one_that_is_answered_meanwhile_is_not_tried():
    desk, part = Desk(looks=1), Part()
    questions = [Question(number, part) for number in range(STEPS + 2)]
    desk.add(*questions)
    desk.more(part)
    desk.awaiting.forget(questions[-1])
    while desk.wakes.work():
        pass
    assert desk.tried == list(range(STEPS + 1))


def test_a_connection_that_is_gone_takes_along_what_it_awaits_and_nothing_else():
    desk, part, other = Desk(), Part(), Part()
    desk.add(Question(1, part), Question(2, other), Question(3, part, "b"))
    desk.awaiting.more(part)
    desk.wakes.drop("a")
    desk.awaiting.disconnect("a")
    desk.wakes.work()
    assert desk.tried == [3]
    desk.add(Question(4, part))
    assert desk.more(part) == [3, 4], "one of its name is told again"
    desk.awaiting.disconnect("b")
    desk.awaiting.disconnect("a")
    assert not desk.waits()


def test_a_partition_that_is_gone_fails_what_awaits_it():
    desk, part, other = Desk(), Part(), Part()
    desk.add(Question(1, part), Question(2, part, "b"), Question(3, other))
    desk.awaiting.close(part, Error("gone"))
    assert [(peer, answer.request, answer.message) for peer, answer, _ in desk.port.sent] == [
        ("a", 1, "gone"), ("b", 2, "gone")
    ]  # fmt: skip
    assert (desk.more(part), desk.more(other)) == ([], [3])
