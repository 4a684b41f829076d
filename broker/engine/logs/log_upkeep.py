"""Upkeep of log files on every replica, leader or not: snapshots, and unlinking segments.

Idea: a snapshot is taken after so many batches or bytes, and saved once the batches it covers are durable. Segments
below a committed first offset are unlinked when snapshots cover them, by the second-newest one or as the store says.

Contract: proposes nothing, and decides nothing that is logged. Removes only segments that are below a committed first
offset and covered by snapshots.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ....storage.errors import Error
from ..tables.queues.unfinished import unfinished
from .filing import Filing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....storage.segment import SegmentRef
    from ..ports import NodeConfig
    from ..tables.settings import TopicSettings
    from ..tables.state import PartitionState
    from .history import History
    from .log_registry import LogRegistry
    from .partition import Partition


SEGMENTS_BETWEEN = 2
"""Segments that a log grows by between two looks at it, where it is held to a limit."""


class LogUpkeep:
    """Snapshots and removal for all logs of a node."""

    def __init__(self, registry: LogRegistry, config: NodeConfig) -> None:
        self._registry = registry
        self._config = config
        self._filing = Filing(registry.store)
        self._pending: dict[History[Any], tuple[int, int, bytes]] = {}  # snapshots that are not saved yet
        self._needed: WeakKeyDictionary[Partition, tuple[int, int]] = WeakKeyDictionary()  # see needed
        self.failed_snapshots = 0
        self.failed_looks = 0
        self.held = False
        """While another node copies the files: none of them is replaced or removed."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What of a log's files cannot be read now is looked at again by the next pass, and stays until then."""
        try:
            yield
        except (Error, OSError):
            self.failed_looks += 1

    def advanced(self, history: History[Any]) -> bool:
        """More of a log is committed: file a part, take a snapshot after so much. Returns whether that was due."""
        self._filing.step(history)
        config, grown = self._config, history.committed.seq - history.snapshot_seq
        is_due = grown >= config.snapshot_batches or history.since_snapshot_bytes >= config.snapshot_bytes
        if is_due:
            self.snapshot(history)
        if self._pending:
            self.save(history)
        return is_due

    def snapshot(self, history: History[Any]) -> None:
        """Take a snapshot now; it is saved once what it covers is durable. An older one still waiting is kept.

        While there are large parts to be filed they go first, one at each call.
        """
        is_due = not self.held and history not in self._pending and history.committed.seq > history.snapshot_seq
        if is_due and not self._filing.step(history):
            self._filing.named(history)
            self._pending[history] = history.snapshot()
            self.save(history)
            if history in self._pending:
                self._registry.store.hurry(history.log)

    def snapshot_all(self) -> None:
        """Before closing: every log that moved."""
        for history in self._registry.histories():
            if not history.in_flight:
                while self._filing.step(history):
                    pass
                self.snapshot(history)

    def has_grown(self, history: History[Any], settings: TopicSettings) -> bool:
        """Whether a log has grown by so many segments since its last snapshot, which is saved."""
        grown = history.since_snapshot_bytes >= SEGMENTS_BETWEEN * settings.segment_bytes
        return grown and not self.is_saving(history)

    def is_saving(self, history: History[Any]) -> bool:
        """Whether a snapshot waits to be saved."""
        return history in self._pending

    def save(self, history: History[Any]) -> None:
        """Save the snapshot that waits, if there is one and what it covers is durable."""
        seq, term, body = self._pending.get(history, (0, 0, b""))
        if self.held or not body or history.log.durable < seq:
            return
        del self._pending[history]
        try:
            self._registry.store.save_snapshot(history.log, seq, term, body)
        except (Error, OSError):
            self.failed_snapshots += 1  # a full disk: the older ones hold, and the next is due soon

    def save_all(self) -> None:
        """Save what waits; forget what was taken of logs that are closed."""
        open_now = set(self._registry.histories())
        for history in list(self._pending):
            if history in open_now:
                self.save(history)
            else:
                del self._pending[history]

    def below(self, partition: Partition) -> list[SegmentRef]:
        """Segments that are below the first offset, as far as the log is durable. If more may be, a sync is hurried."""
        log = partition.log
        if log.durable < partition.seq and len(log.names) > 1 and log.segments()[0].end_offset <= log.first_offset:
            self._registry.store.hurry(log)
        return log.expired(partition.seq)

    def unlink(self, partition: Partition) -> bool:
        """Give the store the segments that may go. Returns whether there were any."""
        log, store = partition.log, self._registry.store
        gone = [] if self.held else log.expired(min(store.removable_to(log), self.needed(partition) - 1))
        if gone:
            store.retire(log, gone)
        return bool(gone)

    def needed(self, partition: Partition) -> int:
        """The first batch that reads something besides what the log has from its first offset on; 0 when not known yet.

        It counts as committed, and where a commit does not wait for the disk as durable: a power cut may take back what
        published a stage, or finished a record that was carried.
        """
        log, now = partition.log, needed(partition.committed)
        if log.durable >= partition.seq:
            return now
        seq, before = self._needed.get(partition, (0, 0))
        if log.durable < seq:
            return 0
        self._needed[partition] = (partition.seq, now)
        return min(before, now)


def needed(state: PartitionState) -> int:
    """The first batch that a stage, or an open record that was carried, stands in; a seq beyond all others for none."""
    first = state.stages.first_seq
    if not state.kept:
        return first
    _, seqs = state.kept.standing(unfinished(state))
    return min(first, int(seqs.min())) if len(seqs) else first
