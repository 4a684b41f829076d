"""Whether a history of operations could have happened one after the other: each at some moment of its own interval.

Idea: as Wing and Gong. An operation may come next if none that is left ended before it began. Of histories of several
things, each thing is judged by itself. One whose end is unknown may have happened at any later moment, or not at all.

Contract: exponential in what overlaps, so a thing has few operations at once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Any, NamedTuple


class Operation(NamedTuple):
    """One operation on one thing. `end`: inf where its outcome is unknown."""

    what: str
    begin: float
    end: float
    said: Hashable = None


Step = Callable[[Any, Operation], Any]
"""The state after an operation; None where it cannot have happened, or have said that, in this state."""


def linearized(operations: Sequence[Operation], state: Hashable, step: Step) -> bool:
    """Whether there is an order in which everything that ended happened."""
    seen: set[tuple[frozenset[int], Hashable]] = set()

    def goes(left: frozenset[int], now: Hashable) -> bool:
        if all(operations[each].end == inf for each in left):
            return True
        if (left, now) in seen:
            return False
        seen.add((left, now))
        first_end = min(operations[each].end for each in left)
        for each in left:
            if operations[each].begin <= first_end:
                after = step(now, operations[each])
                if after is not None and goes(left - {each}, after):
                    return True
        return False

    return goes(frozenset(range(len(operations))), state)


class TaskState(NamedTuple):
    """A task: absent, ready, leased or done; and its highest attempt."""

    status: str = "absent"
    attempt: int = 0


def task_step(state: TaskState, operation: Operation) -> TaskState | None:
    """What operations do to a task. `said`: the attempt of a lease, and of what settles it; `lost` settles nothing.

    A lease may run out at any time, and one that no worker heard of is an attempt, too.
    """
    what, attempt = operation.what, operation.said
    if what == "put":
        return TaskState("ready") if state.status == "absent" else None
    assert isinstance(attempt, int)
    if what == "lease":
        can = state.status in ("ready", "leased") and attempt > state.attempt
        return TaskState("leased", attempt) if can else None
    held = state == TaskState("leased", attempt)
    if what == "ack":
        return TaskState("done", attempt) if held else None
    if what == "nack":
        return TaskState("ready", attempt) if held else None
    assert what == "lost", operation
    return TaskState("ready", attempt) if held else state
