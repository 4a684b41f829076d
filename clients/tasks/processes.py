"""Processes that call task functions: the pool of `process=True`.

Idea: each running call has a child of its own, kept for the next call. It is spawned, never forked, since a runner has
threads; it gets the task's bytes over a pipe and decodes them itself.

Contract: the death of a child fails only the task it worked on. A call that takes too long is stopped by killing its
child. The time counts from when the child is ready. `run` blocks its thread.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
import time
from typing import Protocol

from ...storage.errors import Closed
from .child import ENDS, main
from .outcome import Failed, Outcome
from .retry import names_of
from .wire import EVENTS, Cancelled, Event, Order, Ready, Told, encode

LOOK_S = 0.25
"""How often it is looked whether a task was cancelled."""

START_S = 60.0
"""How long a child may take to start."""

END_S = 1.0
"""The pipe of a process that dies ends a moment before the process does."""


class Watched(Protocol):
    """The task, as a child sees it."""

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        ...

    def tell(self, value: bytes, /) -> None:
        """Report progress."""
        ...


class _Child:
    """A child process and our end of its pipe."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.ready = False
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=main, args=(theirs,), name="penstock-task", daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # the child inherits it, until it ignores them
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def wait_ready(self) -> None:
        """Wait until it has started. Raises EOFError, and TimeoutError."""
        self.ready = self.hear(START_S) is not None
        if not self.ready:
            raise TimeoutError(f"its process did not start within {START_S:g} s")

    def say(self, message: Order | Cancelled) -> None:
        """Send it a message. Raises EOFError once it has ended."""
        try:
            self.connection.send_bytes(encode(message))
        except OSError as error:
            raise EOFError from error

    def hear(self, timeout_s: float) -> Event | None:
        """Its next message; None if there is none in time. Raises EOFError once it has ended."""
        try:
            return EVENTS.decode(self.connection.recv_bytes()) if self.connection.poll(timeout_s) else None
        except OSError as error:
            raise EOFError from error

    def end(self) -> str:
        """Kill it, if it still runs. Returns how it ended."""
        self.process.join(END_S)
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class Processes:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._closed = False

    def run(self, order: Order, task: Watched, timeout_s: float | None) -> Outcome:
        """Have a child call a function, and wait for the outcome. Raises Closed."""
        child = self._take()
        try:
            outcome = _served(child, order, task, timeout_s)
        except EOFError:
            return Failed(f"the process that ran it died: {self._lose(child)}")
        except TimeoutError as error:
            child.process.kill()
            self._lose(child)
            return Failed(str(error), kinds=names_of(error))
        self._put_back(child)
        return outcome

    @property
    def busy(self) -> int:
        """How many children are working."""
        return len(self._busy)

    def close(self) -> None:
        """Kill all children; their calls fail."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for child in (*idle, *busy):
            child.process.kill()
        for child in idle:
            child.end()

    def _take(self) -> _Child:
        with self._lock:
            self._check_open()
            child = self._idle.pop() if self._idle else None
        child = child or _Child()
        with self._lock:
            if not self._closed:
                self._busy.add(child)
                return child
        child.process.kill()
        child.end()
        raise _closed()

    def _put_back(self, child: _Child) -> None:
        with self._lock:
            self._busy.discard(child)
            if not self._closed:
                self._idle.append(child)
                return
        child.end()

    def _lose(self, child: _Child) -> str:
        """Remove a child that ended or hangs. Returns how it ended."""
        with self._lock:
            self._busy.discard(child)
        return child.end()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> Closed:
    return Closed("the worker ends: it calls no more functions")


def _served(child: _Child, order: Order, task: Watched, timeout_s: float | None) -> Outcome:
    """The outcome of an order. Raises EOFError when the child died, TimeoutError when it took too long."""
    if not child.ready:
        child.wait_ready()
    child.say(order)
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    cancelled = False
    while (left := deadline - time.monotonic()) > 0:
        said = child.hear(min(left, LOOK_S))
        if isinstance(said, Told):
            task.tell(said.value)
        elif said is not None and not isinstance(said, Ready):
            return said
        if task.cancelled and not cancelled:
            cancelled = True
            child.say(Cancelled())
    raise TimeoutError(f"it took longer than {timeout_s:g} s: its process was killed")
