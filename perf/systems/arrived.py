"""Values that an asyncio client hands to a callback, kept until the measuring side takes them.

Waiting is for a bare future: a coroutine with a timeout around it costs a task or two per record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from . import servers


class Arrived:
    """*Invariant*: `values` are those not taken yet, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.values: list[bytes] = []
        self._loop = loop
        self._some = self._ended()

    def add(self, value: bytes) -> None:
        self.values.append(value)
        if not self._some.done():
            self._some.set_result(None)

    def fail(self, error: Exception) -> None:
        """Raise this in the current or next waiter instead."""
        if self._some.done():
            self._some = self._loop.create_future()
        self._some.set_exception(error)

    def some(self) -> asyncio.Future[None]:
        """Wait for at least one value."""
        if self._some.done() and not self._some.exception() and not self.values:
            self._some = self._loop.create_future()
            patience = self._loop.call_later(servers.PATIENCE_S, self._give_up)
            self._some.add_done_callback(lambda _: patience.cancel())
        return self._some

    def taken(self) -> Sequence[bytes]:
        values, self.values = self.values, []
        return values

    async def at_least(self, count: int) -> Sequence[bytes]:
        values: list[bytes] = []
        while len(values) < count:
            await self.some()
            values += self.taken()
        return values

    def _give_up(self) -> None:
        if not self._some.done():
            self.fail(TimeoutError(f"nothing came for {servers.PATIENCE_S:.0f} s"))

    def _ended(self) -> asyncio.Future[None]:
        future = self._loop.create_future()
        future.set_result(None)
        return future
