"""A few threads that run calls: the pool of `def`.

Idea: as concurrent.futures, but without holding up the end of the process: a function that never returns cannot be
stopped, and a worker must be able to end.
Contract: at most `most` calls run at once; others wait in line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from .outcome import Outcome

Call = Callable[[], Outcome]


class Threads:
    """See the module."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: SimpleQueue[tuple[Future[Outcome], Call] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, call: Call) -> Future[Outcome]:
        """Run a call in a thread."""
        future: Future[Outcome] = Future()
        if len(self._threads) < self._most:
            name = f"penstock-task-{len(self._threads) + 1}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()
        self._queue.put((future, call))
        return future

    def close(self) -> None:
        """Take no more calls; each thread ends after its present one."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call, job  # what a call held on to is not kept until the next one
