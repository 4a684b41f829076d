"""rich's console on each standard stream: what happens when its reader has left. rich's own would end with exit code 1.

`output.py` imports this on first use, because rich takes long to load.
"""

from __future__ import annotations

import sys

from rich.console import Console

from .standard_streams import drop


class Results(Console):
    """Standard output."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Notes(Console):
    """Standard error."""

    def on_broken_pipe(self) -> None:
        drop(sys.stderr)
