"""Makes the pauses of Spark's Python workers between tasks short.

Idea: a worker that is used again collects garbage after each task, for which Python scans every module ever imported:
40 ms, in which it could read 100,000 records. Modules stay as long as the worker anyway, so they are frozen out of the
collector. Contract: only for processes that Spark starts for tasks and for planning, never for the user's own.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze() -> None:
    """Exclude everything allocated so far from garbage collection, once per process."""
    gc.freeze()
