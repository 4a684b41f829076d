"""Removal where another node leads: files below the first offset go here as they go there.

Idea: that a log begins later is in the log, decided by the leader. Which segments may go for it depends on the
snapshots of each replica, so each sees to its own: it takes the snapshots that they wait for, and gives them to the
store. The leader's housekeeping does the same, and proposes what removal needs besides.

Contract: proposes nothing. A pass looks at logs that have moved their first offset and still have files below it, a
few in each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ports import NodeConfig, Now
    from .history import History
    from .log_registry import LogRegistry
    from .log_upkeep import LogUpkeep
    from .partition import Partition

STEP = 64
"""Partitions looked at in one turn."""


class Removal:
    """See the module."""

    def __init__(self, registry: LogRegistry, upkeep: LogUpkeep, config: NodeConfig) -> None:
        self._registry = registry
        self._upkeep = upkeep
        self._pause_s = config.housekeeping_s
        self._due_s = float("-inf")
        self._pass: Iterator[Partition] = iter(())

    def hold_to_limit(self, history: History[Any]) -> None:
        """Look at a log that grows faster than passes come."""
        partition = self._registry.partitions.get(history)
        if partition in self._registry.trimmed and self._upkeep.has_grown(history, partition.settings):
            self._upkeep.snapshot(history)
            self._look(partition)

    def tick(self, now: Now) -> None:
        """Do a step of a pass, or begin one when that is due."""
        looked = 0
        for partition in islice(self._pass, STEP):
            looked += 1
            if partition in self._registry.trimmed:
                self._look(partition)
        if looked < STEP and now.monotonic_s >= self._due_s:
            self._due_s = now.monotonic_s + self._pause_s
            self._upkeep.save_all()
            self._pass = iter(list(self._registry.trimmed))

    def _look(self, partition: Partition) -> None:
        """Give the store what may go, or take the snapshot that it waits for."""
        log, upkeep = partition.log, self._upkeep
        if log.poisoned is not None:
            return
        with upkeep.looking():
            if not upkeep.below(partition):
                if log.durable >= partition.seq:  # else what is not durable may still be below the first offset
                    del self._registry.trimmed[partition]
            elif not upkeep.unlink(partition) and log.expired(upkeep.needed(partition) - 1):
                upkeep.snapshot(partition.history)
