"""The jobs of many calls that were sent together: sequences that make each job when it is asked for.

Idea: a broker places many records in few runs of offsets, so ten thousand jobs are a few numbers until they are used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TypeVar, overload

from ..queues.task_ids import task_id

J = TypeVar("J")

Run = tuple[int, int, int]
"""Partition, first offset, how many."""


class JobList(Sequence[J]):
    """The jobs of `send_many`, in the order of its calls."""

    def __init__(self, queue: str, runs: Sequence[Run], job: Callable[[str], J]) -> None:
        """Made by `TaskFunction.send_many`; `job` makes one of an id."""
        self._queue = queue
        self._runs = runs
        self._job = job
        self._ends = list(accumulate(count for _, _, count in runs))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> J: ...
    @overload
    def __getitem__(self, index: slice) -> list[J]: ...
    def __getitem__(self, index: int | slice) -> J | list[J]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"job {index} of {len(self)}")
        number = bisect_right(self._ends, at)
        partition, first, count = self._runs[number]
        return self._job(task_id(self._queue, partition, first + at - (self._ends[number] - count)))

    def __add__(self, other: Iterable[J]) -> list[J]:
        """A list of these jobs and others, each made now."""
        return [*self, *other] if isinstance(other, Iterable) else NotImplemented

    def __radd__(self, other: Iterable[J]) -> list[J]:
        return [*other, *self] if isinstance(other, Iterable) else NotImplemented

    @property
    def runs(self) -> Sequence[Run]:
        """Where the tasks are: (partition, first offset, how many), in the order of the calls."""
        return self._runs

    def __repr__(self) -> str:
        return f"<{len(self)} jobs of queue {self._queue}>"
