"""The verbs of a client that concern transactions.

Contract: as client.py, of which this is a part: any number of threads may call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...transport.messages import Stage
from ..arguments.quantities import Duration, seconds
from ..producer import wall_us
from .staging import Staging, Transaction
from .staging_core import StagingCore, begin
from .staging_producer import StagedFuture
from .verbs import TransactionVerbs, checked_epoch, checked_name, checked_stages

if TYPE_CHECKING:
    from ..connection.driver import Driver
    from ..connection.opened import Opened


class TransactionClient:
    """The part of `Client` that concerns transactions."""

    def __init__(self, driver: Driver, opened: Opened) -> None:
        self._driver = driver
        self._opened = opened
        self._transaction_verbs = TransactionVerbs(driver.connection)

    def transaction(self, id: str | None = None, epoch: int | None = None) -> Transaction:
        """Records of any number of partitions and topics that are published together: a `with` block that commits.

        Args:
            id, epoch: a name and a number that rises with each transaction under it. An epoch is published once,
                whoever commits it and how often, and so is never one below. Without them it is simply one transaction.
        """
        self._driver.check_open()
        core = begin(self._driver.connection, id, epoch, now_us=wall_us, future=StagedFuture)
        return self._opened.add(Transaction(self._driver, core))

    def staging(self) -> Staging:
        """Records for a transaction that is committed elsewhere, as by whoever gathers the stages of many processes."""
        self._driver.check_open()
        core = StagingCore(self._driver.connection, now_us=wall_us, future=StagedFuture)
        return self._opened.add(Staging(self._driver, core))

    def commit_stages(self, id: str, epoch: int, stages: Iterable[Stage], timeout: Duration | None = None) -> bool:
        """Publish what was staged, by however many processes: all of it, or nothing.

        Args:
            id, epoch: as in `transaction`.
            stages: of all who staged for it; those that are left out are not published. None: an epoch without records.

        Returns and raises: as `Transaction.commit`.
        """
        name, number, found = checked_name(id), checked_epoch(epoch), checked_stages(stages)
        return self._driver.run(self._transaction_verbs.commit(name, number, found, self._until(timeout)))

    def drop_stages(self, stages: Iterable[Stage], timeout: Duration | None = None) -> None:
        """Have the broker forget what nobody will commit; it does so by itself an hour after the last record.

        What is committed already stays, and what is not there is no error.
        """
        self._driver.run(self._transaction_verbs.drop(checked_stages(stages), self._until(timeout)))

    def transaction_epoch(self, id: str) -> int | None:
        """The last epoch that was committed under a name; None when the broker knows of none."""
        return self._driver.run(self._transaction_verbs.epoch(checked_name(id), self._until(None)))

    def _until(self, timeout: Duration | None) -> float:
        return self._driver.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
