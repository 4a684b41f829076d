"""The asyncio shell: drives steps as tasks on one event loop.

Idea: the loop watches the channel's one descriptor and takes whatever arrives in one turn. An outcome wakes the tasks
that wait for it; all others look again. The loop calls the callbacks of outcomes soon, and at the latest the end of any
call does, so that what `flush` waited for was told when it returns. One timer does what is due between calls:
heartbeats, commits, retries. It keeps running while nothing earlier is due, so that a send that is answered costs no
timer.

Contract: everything happens on the loop that connected; only the disk of `file://` blocks it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from ...storage import forks
from ...storage.errors import Closed
from ..connection.connection import LOOK_PERIOD_S
from ..connection.steps import FOREVER, Pause, Steps

if TYPE_CHECKING:
    from ..connection.connection import Connection

T = TypeVar("T")

WAIT_MAX_S = LOOK_PERIOD_S
"""As in driver.py: the longest that is slept without looking."""

SLEEPERS_MAX = 1024
"""Mapped readers that sleep at once, a thread each; far above the slots of a board, so that none waits for a thread."""


class AsyncDriver:
    """See the module. Made inside a running loop."""

    may_map = False
    """The loop must not sleep or wait for the disk, so nothing is mapped unless that is asked for."""

    may_append = False
    """Nor are files written on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.closed = False
        self.lock = nullcontext()  # the loop runs one task at a time
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()  # for anything that arrives
        self._expected: dict[object, list[asyncio.Future[None]]] = {}  # for one outcome
        self._told = connection.turns  # waiters were woken after these turns
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = FOREVER  # on the clock of the connection
        self.nudged = False  # the loop turns soon
        self._uncalled: deque[Callable[[], None]] = deque()  # callbacks that the loop calls soon
        self._sleepers: ThreadPoolExecutor | None = None
        self._loop.add_reader(connection.channel.fileno(), self._turn)
        self._reads = True
        forks.tell(self)

    async def run(self, steps: Steps[T]) -> T:
        """Drive steps to their end. Raises what they raise."""
        try:
            self.check_open()
            while True:
                await self._pause(next(steps))
        except StopIteration as done:
            return done.value
        finally:
            steps.close()
            if not self.closed:
                self._tell_others()
                self._run_callbacks()
                self._arm()
            if self._uncalled:
                self._call_back()

    async def run_aside(self, call: Callable[[Future[None]], T]) -> T:
        """Run what takes long in a thread, which may use `run_from_thread`. It is told by its argument if cancelled."""
        self.check_open()
        given_up: Future[None] = Future()
        try:
            return await self._loop.run_in_executor(None, call, given_up)
        except asyncio.CancelledError:
            given_up.set_result(None)
            raise

    def run_from_thread(self, steps: Steps[T]) -> T:
        """As `run`, for a thread beside the loop, which waits."""
        return asyncio.run_coroutine_threadsafe(self.run(steps), self._loop).result()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the loop call what does not wait, from any thread."""
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(call)

    def do(self, call: Callable[[], T]) -> T:
        """Run what does not wait: on a loop nothing else is in the middle of anything."""
        return call()

    def glance(self) -> None:
        """Answers are taken between two calls, by the loop."""

    def told(self) -> None:
        """Outcomes are known by turns, which tell of them."""

    def nudge(self) -> None:
        """Something was sent outside a turn: look for what came of it once the caller lets the loop go on."""
        if not self.nudged and not self.closed:
            self.nudged = True
            self._loop.call_soon(self._turn)

    def check_open(self) -> None:
        """Raise Closed after `close`, and in a forked child."""
        self.connection.check_ours()
        if self.closed:
            raise Closed(f"the client of {self.connection.url} was closed; connect again")

    def _forked(self) -> None:
        """See Driver."""
        self.closed = self.connection.forked = True

    async def _pause(self, pause: Pause) -> None:
        """Let the loop go on until something arrives or is due."""
        connection = self.connection
        self._tell_others()
        now = connection.clock()
        seconds = min(pause.until, connection.due()) - now
        if seconds > 0.0:
            await self._wait(pause, now, seconds)
        elif not self._arrived():
            await asyncio.sleep(0)
        self.check_open()

    async def _wait(self, pause: Pause, now: float, seconds: float) -> None:
        """Wait for a wake-up, or `seconds`; above WAIT_MAX_S that is the timer's business."""
        waiter = self._loop.create_future()
        if pause.outcome is None:
            self._waiters.add(waiter)
        else:
            self._expected.setdefault(pause.outcome, []).append(waiter)
        alarm = self._loop.call_later(seconds, _wake, waiter) if seconds < WAIT_MAX_S else None
        if self._timer_at > now + WAIT_MAX_S:
            self._arm()
        try:
            if pause.sleeper is None:
                await waiter
            else:
                await self._sleep_beside(waiter, pause, seconds)
        finally:
            if alarm is not None:
                alarm.cancel()
            self._waiters.discard(waiter)
            if not waiter.done():
                self._expect_no_more(pause.outcome, waiter)

    def _expect_no_more(self, outcome: object, waiter: asyncio.Future[None]) -> None:
        left = [each for each in self._expected.get(outcome, ()) if each is not waiter]
        if left:
            self._expected[outcome] = left
        else:
            self._expected.pop(outcome, None)

    async def _sleep_beside(self, waiter: asyncio.Future[None], pause: Pause, seconds: float) -> None:
        """Wait for the channel on the loop and for a sleeper in a thread, whichever comes first."""
        assert pause.sleeper is not None, "there is something to sleep on"
        limit = min(max(seconds, 0.0), WAIT_MAX_S)
        sleeping = self._loop.run_in_executor(self._threads(), pause.sleeper.sleep, limit)
        try:
            await asyncio.wait([waiter, sleeping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not sleeping.done():
                pause.sleeper.wake()
                await asyncio.wait([sleeping])

    def _threads(self) -> ThreadPoolExecutor:
        """Threads for sleepers: the loop's own pool is small, and belongs to the application."""
        if self._sleepers is None:
            self._sleepers = ThreadPoolExecutor(SLEEPERS_MAX, "penstock-sleeper")
        return self._sleepers

    def _turn(self) -> None:
        self.nudged = False
        if self.closed:
            return
        self._arrived()
        self._run_callbacks()
        if not self._waiters:  # a waiter that was woken arms the timer when it waits again, or ends
            self._arm()

    def _arrived(self) -> bool:
        """Turn; whether anything arrived, of which those that wait are told."""
        arrived = self.connection.turn()
        if arrived or self.connection.ended:
            self._tell()
        self._told = self.connection.turns
        return arrived

    def _tell_others(self) -> None:
        """Steps have turned by themselves, or ended something: those that wait look again."""
        if self.connection.ended or self.connection.turns != self._told:
            self._tell()

    def _tell(self) -> None:
        self._told = self.connection.turns
        for waiter in self._waiters:
            _wake(waiter)
        self._tell_ended()
        self._run_callbacks()

    def _tell_ended(self) -> None:
        """Wake the waiters of ended outcomes; all waiters if the broker refused the client."""
        ended, self.connection.ended = self.connection.ended, []
        if self.connection.refused is not None:
            self._tell_all()
        for outcome in ended:
            for waiter in self._expected.pop(outcome, ()):
                _wake(waiter)

    def _tell_all(self) -> None:
        expected, self._expected = self._expected, {}
        for waiter in chain(self._waiters, *expected.values()):
            _wake(waiter)

    def _run_callbacks(self) -> None:
        if self.connection.finished:
            ready, self.connection.finished = self.connection.finished, []
            self._uncalled += ready
            self._loop.call_soon(self._call_back)

    def called(self, deadline: float) -> Steps[None]:
        """See Driver. The loop has one thread, and `run` calls what is ready before it returns."""
        yield from ()

    def _call_back(self) -> None:
        """Call what waits for it. Exceptions are reported, not raised in the call that this ends."""
        while self._uncalled:
            callback = self._uncalled.popleft()
            try:
                callback()
            except (Exception, asyncio.CancelledError) as error:
                self._loop.call_exception_handler({"message": f"the callback {callback!r} raised", "exception": error})
            except BaseException:  # Ctrl-C: it knows what of it is left
                self._uncalled.appendleft(callback)
                self._loop.call_soon(self._call_back)
                raise

    def _arm(self) -> None:
        """Have the loop turn when something is due, and every WAIT_MAX_S while anything is waited for."""
        now, due = self.connection.clock(), self.connection.due()
        if self._waiters or self._expected or self.connection.expecting:
            due = min(due, now + WAIT_MAX_S)
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_later(max(due - now, 0.0), self._tick)

    def _tick(self) -> None:
        """The time has come: turn, and have all waiters check their deadlines."""
        self._timer, self._timer_at = None, FOREVER
        if not self.closed:
            self.connection.channel.look_again()
            self._turn()
            self._tell_all()

    def close(self) -> None:
        """Stop, and end all waits. In a forked child it does nothing.

        Repeating it finishes what an interrupted close has begun.
        """
        if self.connection.forked:
            return
        self.closed = True
        if not self._loop.is_closed():  # nothing reads or waits on one that is
            if self._reads:
                self._loop.remove_reader(self.connection.channel.fileno())
                self._reads = False  # the descriptor may be another file's after this
            if self._timer is not None:
                self._timer.cancel()
            self._tell_all()
        if self._sleepers is not None:
            self._sleepers.shutdown(wait=False)
        self.connection.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
