"""Deserializing the values of tasks that a call returns, by the application's own function.

Idea: a value that cannot be read is dead-lettered, as a damaged record is: others of its queue go on, and it can be
redriven once a worker knows how to read it. One that was taken without a lease cannot be, so it is raised.

Contract: call it without the client's lock, as the function may be slow. After what is no Exception, all tasks of the
call come again. Must not know what the function does.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ...storage.printable import printable
from ...storage.record import Record
from ..errors import CannotDeserialize

if TYPE_CHECKING:
    from ..serializing import Loading
    from .core import WorkerCore
    from .record import TaskRecord

log = logging.getLogger("penstock.clients.workers")


def loaded(core: WorkerCore, tasks: list[Any]) -> list[Any]:
    """Tasks with their values, up to one without a lease that cannot be read: the next call raises that.

    Raises: CannotDeserialize for the first of those.
    """
    load = core.load
    if load is None:
        return tasks
    found: list[Any] = []
    for at, task in enumerate(tasks):
        try:
            found.append(_with_value(load, task))
        except CannotDeserialize as error:
            if task._lease.token:
                reason = load.problem(error.__cause__)
                log.warning("task %s is dead-lettered: %s", task.id, printable(reason))
                core.do(partial(core.bury, task, reason))
                continue
            core.do(partial(core.leasing.put_back, tasks[at:] if found else tasks[at + 1 :]))
            if found:
                return found
            raise
        except BaseException:
            core.do(partial(core.leasing.put_back, tasks))
            raise
    return found


def _with_value(load: Loading, task: TaskRecord) -> Any:
    if task.value is None:
        return task
    record = Record(task.value, task.key, task.headers, task.offset, task.timestamp, task.partition, task.topic)
    value = load.value_of(record)
    return type(task)(value, task.key, task.headers, task.offset, task.timestamp, task.attempt, task._lease)
