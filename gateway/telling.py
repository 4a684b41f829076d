"""What is refused, in the gateway's log: at once if a line is allowed, else in the next, a second later.

Contract: as of Refusals; on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..broker.refusals import PERIOD_S, Refusals


class ToldRefusals(Refusals):
    """See the module."""

    def __init__(self, what: str, tell: Callable[[str], None]) -> None:
        super().__init__(what, tell)
        self._showing: asyncio.TimerHandle | None = None

    def note(self, sentence: str) -> None:
        """Another one was refused."""
        super().note(sentence)
        self.show(time.monotonic())
        if self.untold and self._showing is None:
            self._showing = asyncio.get_running_loop().call_later(PERIOD_S, self._show)

    def _show(self) -> None:
        self._showing = None
        self.show(time.monotonic())
