"""Limits the calls that run at once: slots that are taken and released.

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
        """Wait for a free slot, at most so long. Returns False if there is none in time, or ever."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.free and not self.closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return not self.closed

    def take(self) -> None:
        """Take a slot for a call."""
        self.free -= 1

    def give_back(self) -> None:
        """Free the slot of a call."""
        self.free += 1
        self._changed.set()

    def close(self) -> None:
        """Let no more calls start."""
        self.closed = True
        self._changed.set()
