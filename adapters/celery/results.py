"""The result backend: states and results of tasks, groups and chords, as values by key in two topics.

    Celery(result_backend="penstock+unix:///run/penstock/broker.sock")       # or penstock+tcp://host:port

Idea: results and groups stand in topics of their own (table.py), so that a worker that counts a chord reads few
records. The log gives the parts of a chord one order: a part counts once however often its task ran, and the part that
completes the chord is the same for all workers.

Contract: a result is committed before the worker acks its task. A SUCCESS is not replaced by later states. A forked
child connects anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import Lock, local
from time import monotonic
from typing import Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as CeleryTimeoutError

from ...clients import connect
from ...storage.errors import Error
from .table import ValuesByKey

RESULTS, GROUPS = "celery-results", "celery-groups"

TIMEOUT_S = 10.0
"""How long a request waits for the broker by default; Celery repeats it with `result_backend_always_retry`."""


class ResultTables:
    """What one process has open."""

    def __init__(self, url: str, options: dict[str, Any], expires_s: float | None) -> None:
        self.process = os.getpid()
        timeout = float(options.get("timeout", TIMEOUT_S))
        self.client = connect(url, timeout=timeout, name="celery-results", key=options.get("key"))
        self.results = ValuesByKey(self.client, RESULTS, expires_s)
        self.groups = ValuesByKey(self.client, GROUPS, expires_s)


class PenstockBackend(KeyValueStoreBackend):
    """See the module."""

    supports_autoexpire = True
    supports_native_join = True
    implements_incr = True
    persistent = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app, url=url, expires_type=int, **kwargs)
        self.url = url or ""
        self._lock = Lock()
        self._tables: ResultTables | None = None
        self._part = local()

    # -- values by key ------------------------------------------------------------------------------------

    def get(self, key: Any) -> bytes | None:
        """The value of a key, or None."""
        return self._newest(self._table(key).values(_bytes(key)))

    def mget(self, keys: Iterable[Any]) -> list[bytes | None]:
        """The values of keys of tasks."""
        found = self._open().results.values_of([_bytes(key) for key in keys])
        return [self._newest(values) for values in found]

    def set(self, key: Any, value: str | bytes) -> None:
        """Store a value; it is committed when this returns."""
        self._table(key).put(_bytes(key), _bytes(value))

    def delete(self, key: Any) -> None:
        """Remove a value."""
        self._table(key).put(_bytes(key), None)

    def _newest(self, values: list[bytes | None]) -> bytes | None:
        """The value that counts: the first SUCCESS since the latest deletion, else the newest."""
        if not values or values[-1] is None:
            return None
        since = [value for value in values[_after_deletion(values) :] if value is not None]
        if len(since) > 1:
            for value in since:
                if self._is_success(value):
                    return value
        return since[-1]

    def _is_success(self, value: bytes) -> bool:
        meta = self.decode(value)  # of a task, or of a group, which has no state
        return isinstance(meta, dict) and meta.get("status") == states.SUCCESS

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> Any:
        """Store a state. Readers know that a SUCCESS stays, so nothing is read here."""
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        meta["task_id"] = task_id
        self._set_with_state(self.get_key_for_task(task_id), self.encode(meta), state)
        return result

    def on_task_call(self, producer: Any, task_id: str) -> dict[str, Any]:
        """Note where the results of a task that is being sent can begin."""
        self._open().results.begin(self.get_key_for_task(task_id))
        return {}

    # -- waiting ------------------------------------------------------------------------------------------

    def wait_for(
        self, task_id: str, timeout: float | None = None, interval: float = 0.5, no_ack: bool = True,
        on_interval: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The state of a task once it is ready. Raises celery.exceptions.TimeoutError."""
        self._ensure_not_eager()
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            meta = self.get_task_meta(task_id)
            if meta["status"] in states.READY_STATES:
                return meta
            self._pause(deadline, interval, on_interval)

    def get_many(
        self, task_ids: Iterable[str], timeout: float | None = None, interval: float | None = 0.5,
        no_ack: bool = True, on_message: Any = None, on_interval: Any = None, max_iterations: int | None = None,
        READY_STATES: Any = states.READY_STATES,
    ) -> Any:  # fmt: skip
        """Iterate over (id, state) of tasks as they become ready. Raises celery.exceptions.TimeoutError."""
        left = {str(each) for each in task_ids}
        deadline = None if timeout is None else monotonic() + timeout
        looks = 0
        while left:
            for task_id, meta in self._ready(left, READY_STATES):
                left.discard(task_id)
                if on_message is not None:
                    on_message(meta)
                yield task_id, meta
            looks += 1
            if left and (not max_iterations or looks < max_iterations):
                self._pause(deadline, interval or 0.5, on_interval)
            elif left:
                return

    def _ready(self, task_ids: set[str], ready: Any) -> list[tuple[str, Any]]:
        ids = list(task_ids)
        values = self.mget([self.get_key_for_task(each) for each in ids])
        found: dict[str, Any] = self._mget_to_results(values, ids, ready)
        self._cache.update(found)
        return list(found.items())

    def _pause(self, deadline: float | None, interval: float, on_interval: Any) -> None:
        """Wait for the next result of any task, at most an interval."""
        left = None if deadline is None else deadline - monotonic()
        if left is not None and left <= 0:
            raise CeleryTimeoutError("The operation timed out.")
        if on_interval:
            on_interval()
        self._open().results.wait(interval if left is None else min(interval, left))

    # -- chords -------------------------------------------------------------------------------------------

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Store how many parts a chord has: chains of its header that end in groups bring several."""
        self._open().groups.put(_size_key(group_id), str(chord_size).encode())

    def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> None:
        """Count a part; the one that completes its chord restores the group of all parts, and sends the callback."""
        if not request.group:
            return
        number, sizes = self._counted(request)
        if not number:
            return  # the callback was sent: this part ran once more
        if sizes:
            request.chord["chord_size"] = int(sizes[-1] or 0)
        size = request.chord.get("chord_size")
        if size is not None and number < size:
            return
        self._part.number = number
        try:
            super().on_chord_part_return(request, state, result, **kwargs)
        finally:
            self._part.number = None

    def _counted(self, request: Any) -> tuple[int, list[bytes | None]]:
        """Count a part: how many different ones there were up to it, 0 when the chord is over; and the chord's size.

        One that counted before counts all: its worker died before it sent the callback, or another part will send it.
        """
        groups, key = self._open().groups, _bytes(self.get_key_for_chord(request.group))
        name = f"{request.id}:{getattr(request, 'group_index', None)}".encode()
        groups.put(key, name)
        parts, sizes = groups.values_of([key, _size_key(request.group)])
        if None in parts:
            return 0, sizes
        first = list(dict.fromkeys(parts))
        return len(first) if parts.count(name) > 1 else first.index(name) + 1, sizes

    def incr(self, key: Any) -> int:
        """The number of the part that this thread is at, which was counted already."""
        return self._part.number

    def _delete_group(self, group_id: str) -> None:
        """Delete a group, but not that of a chord which is just called back: a part that runs twice looks for it."""
        if getattr(self._part, "number", None) is None:
            super()._delete_group(group_id)

    # -- the connection -----------------------------------------------------------------------------------

    def exception_safe_to_retry(self, exc: Exception) -> Any:
        """Whether repeating a request may help."""
        return isinstance(exc, Error) and exc.retry

    def as_uri(self, include_password: bool = False) -> str:
        """The URL of this backend."""
        return f"penstock+{self.url}"

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    def _table(self, key: Any) -> ValuesByKey:
        tables = self._open()
        return tables.results if _bytes(key).startswith(_bytes(self.task_keyprefix)) else tables.groups

    def _open(self) -> ResultTables:
        with self._lock:
            if self._tables is None or self._tables.process != os.getpid():
                options = dict(self.app.conf.result_backend_transport_options or {})
                self._tables = ResultTables(self.url, options, self.expires)
            return self._tables


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _size_key(group_id: str) -> bytes:
    return f"chord-size-{group_id}".encode()


def _after_deletion(values: list[bytes | None]) -> int:
    return len(values) - values[::-1].index(None) if None in values else 0
