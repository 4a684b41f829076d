"""Filing: writes large parts of a partition's shelves into runs, so that no snapshot has to hold ten million timers.

Idea: after a commit, at most one part that will not change any more is written into a run, which snapshots then name.
Runs that no snapshot on the disk names are removed. So are, as a log is opened, those of a state that was lost: a power
cut may have torn them, and a member that hands the log out would take that for damage.

Contract: a step writes a few megabytes at most. A run stays as long as a snapshot that may be loaded names it. If a
run cannot be written, the snapshot holds that part itself. Must not know where runs are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ....storage.errors import Error
from ..tables.queues.shelf_bodies import encode_run
from ..tables.state import PartitionState

if TYPE_CHECKING:
    from ..ports import Store
    from .history import History


class Filing:
    """The runs of all partitions of a node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._named: WeakKeyDictionary[History[Any], list[tuple[int, set[int]]]] = WeakKeyDictionary()

    def step(self, history: History[Any]) -> bool:
        """Write one run, if there is something for one. Returns whether it did."""
        state = history.committed
        large = state.shelves.large() if isinstance(state, PartitionState) and state.shelves.by_level else None
        if large is None:
            return False
        try:
            body = encode_run(large.times, large.offsets)
            checksum = self._store.runs(history.log).save(state.shelves.last_run + 1, body)
        except (Error, OSError):
            return False  # a full disk
        state.shelves.file(large, checksum)
        return True

    def named(self, history: History[Any]) -> None:
        """A snapshot is taken: it names the runs that are there now. Runs that none names any more are removed."""
        state = history.committed
        if not isinstance(state, PartitionState) or not state.shelves.last_run:
            return
        covered = self._store.covered(history.log)
        known = [each for each in self._named.get(history, []) if each[0] >= covered]
        if known and known[0][0] == covered:  # so both snapshots on the disk are among those that are known
            keep = state.shelves.numbers().union(*(numbers for _, numbers in known))
            self._store.runs(history.log).drop(keep)
        self._named[history] = [*known, (state.seq, state.shelves.numbers())]
