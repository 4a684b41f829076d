"""Tasks as functions: `penstock.Tasks`.

`arguments`, `encoding` and `wire` are bytes; `app`, `function` and `jobs` are what applications touch, over `link` for
threads and `aio` for loops; `runner` is what `penstock worker` runs, over `calls`: threads, processes and a loop.
"""

from __future__ import annotations

from .app import Tasks
from .call import Call
from .callbacks import Ended
from .context import CurrentTask, current_task
from .function import AsyncTaskFunction, TaskFunction
from .groups import group, group_async
from .jobs import AsyncJob, Job, JobStatus
from .retry import Retry
from .signals import Again, Reject

__all__ = [
    "Tasks", "TaskFunction", "AsyncTaskFunction", "Retry", "Reject", "Again",
    "Job", "AsyncJob", "JobStatus",
    "group", "group_async", "Call", "Ended",
    "CurrentTask", "current_task",
]  # fmt: skip
