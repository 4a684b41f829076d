"""A process that calls task functions for a runner: the other end of `processes.py`.

Contract: it works on one order at a time, and ends with its runner, even in the middle of a call: by then another
worker gets the task. The child ignores signals sent to the whole process group: the runner drains instead.
"""

from __future__ import annotations

import os
import signal
import threading
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from .callbacks import call_of
from .context import CurrentTask
from .outcome import Failed, Outcome, RefusedCall, reason_of
from .performing import perform
from .wire import ORDERS, Order, Ready, Told, encode

if TYPE_CHECKING:
    from .app import Tasks

ENDS = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a worker; they are often sent to all its processes."""


def main(connection: Connection) -> None:
    """Work until the runner is gone."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)  # blocked while it was started
    child = TaskChild(connection)
    threading.Thread(target=child.listen, daemon=True).start()
    child.work()


class TaskChild:
    """See the module."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._cancelled = False
        self._turn = threading.Lock()  # of threads that say something: a message is written in pieces

    def listen(self) -> None:
        """Take the runner's messages, in a thread of its own; end the process after the last."""
        try:
            while True:
                said = ORDERS.decode(self._connection.recv_bytes())
                if isinstance(said, Order):
                    self._cancelled = False
                    self._orders.put(said)
                else:
                    self._cancelled = True
        except (EOFError, OSError):
            os._exit(0)

    def work(self) -> None:
        """Work off orders, one after the other."""
        self._say(Ready())
        while True:
            order = self._orders.get()
            self._say(self._outcome(order))

    def _outcome(self, order: Order) -> Outcome:
        try:
            function = found(order.module, order.function)
        except Exception as error:
            return Failed(f"process of {order.function}: {reason_of(error)}")
        _point(function.app, order.url)
        try:
            call = call_of(function.arguments, order.headers, order.encoding, order.value)
        except ValueError as error:
            return RefusedCall(str(error))
        current = CurrentTask(
            order.id,
            order.attempt,
            encoding=order.encoding,
            tell=self._tell,
            is_cancelled=lambda: self._cancelled,
            headers=order.headers,
            name=function.name,
        )
        return perform(function.function, function.arguments, call, order.encoding, current, function.app.hooks)

    def _tell(self, value: bytes) -> None:
        self._say(Told(value))

    def _say(self, message: Any) -> None:
        try:
            with self._turn:
                self._connection.send_bytes(encode(message))
        except OSError:
            os._exit(0)  # the runner is gone


def _point(app: Tasks, url: str) -> None:
    """Have an app send to its runner's broker, whatever its module says."""
    if app.url != url:
        app.close()
        app.url = url


def found(module: str, qualified_name: str) -> Any:
    """The task function at a place of a module. Raises ImportError and AttributeError."""
    thing: Any = import_module(module)
    for name in qualified_name.split("."):
        thing = getattr(thing, name)
    return thing
