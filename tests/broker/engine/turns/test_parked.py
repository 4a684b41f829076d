"""Requests that are parked: their limits, their deadlines, and that nothing of an answered one stays."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from penstock.broker.engine.turns import parked
from penstock.broker.engine.turns.alarms import Alarms
from penstock.broker.engine.turns.parked import DUE_MAX, SLACK, Parked
from penstock.broker.errors import LimitReached


class Waiting(NamedTuple):
    number: int
    peer: str = "a"
    deadline_s: float = 0.0


class Questions(Parked[Waiting]):
    """Parked requests, and those whose time was up."""

    def __init__(self) -> None:
        self.deadlines: Alarms[float] = Alarms()
        self.overdue: list[Waiting] = []
        super().__init__("questions", self.deadlines, self.overdue.append)

    def due(self, now_s: float) -> list[Waiting]:
        """Those whose time is up and that were not told before."""
        self.overdue.clear()
        self.next_s = self.deadlines.ring(now_s)
        return list(self.overdue)


@pytest.fixture
def waiting() -> Questions:
    return Questions()


def test_one_connection_and_all_together_have_a_limit(waiting: Questions, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parked, "EACH_MAX", 2)
    monkeypatch.setattr(parked, "ALL_MAX", 3)
    requests = [Waiting(1), Waiting(2), Waiting(3, "b")]
    for request in requests[:2]:
        waiting.check("a")
        waiting.add(request)
    with pytest.raises(LimitReached, match="2 questions of this connection"):
        waiting.check("a")
    waiting.check("b")
    waiting.add(requests[2])
    for peer in ("b", "c"):
        with pytest.raises(LimitReached, match="3 questions wait"):
            waiting.check(peer)
    waiting.remove(requests[0])
    waiting.check("a")


def test_what_is_answered_is_forgotten(waiting: Questions):
    first, second = Waiting(1, deadline_s=5.0), Waiting(2, deadline_s=9.0)
    waiting.add(first)
    waiting.add(second)
    waiting.remove(first)
    assert (waiting.of("a"), first in waiting, second in waiting, len(waiting.standing)) == ([second], False, True, 1)
    assert (waiting.due(5.0), waiting.next_s) == ([], 9.0), "its deadline is none any more"
    waiting.remove(second)
    assert (waiting.of("a"), waiting.due(10.0), waiting.next_s) == ([], [], None)
    assert not waiting._by_peer, "connections are forgotten too"


def test_deadlines_are_told_in_order_once_each_and_some_at_a_time(waiting: Questions):
    requests = [Waiting(number, deadline_s=100.0 - number) for number in range(DUE_MAX + 2)]
    for request in requests:
        waiting.add(request)
    assert waiting.due(requests[-1].deadline_s - 0.5) == []
    assert waiting.due(requests[-1].deadline_s) == [requests[-1]]
    assert waiting.due(100.0) == requests[-2:0:-1]
    assert waiting.due(100.0) == [requests[0]]
    assert len(waiting.standing) == len(requests), "what becomes of them is not said here"


def test_deadlines_of_answered_requests_are_cleared_away_now_and_then(
    waiting: Questions, monkeypatch: pytest.MonkeyPatch
):
    stay = [Waiting(number, deadline_s=100.0 - number) for number in range(10)]
    cleared, heapify = [0], parked.heapify

    def counted(heap: list[tuple[float, int]]) -> None:
        cleared[0] += 1
        heapify(heap)

    monkeypatch.setattr(parked, "heapify", counted)
    for request in stay:
        waiting.add(request)
    assert cleared == [0]
    for number in range(10, 1000):
        passing = Waiting(number, deadline_s=200.0)
        waiting.add(passing)
        waiting.remove(passing)
        assert len(waiting._due) <= 2 * (len(stay) + 1) + SLACK
    assert 0 < cleared[0] < 1000 // SLACK
    assert waiting.due(150.0) == stay[::-1]
