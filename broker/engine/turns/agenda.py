"""The agenda: what the node has to look at in this turn.

Idea: a node may have thousands of partitions and sessions, and a turn concerns a few. Whoever causes work
puts it here; flush, advance and tick take it from here and look at nothing else.

Contract: plain sets of marks, each in the order they were made (dicts, so that a run can be repeated exactly).
Work that a taken mark causes marks anew, for the next turn. Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..logs.history import History
    from ..logs.overlay import Overlay
    from ..streams.coordinator import Membership
    from ..streams.sessions import Session


Marked = TypeVar("Marked")


class Agenda:
    """Marks of one node."""

    __slots__ = ("advanced", "dirty", "grown", "mail", "memberships", "ready", "unsettled")

    def __init__(self) -> None:
        self.dirty: dict[Overlay[Any], None] = {}  # has proposals to append
        self.unsettled: dict[Overlay[Any], None] = {}  # has batches in flight
        self.advanced: dict[History[Any], None] = {}  # has more committed than in the turn before
        self.grown: dict[History[Any], None] = {}  # has more committed than housekeeping has seen
        self.memberships: dict[Membership, None] = {}  # who should read what has to be computed again
        self.mail: dict[Session, None] = {}  # has news that it was not told yet
        self.ready: dict[Session, None] = {}  # may have something to be delivered


def take(marks: dict[Marked, None]) -> list[Marked]:
    """What is marked, in order; the marks are gone."""
    taken = list(marks)
    marks.clear()
    return taken
