"""The agenda of the logs: which of them a turn has to look at.

Contract: plain sets of marks (turns/marks.py). Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .history import History
    from .overlay import Overlay


class LogAgenda:
    """Marks of the logs of one node."""

    __slots__ = ("advanced", "dirty", "grown", "unsettled")

    def __init__(self) -> None:
        self.dirty: dict[Overlay[Any], None] = {}  # has proposals to append
        self.unsettled: dict[Overlay[Any], None] = {}  # has batches in flight
        self.advanced: dict[History[Any], None] = {}  # has more committed than in the turn before
        self.grown: dict[History[Any], None] = {}  # has more committed than housekeeping has seen
