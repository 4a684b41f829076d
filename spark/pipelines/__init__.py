"""Pipelines as functions: a Spark session and plain arguments in, progress and exactly-once results out.

Each follows its topics batch by batch, notes in a checkpoint how far it is, and can be ended at any moment, by force
too: started again with the same checkpoint and target, it goes on, and its results are as if it had never stopped.
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
