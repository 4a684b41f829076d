"""How many tasks are worth leasing ahead."""

from __future__ import annotations

from penstock.clients.tasks.pace import AHEAD_MAX, AHEAD_S, QueuePace


def test_as_many_as_ended_within_a_moment_are_leased_ahead():
    pace = QueuePace(max_attempts=2)
    assert pace.ahead(100.0) == 0
    pace.note(3, 100.0)
    pace.note(4, 100.0 + AHEAD_S / 2)
    assert pace.ahead(100.0 + AHEAD_S / 2) == 7
    assert pace.ahead(100.0 + 1.2 * AHEAD_S) == 4, "the first are long ago"
    assert pace.ahead(101.0) == 0


def test_there_is_a_limit():
    pace = QueuePace(max_attempts=2)
    pace.note(3 * AHEAD_MAX, 1.0)
    assert pace.ahead(1.0) == AHEAD_MAX


def test_no_task_is_leased_ahead_that_has_one_attempt() -> None:
    pace = QueuePace(max_attempts=1)
    pace.note(3, 1.0)
    assert pace.ahead(1.0) == 0
