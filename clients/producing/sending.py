"""How threads send one record without waiting.

Contract: costs little more than appending to a list, for a million records a second. Another thread may begin or end a
transaction meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ..arguments.quantities import Duration
from ..connection.driver import Driver
from .core import ProducerCore
from .pending import Future
from .transaction_switch import TransactionSwitch


class Sending(TransactionSwitch):
    """The part of `Producer` that asyncio does differently."""

    def __init__(self, driver: Driver, core: ProducerCore) -> None:
        """Made by `Client.producer`."""
        super().__init__(core)
        self._driver = driver
        self._lock = driver.lock

    def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
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
            future = core.append(value, key, headers, timestamp, partition, task)
            lock.release()
        except BaseException as error:
            try:  # noqa: SIM105 - `suppress` is a call, and with its return may come the next Ctrl-C
                lock.release()
            except RuntimeError:  # interrupted before it was taken, or after it was given back
                pass
            if not isinstance(error, Exception):
                self._driver.need_pump()
            raise
        if core.connection.finished:
            self._driver.call_back()
        if self._driver.pump_idle:
            self._driver.need_pump()
        return future
