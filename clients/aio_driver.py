"""The asyncio shell: drives steps as tasks on one event loop.

Idea: the loop watches the channel's one descriptor; whatever arrives is taken in one turn, and every task that
waits looks again. One timer does what is due while nobody calls: signs of life, commits, tries again.

Contract: everything happens on the loop that connected; nothing blocks it but the disk of `file://`.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar

from ..storage.errors import Closed
from .connection import LOOK_PERIOD_S
from .steps import FOREVER, Pause, Steps

if TYPE_CHECKING:
    from .connection import Connection

T = TypeVar("T")

WAIT_MAX_S = LOOK_PERIOD_S
"""As in driver.py: the longest that is slept without looking."""


class AsyncDriver:
    """See the module. Made inside a running loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.closed = False
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._nudged = False
        self._loop.add_reader(connection.channel.fileno(), self._turn)

    async def run(self, steps: Steps[T]) -> T:
        """Drive steps to their end. Raises what they raise."""
        try:
            self.check_open()
            while True:
                pause = next(steps)
                if self.connection.turn():
                    self._tell()
                else:
                    await self._wait(pause)
        except StopIteration as done:
            return done.value
        finally:
            steps.close()
            self.nudge()

    def nudge(self) -> None:
        """Something was sent outside a turn: look for what came of it once the caller lets the loop go on."""
        if not self._nudged and not self.closed:
            self._nudged = True
            self._loop.call_soon(self._turn)

    @property
    def ended(self) -> bool:
        """Closed, or not ours: a forked child has the object, and none of what it stands for."""
        return self.closed or os.getpid() != self._pid

    def check_open(self) -> None:
        """Raise Closed after `close`."""
        if self.ended:
            raise Closed(f"the client of {self.connection.url} was closed; connect again")

    async def _wait(self, pause: Pause) -> None:
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        seconds = min(pause.until, self.connection.due()) - self.connection.clock()
        timer = self._loop.call_later(min(max(seconds, 0.0), WAIT_MAX_S), _wake, waiter)
        try:
            if pause.sleeper is None:
                await waiter
            else:
                await self._sleep_beside(waiter, pause, seconds)
        finally:
            timer.cancel()
            self._waiters.discard(waiter)
        self.check_open()
        if seconds >= WAIT_MAX_S:
            self.connection.channel.look_again()

    async def _sleep_beside(self, waiter: asyncio.Future[None], pause: Pause, seconds: float) -> None:
        """Wait for the channel on the loop and for a semaphore in a thread, whichever comes first."""
        assert pause.sleeper is not None, "there is something to sleep on"
        limit = min(max(seconds, 0.0), WAIT_MAX_S)
        sleeping = self._loop.run_in_executor(None, pause.sleeper.sleep, limit)
        try:
            await asyncio.wait([waiter, sleeping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not sleeping.done():
                pause.sleeper.wake()
                await asyncio.wait([sleeping])

    def _turn(self) -> None:
        self._nudged = False
        if self.closed:
            return
        arrived = False
        while self.connection.turn():
            arrived = True
        if arrived:
            self._tell()
        self._run_callbacks()
        self._arm()

    def _tell(self) -> None:
        for waiter in self._waiters:
            _wake(waiter)
        self._run_callbacks()

    def _run_callbacks(self) -> None:
        ready, self.connection.finished = self.connection.finished, []
        for callback in ready:
            self._loop.call_soon(callback)

    def _arm(self) -> None:
        """Have the loop turn when something is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.connection.due()
        if due != FOREVER:
            self._timer = self._loop.call_later(max(due - self.connection.clock(), 0.0), self._turn)

    def close(self) -> None:
        """Stop, and end all waits. Repeating it does nothing, nor does a forked child's."""
        if self.ended:
            return
        self.closed = True
        self._loop.remove_reader(self.connection.channel.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            _wake(waiter)
        self.connection.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
