"""Limits the calls that run at once: slots that are taken and given back.

Contract: for one event loop. Closing wakes all waiters.
"""

from __future__ import annotations

import asyncio


class Slots:
    """Invariant: `free` is what was given, minus the calls that run."""

    def __init__(self, count: int) -> None:
        self.free = count
        self.closed = False
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a place is free, at most so long. False when there is none in time, or there will be none."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.free and not self.closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return not self.closed

    def take(self) -> None:
        """One call more."""
        self.free -= 1

    def give_back(self) -> None:
        """One call less."""
        self.free += 1
        self._changed.set()

    def close(self) -> None:
        """Nothing more is to be started."""
        self.closed = True
        self._changed.set()
