"""Shares the event loop: whatever has long work does it in portions, and one portion runs in each turn of the loop.

Idea: a portion takes a millisecond or two, so other connections wait for so long at most, however many have long work.
Those that have some go round.

Contract: `take` says whether the present turn is free for a portion, and uses it up if so. Otherwise `wait` calls back
in a later turn, which is taken already, and `turn` waits for one. Callbacks come in the order of asking.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """See the module.

    Invariant: while the present turn is taken, `_next` is scheduled for the one behind it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._taken = False

    def take(self) -> bool:
        """Use up the present turn. Returns whether it was free."""
        if self._taken:
            return False
        self._taken = True
        asyncio.get_running_loop().call_soon(self._next)
        return True

    def wait(self, begin: Callable[[], None]) -> None:
        """Call `begin` in a turn of its own; for one that `take` did not give a turn."""
        self._waiting.append(begin)

    async def turn(self) -> None:
        """Wait for a turn."""
        if self.take():
            return
        come = asyncio.get_running_loop().create_future()
        self.wait(lambda: None if come.done() else come.set_result(None))
        await come

    def _next(self) -> None:
        if not self._waiting:
            self._taken = False
            return
        try:
            self._waiting.popleft()()  # what this wakes runs before `_next` does
        finally:
            asyncio.get_running_loop().call_soon(self._next)
