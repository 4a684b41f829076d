"""What a person sees of the demo: a bar per phase while it runs, then what was found.

Idea: the display reads the counters of the roles; the roles do not know it. Without a terminal there is a line for each
phase in place of its bar, and under --json nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn


class Counter(Protocol):
    """A counter of records."""

    records: int


class Display:
    """Bars of phases."""

    def __init__(self, console: Console, *, live: bool, quiet: bool = False) -> None:
        """`live`: with bars. `quiet`: not even sentences."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,.0f}", justify="right"),
            TextColumn("[dim]{task.fields[each]}"),
            console=console,
            auto_refresh=False,
            disable=not live,
        )
        self._quiet = quiet
        self._phases: dict[str, tuple[TaskID, Sequence[Counter]]] = {}

    def say(self, sentence: str) -> None:
        """Print a line above the bars."""
        if not self._quiet:
            self._progress.console.print(sentence, style="dim", markup=False, soft_wrap=True)

    def phase(self, name: str, title: str, total: int, counters: Sequence[Counter]) -> None:
        """Add a bar: the sum of `counters` out of `total`."""
        if self._progress.disable:
            self.say(f"{title}: {total:,}")
        self._phases[name] = (self._progress.add_task(title, total=total, each=""), counters)

    def refresh(self) -> None:
        """Show the counters as they are."""
        for task, counters in self._phases.values():
            each = " + ".join(f"{counter.records:,}" for counter in counters) if len(counters) > 1 else ""
            self._progress.update(task, completed=sum(counter.records for counter in counters), each=each)
        self._progress.refresh()

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.refresh()
        self._progress.stop()
