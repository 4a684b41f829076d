"""Marks: the set of things a turn must process, each once, in the order they were marked.

Idea: a node may have thousands of partitions and sessions, and a turn concerns a few. Events mark them; flush, advance
and tick take the marks and look at nothing else. Dicts, so that runs repeat exactly.

Contract: work that a taken mark causes marks anew, for the next turn. Decides nothing.
"""

from __future__ import annotations

from typing import TypeVar

Marked = TypeVar("Marked")


def take(marks: dict[Marked, None]) -> list[Marked]:
    """Take the marked things, in order."""
    taken = list(marks)
    marks.clear()
    return taken
