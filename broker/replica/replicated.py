"""The order of the logs of a member: terms and commits come from the group, beside `Sole` of a node alone.

Idea: the leader stamps with the term of the group and notes what was appended, for the next entry. What is committed of
a log is what is applied of the order. A follower appends the leader's batches as they are.

Contract: a batch has a number only once its append has succeeded. A failed append is cut, synced, before anything else
is stamped in any log; where even that fails, `broken` says why, and the replica closes. Nothing that is applied is cut.
Must not know Raft, peers, or what batches mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...storage import appending, cutting
from ...storage.errors import Error
from ...storage.plan import Appended, PlacedBatch, Stamping
from ..errors import NoLeader
from .entries import StampedBatch
from .errors import ReplicaBroken
from .places import START, Places

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...storage.plan import Placing
    from ...storage.tail import LogTail


class _Noted:
    """Stamps as `Stamping` does, and keeps what it stamped."""

    def __init__(self, source: Stamping) -> None:
        self.inspect = source.inspect
        self._place = source.place
        self.placed: list[PlacedBatch] = []

    def place(
        self, batch: Buffer, found: tuple[int, int, int, int], position: int, seq: int, offset: int, previous: int
    ) -> PlacedBatch:
        placed = self._place(batch, found, position, seq, offset, previous)
        self.placed.append(placed)
        return placed


class Replicated:
    """One order for all logs of a replica.

    `leading`: the term that batches are stamped with, 0 while another node leads. `broken`: why nothing may be stamped
    any more; "" as long as it may.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.leading = 0
        self.broken = ""
        self.time_us = 0  # of the newest batch that was stamped here
        self._noted: list[StampedBatch] = []

    # -- LogOrder ---------------------------------------------------------------------------------

    def term(self, log: LogTail) -> int:
        return max(self.leading, log.term)

    def append(self, log: LogTail, batches: Sequence[Buffer], now_us: int) -> list[Appended]:
        """Stamp and write batches, all or none, and note them.

        Raises NoLeader, ReplicaBroken, and what `LogWriter.append` does.
        """
        if self.broken:
            raise ReplicaBroken(self.broken)
        if not self.leading:
            raise NoLeader("this node does not lead, so it appends nothing: ask again")
        if not batches:
            return []
        log.check_open()
        if log.rests:
            self.open(log)
        log.term = self.leading
        time_us = self.time_us = max(now_us, log.last_time_us)
        source = _Noted(Stamping(log.log_id, self.leading, time_us, log.options.max_batch_bytes))
        appended = self._all_or_none(log, batches, source)
        for (seq, _, _), placed in zip(appended, source.placed, strict=True):
            size = sum(map(len, placed.buffers))
            self._noted.append(StampedBatch(log.log_id, seq, placed.checksum, size, placed.buffers))
        return appended

    def committed(self, log: LogTail) -> int:
        return min(self.places.applied.get(log.log_id, START)[0], log.written)

    def safe(self, log: LogTail) -> int:
        return self.committed(log)

    # -- for the replica --------------------------------------------------------------------------

    def take(self) -> list[StampedBatch]:
        """What was appended since the last call, in order: the batches of the next entry."""
        noted, self._noted = self._noted, []
        return noted

    def open(self, log: LogTail) -> None:
        """Ready a log for its next append. Raises what `append` does."""
        try:
            appending.prepare(log)
        except BaseException:
            self._cut(log)
            raise

    def follow(self, log: LogTail, batches: Sequence[Buffer]) -> None:
        """Append batches of the leader as they are, all or none. Raises what `LogWriter.append_stamped` does."""
        self._all_or_none(log, batches, None)

    def _all_or_none(self, log: LogTail, batches: Sequence[Buffer], source: Placing | None) -> list[Appended]:
        try:
            if source is None:
                return appending.append_stamped(log, batches)
            return appending.append_planned(log, batches, source)
        except BaseException:
            self._cut(log)
            raise

    def _cut(self, log: LogTail) -> None:
        """An append failed: what it left behind goes before anything else is stamped."""
        if not log.must_cut or log.closed or log.poisoned is not None:
            if log.poisoned is not None:
                self.broken = f"{log.path} takes no more writes ({log.poisoned})"
            return
        try:
            cutting.cut(log)
        except (Error, OSError) as error:
            self.broken = f"{log.path} could not be cut after an append that failed: {error}"
