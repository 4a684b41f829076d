"""Marks: what the node has to look at in this turn, each once, in the order in which it was marked.

Idea: a node may have thousands of partitions and sessions, and a turn concerns a few. What causes work marks it;
flush, advance and tick take the marks and look at nothing else. Dicts, so that a run can be repeated exactly.

Contract: work that a taken mark causes marks anew, for the next turn. Decides nothing.
"""

from __future__ import annotations

from typing import TypeVar

Marked = TypeVar("Marked")


def take(marks: dict[Marked, None]) -> list[Marked]:
    """What is marked, in order; the marks are gone."""
    taken = list(marks)
    marks.clear()
    return taken
