"""Runs the tasks of an app in the calling thread, one after the other: for tests and small programs.

Contract: what a worker of `penstock worker` would do with each task, but for `timeout=` and processes, which need one:
those calls run here, too. Not for use on an event loop.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from ..errors import ClientError
from .context import CurrentTask
from .function import AsyncTaskFunction
from .outcome import Deferred, Failed, Outcome, RefusedCall, Returned
from .performing import perform, perform_async
from .preparing import prepared
from .queues import configure_now
from .settling import COUNTED_AS, log_outcome
from .verdicts import judged

if TYPE_CHECKING:
    from ..client import Client
    from ..task import Task
    from .app import Tasks

RUNS_MAX = 100_000
"""Calls of one `run_due`: more are tasks that send themselves again without end."""


def run_due(app: Tasks) -> Counter[str]:
    """Run every task of an app that is due, and those that these send, until none is due.

    Args:
        app: its queues are worked on by its own client, in the calling thread.

    Returns: how many were done, failed, rejected and deferred.

    Raises: ClientError after 100,000 calls.
    """
    outcomes: Counter[str] = Counter()
    client = app.client()
    with ExitStack() as closing:
        workers = []
        for queue in app.queues.values():
            most = configure_now(client, queue)["max_attempts"] or sys.maxsize
            worker = closing.enter_context(client.worker(queue.topic, group=queue.group, prefetch=0))
            workers.append((worker, most))
        while found := [(task, most) for worker, most in workers for task in worker.fetch(max_records=1, wait=0)]:
            for task, most in found:
                outcome = _outcome(app, client, task, most)
                log_outcome(task, outcome)
                _settle(task, outcome)
                outcomes[COUNTED_AS.get(type(outcome), "done")] += 1
            if outcomes.total() >= RUNS_MAX:
                raise ClientError(f"{RUNS_MAX} tasks ran, and more are due: does one send itself again at once?")
    return outcomes


def _outcome(app: Tasks, client: Client, task: Task, most: int) -> Outcome:
    """Call the function of a task here."""
    found = prepared(app.functions, task.headers, task.value, task.attempt, client.now_us, decodes=True)
    if isinstance(found, RefusedCall):
        return found
    function, encoding, rule, call = found
    assert call is not None, "the arguments were decoded"
    current = CurrentTask(
        task.id, task.attempt, encoding=encoding, tell=task.progress, is_cancelled=lambda: task.cancelled,
        headers=task.headers, name=function.name,
    )  # fmt: skip
    about = (function.function, function.arguments, call, encoding, current, app.hooks)
    is_async = isinstance(function, AsyncTaskFunction)
    outcome = asyncio.run(perform_async(*about)) if is_async else perform(*about)
    return judged(outcome, rule, task.attempt, most, random.random) if isinstance(outcome, Failed) else outcome


def _settle(task: Task, outcome: Outcome) -> None:
    match outcome:
        case Returned(result):
            verb = partial(task.ack, result=result)
        case RefusedCall(reason) | Failed(reason, rejects=True):
            verb = partial(task.reject, reason)
        case Failed(reason, delay_s=delay_s):
            verb = partial(task.nack, delay=delay_s, reason=reason)
        case Deferred(delay_s):
            verb = partial(task.release, delay=delay_s)
        case _:
            verb = task.release
    verb()
