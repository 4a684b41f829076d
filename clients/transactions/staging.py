"""Staging and transactions for threads: `client.staging()`, `client.transaction()`.

    with client.transaction() as transaction:                  # commits when the block is left, drops on an exception
        transaction.producer("orders").send(b"...")
        transaction.producer("payments").send_many([...])

Contract: as client.py, of which these are a part: any number of threads may share one.
"""

from __future__ import annotations

from typing import Self

from ...transport.messages import Stage
from .. import producer
from ..arguments.checking import checks
from ..arguments.quantities import Duration, Size, seconds, size_bytes
from ..connection.driver import Driver
from ..producer import Producer
from .staging_core import StagingCore, TransactionCore


@checks
class Staging:
    """Records that nobody reads until somebody commits their stages, here or in another process.

    Leaving its `with` block flushes; an exception drops what was staged.
    """

    def __init__(self, driver: Driver, core: StagingCore) -> None:
        """Made by `Client.staging`."""
        self._driver = driver
        self._core = core

    @property
    def closed(self) -> bool:
        """Whether nothing more can be staged."""
        return bool(self._core.ended) or self._driver.closed

    def producer(self, topic: str, *, codec: str | None = None, window_bytes: Size = "8MB") -> Producer:
        """A producer of one topic whose records are staged: `send` and futures say -1, for there is no offset yet.

        Args:
            codec, window_bytes: as in `Client.producer`.
        """
        self._core.check_open()
        window, connection = size_bytes(window_bytes, "window_bytes"), self._driver.connection
        found = self._driver.run(connection.find_topic(topic, connection.deadline()))
        return Producer(self._driver, self._core.new_producer(found, codec=codec, window_bytes=window))

    def stages(self, timeout: Duration | None = None) -> list[Stage]:
        """What was staged, for `Client.commit_stages` of any process: waits until all of it is durable.

        Raises the first error that no future was asked about.
        """
        return self._driver.run(self._core.stages(self._deadline(timeout)))

    def drop(self, timeout: Duration | None = None) -> None:
        """End, and have the broker forget what was staged. Repeating it does nothing."""
        self._driver.run(self._core.drop(self._deadline(timeout)))

    def close(self) -> None:
        """Flush and end; what was staged waits for whoever commits it. Repeating it does nothing."""
        if not self.closed:
            self._driver.run(self._core.close(self._deadline(None)))

    def _deadline(self, timeout: Duration | None) -> float:
        return self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))

    def _give_up(self) -> None:
        if not self._driver.closed:
            self._driver.run(self._core.give_up())

    def __enter__(self) -> Self:
        self._core.check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()


@checks
class Transaction(Staging):
    """Records of any number of partitions and topics that are published together, or not at all.

    Leaving its `with` block commits; an exception drops what was staged.
    """

    def __init__(self, driver: Driver, core: TransactionCore) -> None:
        """Made by `Client.transaction`."""
        super().__init__(driver, core)
        self._transaction = core

    @property
    def id(self) -> str:
        """Its name, made up where none was given."""
        return self._transaction.name

    @property
    def epoch(self) -> int:
        """Its number under that name."""
        return self._transaction.epoch

    def commit(self, timeout: Duration | None = None) -> bool:
        """Publish everything that was sent, and wait until it can be read.

        Returns: True when it is published, also by an earlier call; False when the epoch or a later one was committed
        before with other records: then nothing of this transaction is published. Where nothing was sent, and where a
        later epoch was committed since, who committed before cannot be told: then it is False.

        Raises: StageLost when the broker does not have everything any more, and nothing is published then. After
        TimedOut, StorageFull, Poisoned and Unavailable it may have been decided, and is published later: the message
        says so, and to commit again is harmless.
        """
        return self._driver.run(self._transaction.commit(self._deadline(timeout)))

    def close(self) -> None:
        """End without a commit: drop what was staged, unless a commit was begun. Repeating it does nothing."""
        if not self.closed:
            self._give_up()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._give_up()
        elif not self._core.ended:
            self.commit()


# `Producer.transaction` names it in its annotations, and its module cannot import this one: for help() and type hints.
setattr(producer, Transaction.__name__, Transaction)
