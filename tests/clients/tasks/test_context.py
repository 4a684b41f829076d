"""The current task, inside and outside of one."""

from __future__ import annotations

import pytest
from penstock import current_task
from penstock.clients.tasks.context import CurrentTask, working_on
from penstock.errors import InvalidArgument


def test_outside_of_a_task_everything_is_harmless():
    task = current_task()
    assert (task.id, task.attempt, task.cancelled) == ("", 1, False)
    task.progress(0.5)


def test_inside_it_is_the_one_that_is_worked_on():
    told: list[bytes] = []
    cancelled = iter([False, True])
    task = CurrentTask("q-0-1", 3, tell=told.append, is_cancelled=lambda: next(cancelled))
    with working_on(task):
        assert current_task() is task
        assert [task.cancelled, task.cancelled] == [False, True]
        task.progress({"done": 1})
    assert told == [b'{"done":1}']
    assert current_task() is not task


def test_progress_that_cannot_be_encoded_is_refused():
    with pytest.raises(InvalidArgument, match="progress"):
        CurrentTask().progress(object())
    with pytest.raises(InvalidArgument, match="5002 bytes are too many for progress, over 4096"):
        CurrentTask().progress("x" * 5000)
