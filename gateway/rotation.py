"""Lets one caller in at a time, and shares the turns among the sources that they come from.

Idea: those that wait stand in a line for each source, and the lines take turns. So a source with many callers delays
another one by a single turn, however many they are. Within a line those come first that have been wrong least often.

Contract: `enter` waits for a turn, and `leave` ends it. A caller that is cancelled while it waits leaves its line, and
delays no other. Memory: an entry for each caller that waits. Use from one event loop.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count

Place = tuple[int, int, "asyncio.Future[None]"]
"""In a line: how often the caller was wrong, its number, and what says that its turn has come."""


class Rotation:
    """See the module.

    Invariant: `_lines` are heaps, none of them empty, and the first one is the next to have a turn.
    """

    def __init__(self) -> None:
        self._busy = False
        self._lines: dict[str, list[Place]] = {}
        self._numbers = count()

    async def enter(self, source: str, wrong: int = 0) -> None:
        """Wait for a turn of a source, as a caller that was wrong so often."""
        if not self._busy:
            self._busy = True
            return
        place = wrong, next(self._numbers), asyncio.get_running_loop().create_future()
        heappush(self._lines.setdefault(source, []), place)
        try:
            await place[2]
        except asyncio.CancelledError:
            if place[2].cancelled():
                self._forget(source, place)
            else:
                self.leave()  # it was let in meanwhile
            raise

    def leave(self) -> None:
        """End a turn."""
        while self._lines:
            source = next(iter(self._lines))
            line = self._lines.pop(source)
            _, _, come = heappop(line)
            if line:
                self._lines[source] = line  # behind the others
            if not come.done():
                come.set_result(None)
                return
        self._busy = False

    def _forget(self, source: str, place: Place) -> None:
        line = self._lines.get(source, [])
        if place in line:
            line.remove(place)
            heapify(line)
            if not line:
                del self._lines[source]
