"""What Spark's Python workers do between tasks, made short.

Idea: a worker that is used again collects garbage after each task, for which Python looks through all that was ever
imported: 40 ms, in which it could read 100,000 records. All of that stays as long as the worker does anyway, so
it is taken out of what is looked through.
Contract: only for processes that Spark starts for tasks and for planning, never for the user's own.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze() -> None:
    """What this process has by now, it keeps. Does something once a process."""
    gc.freeze()
