"""Following a log: its records, and those that any process appends later.

    for record in log.follow(): ...                # in a thread
    async for record in log.follow(): ...          # on an event loop

Idea: one playback goes on at the end of the log as often as that moves. Between, a thread sleeps on the slot of the
log's board, which its writer wakes; for an event loop, a thread of its own does so. Without a writer there is no slot,
and the thread looks now and then.

Contract: iteration begins at the position, and moves it. It ends when the log is closed in this process, or after
`patience` seconds without a record. Must not know: boards, writers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Event

from .errors import Closed
from .futex import Futex
from .record import Record

SLEEP_S = 0.5
"""The longest sleep without looking: a writer that is killed wakes no follower."""

POLL_S = 0.02
"""How often a follower looks that has no slot to sleep on: there is no writer, mostly."""

Runs = Iterator[Iterator[Record] | None]
"""Records, a list at a time, and None at the end of the log, each time it gets there."""


class Following:
    """What `Log.follow` returns: iterate over it with `for` or `async for`."""

    def __init__(
        self, runs: Callable[[], Runs], end: Callable[[], int], slot: Callable[[], Futex | None], patience: float
    ) -> None:
        """Made by `Log.follow`. `end` says how far the log may be read, `slot` what to sleep on; both raise Closed."""
        self._runs = runs
        self._end = end
        self._slot = slot
        self._patience = patience

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self._lists())

    def _lists(self) -> Iterator[Iterator[Record]]:
        runs, until, seen = self._runs(), self._until(), self._seen()
        over = Event()
        while seen is not None:
            while (run := next(runs)) is not None:
                yield run
                until = self._until()
            seen = self._other_end(seen, until, over)

    async def __aiter__(self) -> AsyncIterator[Record]:
        import asyncio  # here: each process of penstock imports this module, and most have no event loop

        run_in, over, sleeper = (
            asyncio.get_running_loop().run_in_executor,
            Event(),
            ThreadPoolExecutor(1, "penstock-follow"),
        )
        try:
            runs, until, seen = self._runs(), self._until(), self._seen()
            while seen is not None:
                while (run := next(runs)) is not None:
                    for record in run:
                        yield record
                    until = self._until()
                    await asyncio.sleep(0)
                seen = await run_in(sleeper, self._other_end, seen, until, over)
        finally:
            over.set()
            self._wake()
            sleeper.shutdown(wait=False)

    def _until(self) -> float:
        return time.monotonic() + self._patience

    def _seen(self) -> int | None:
        """How far the log may be read now; None when it is closed."""
        try:
            return self._end()
        except Closed:
            return None

    def _other_end(self, seen: int, until: float, over: Event) -> int | None:
        """Wait until the log ends elsewhere than at `seen`. None when it does not by then, or is closed, or `over`."""
        while (found := self._seen()) == seen:
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._sleep(min(left, SLEEP_S), lambda: not over.is_set() and self._seen() == seen)
            if over.is_set():
                return None
        return found

    def _sleep(self, seconds: float, still: Callable[[], bool]) -> None:
        try:
            slot = self._slot()
        except Closed:
            return
        if slot is None:
            time.sleep(min(seconds, POLL_S))
        else:
            slot.sleep(seconds, still)

    def _wake(self) -> None:
        """End a sleep in a thread of ours; other followers look again, too."""
        try:
            slot = self._slot()
        except Closed:
            return
        if slot is not None:
            slot.wake_all()
