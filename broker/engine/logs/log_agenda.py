"""The agenda of the logs: those with commits that have not been processed yet.

Contract: plain sets of marks (turns/marks.py). Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .history import History


class LogAgenda:
    """Marks of the logs of one node."""

    __slots__ = ("advanced", "grown")

    def __init__(self) -> None:
        self.advanced: dict[History[Any], None] = {}  # has more committed than in the turn before
        self.grown: dict[History[Any], None] = {}  # has more committed than housekeeping has seen
