"""Forgetting: drops abandoned stages and the names of old transactions.

Idea: housekeeping drops stages and names that were idle for long. Names also go when there is no room for a new one:
first those that are due, then one-time names (`~`), which clients commit again only after a lost answer.

Contract: every decision is an effect, in bounded portions. Never drops a stage that is decided, or might be because a
decision cannot be read; never forgets an unfinished transaction. Stages and names have the grace of the office.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import LimitReached, Unavailable
from ..tables import effects as fx
from .home import NAME

if TYPE_CHECKING:
    from ..logs.grace import Grace
    from ..logs.partition import Partition
    from ..ports import NodeConfig
    from .commits import Commits
    from .home import Home

PORTION = 1000
"""Limit of the names in one effect."""

FLEETING_S = 3600.0
"""How long names that begin with `~` are remembered."""


class Forgetting:
    """Expires the stages and names of a node."""

    def __init__(self, config: NodeConfig, grace: Grace, home: Home, commits: Commits) -> None:
        self.dropped = 0  # stages
        self._grace = grace
        self._home = home
        self._commits = commits
        self._most = config.max_transactions
        self._stage_s = config.stage_expiry_s
        self._lasting_s = config.transaction_expiry_s
        self._fleeting_s = min(FLEETING_S, self._lasting_s)

    def look(self, partition: Partition) -> None:
        """Look at one partition that takes writes."""
        if partition.committed.stages:
            self._drop_old(partition)
        if partition.topic == NAME and not partition.state_damaged:
            self._commits.log_finished(partition)
            self._forget(partition, self._outlived(partition))

    def make_room(self, home: Partition, name: str) -> None:
        """Let there be room for one more transaction. Raises LimitReached."""
        table = home.proposed.transactions
        if name in table.by_name or len(table) < self._most:
            return
        names = self._outlived(home) or table.oldest_fleeting(PORTION)
        if not names:
            raise LimitReached(
                f"{home!r} remembers {len(table)} transactions, which is the limit: use one name with rising epochs, "
                "or names that begin with ~, lower transaction_expiry_s, or raise max_transactions"
            )
        self._forget(home, names)

    def _drop_old(self, partition: Partition) -> None:
        try:
            self._home.check_whole()
        except Unavailable:
            return
        silent_us = self._grace.silent_us(self._stage_s)
        old = [each.stage for each in partition.committed.stages if each.last_us <= silent_us]
        head, sealed = partition.proposed.stages, self._commits.seals.of(partition)
        gone = [stage for stage in old if stage in head and stage not in sealed][:PORTION]
        if gone:
            self.dropped += len(gone)
            partition.propose_in_order(fx.StagesDropped(gone))

    def _outlived(self, home: Partition) -> list[str]:
        """Names that are due, as committed, where times are certain, and not decided anew or forgotten since."""
        there, ahead = home.committed.transactions, home.proposed.transactions
        silent_us = self._grace.silent_us
        found = there.outlived(silent_us(self._lasting_s), silent_us(self._fleeting_s), PORTION)
        return [name for name in found if ahead.last_epoch(name) == there.last_epoch(name)]

    def _forget(self, home: Partition, names: list[str]) -> None:
        if names:
            home.propose(fx.TransactionsForgotten(names))
