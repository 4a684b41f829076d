"""Pipelines as functions: a Spark session and plain arguments in, progress and exactly-once results out.

Each follows its topics batch by batch with a checkpoint, and may be stopped or killed at any moment: started again
with the same checkpoint and target it resumes, and its results are as if it had never stopped.
"""

from __future__ import annotations

from .archive import archive
from .compact import compact, compact_into, latest_per_key
from .dead_letters import by_reason, count_dead_letters, dead_letters
from .progress import Progress
from .replay import replay
from .rollup import rollup
from .running import Pace

__all__ = [
    "Pace",
    "Progress",
    "archive",
    "by_reason",
    "compact",
    "compact_into",
    "count_dead_letters",
    "dead_letters",
    "latest_per_key",
    "replay",
    "rollup",
]
