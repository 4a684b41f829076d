"""The context of a running task function: `penstock.current_task()`.

Idea: a context variable, set around each call, so that programs need not pass it through their own layers.
Contract: a function that is called directly sees a task of its own: first attempt, never cancelled, progress is
dropped. Its methods never wait. Must not know how a function is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...storage.record import NO_HEADERS
from ...transport.queue_messages import PROGRESS_BYTES_MAX
from ..encoding import Encoding, encode
from ..errors import InvalidArgument


class CurrentTask:
    """The task this code works on: its `id` ("" if the function was called directly), `attempt` from 1, `name` of the
    function in its queue, and `headers` of the record.
    """

    def __init__(
        self,
        id: str = "",
        attempt: int = 1,
        *,
        encoding: Encoding = "json",
        tell: Callable[[bytes], None] = lambda value: None,
        is_cancelled: Callable[[], bool] = lambda: False,
        headers: Mapping[str, bytes] = NO_HEADERS,
        name: str = "",
    ) -> None:
        """Made by the code that runs the function; `tell` and `is_cancelled` may be called from any thread."""
        self.headers = headers
        self.id = id
        self.attempt = attempt
        self.name = name
        self._encoding: Encoding = encoding
        self._tell = tell
        self._is_cancelled = is_cancelled

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled; the worker learns of that with its next heartbeat.

        If the function still returns, the task is completed; if it raises, it is cancelled and not retried.
        """
        return self._is_cancelled()

    def progress(self, value: Any) -> None:
        """Report `value` as progress, for `Job.status` to show. Raises InvalidArgument if it cannot be encoded."""
        try:
            packed = encode(self._encoding, value)
        except ValueError as error:
            raise InvalidArgument(f"progress {value!r} cannot be sent: {error}") from None
        if len(packed) > PROGRESS_BYTES_MAX:
            raise InvalidArgument(f"{len(packed)} bytes are too many for progress, over {PROGRESS_BYTES_MAX}")
        self._tell(packed)


_current: ContextVar[CurrentTask] = ContextVar("penstock_task")


def current_task() -> CurrentTask:
    """The task this code works on; a task of its own if the function was called directly."""
    return _current.get(None) or CurrentTask()


@contextmanager
def working_on(task: CurrentTask) -> Iterator[None]:
    """Make `task` the `current_task` in the block."""
    token = _current.set(task)
    try:
        yield
    finally:
        _current.reset(token)
