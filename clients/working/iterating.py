"""Iteration over a worker, for threads.

Contract: iteration ends when another thread closes the worker. Tasks that a loop has not taken go to the next loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...storage.errors import Closed
from ..connection.driver import Driver
from ..connection.steps import FOREVER, Steps
from .core import WorkerCore
from .loading import loaded


def fetched_tasks(
    driver: Driver, core: WorkerCore, begun: Steps[list[Any]], again: Callable[[], Steps[list[Any]]]
) -> list[Any]:
    """The tasks of a call, and of others while none of them can be read."""
    tasks = driver.run_on(begun)
    while tasks:
        if found := loaded(core, tasks):
            return found
        tasks = driver.run_on(again())
    return []


def each_task(driver: Driver, core: WorkerCore) -> Iterator[Any]:
    """Every task; waits for new ones."""
    while True:
        try:
            task = core.left.popleft()
        except IndexError:
            try:
                core.left.extend(driver.run_on(core.fetch(core.options.lease_records, FOREVER)))
            except Closed:
                core.connection.check_ours()
                return
            continue
        if not task.lost and not core.closed:
            if core.load is None:
                yield task
            else:
                yield from loaded(core, [task])
