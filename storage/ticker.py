"""A thread that repeats one action at an interval.

Contract: `stop` returns when the thread has ended. An error of the action is raised by the owner's next `check`, unless
the action went well again before that: the thread goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ticker:
    """Calls `action` every `interval_s` seconds until stopped."""

    def __init__(self, interval_s: float, action: Callable[[], object]) -> None:
        self._interval_s = interval_s
        self._action = action
        self._error: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-flush", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._action()
            except Exception as error:
                self._error = error
            else:
                self._error = None

    def check(self) -> None:
        """Raise the action's latest error, once. Not in the action, which would never be tried again."""
        if threading.current_thread() is self._thread:
            return
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Stop and wait."""
        self._stopping.set()
        self._thread.join()
