"""Bars for work on bytes, where a person looks on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .output import Output


@contextmanager
def progress(output: Output) -> Iterator[Any]:
    """A function from a title to a callback that takes the bytes done and in all; None where none would see it."""
    if not output.shows_progress:
        yield lambda name: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=output.notes, transient=True) as bars:

        def watch(name: str) -> Any:
            task = bars.add_task(name)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield watch
