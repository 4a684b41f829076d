"""How threads send one record without waiting for its commit.

Contract: costs little more than appending to a list, for a million records a second. Another thread may begin or end a
transaction meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ...storage.errors import Error
from ...storage.header_list import GivenHeaders
from ..arguments.quantities import Duration
from ..connection.driver import Driver
from ..serializing import Dumping, Sent
from .core import ProducerCore
from .pending import Future, Posted, not_callable
from .transaction_switch import TransactionSwitch


class Sending(TransactionSwitch[Sent]):
    """The part of `Producer` that asyncio does differently."""

    def __init__(self, driver: Driver, core: ProducerCore, dump: Dumping | None) -> None:
        """Made by `Client.producer`."""
        super().__init__(core, dump)
        self._driver = driver
        self._lock = driver.lock

    def send_nowait(
        self,
        value: Sent | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
    ) -> Future:
        """Send one record without waiting for its commit.

        Args:
            value, key, headers, timestamp, partition, delay, at, priority, dedup: as in `Producer.send`.

        Blocks while the window is full, and raises TimedOut after the client's timeout; the record was then
        not taken. Errors of its commit are raised by the future, or by `flush` if the future was not asked.
        """
        given: Any = value if self._dump is None else self._dump(value)
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            self._driver.run(self._unjam(core))
        lock = self._lock
        try:  # not `with`, which takes a tenth of the whole call; Ctrl-C may come with the return of `acquire`
            lock.acquire()
            core = self._sending  # a transaction may have begun or ended meanwhile
            if core.closed:
                core.check_open()
            future = core.append(given, key, headers, timestamp, partition, task)
            lock.release()
        except BaseException as error:
            self._let_go(error)
            raise
        if core.connection.finished:
            self._driver.call_back()
        if self._driver.pump_idle:
            self._driver.need_pump()
        return future

    def post(
        self,
        value: Sent | None,
        *,
        on_done: Callable[[Posted | Error], object],
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
    ) -> None:
        """Send one record without ever waiting, and have a function called with its outcome.

        Args:
            value, key, headers, timestamp, partition, delay, at, priority, dedup: as in `Producer.send`.
            on_done: called once for each record that was taken, with `penstock.Posted` or the error. It runs in
                whichever thread learns of the outcome (one in a verb of this client, or the client's own), in the order
                of the records of a batch, without a lock: it may call anything of the client but should be short.
                What it raises goes to threading.excepthook. `close` waits for outcomes; a forked child calls none.

        Raises: WindowFull when the window has no room: the record was not taken; wait with `room`. What is wrong with
        a record is raised here, and `on_done` is not called then.
        """
        given: Any = value if self._dump is None else self._dump(value)
        core, lock = self._sending, self._lock
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if not callable(on_done):
            raise not_callable("on_done", on_done)
        try:  # as in `send_nowait`
            lock.acquire()
            core = self._sending
            if core.closed or core.jammed is not None:
                core.check_room()
            core.append(given, key, headers, timestamp, partition, task, on_done)
            lock.release()
        except BaseException as error:
            self._let_go(error)
            raise
        if core.connection.finished:
            self._driver.call_back()
        if self._driver.pump_idle:
            self._driver.need_pump()

    def _let_go(self, error: BaseException) -> None:
        """Give the lock back after an error in the middle of a send."""
        try:  # noqa: SIM105 - `suppress` is a call, and with its return may come the next Ctrl-C
            self._lock.release()
        except RuntimeError:  # interrupted before it was taken, or after it was given back
            pass
        if not isinstance(error, Exception):
            self._driver.need_pump()
