"""The broker's side of one lent log: gives it to a producer, follows, borrows it, and takes it back.

    lend      take the byte; `appended`, `lent` := a number; free it
    follow    up to `appended`, as long as the grant stands
    borrow    PAUSED; take the byte; follow every batch ... append ...; publish, free, not paused
    recall    PAUSED; take the byte; follow every batch; publish; `lent` := 0; free
    force     `lent` := 0; barrier; one look at `appended`; publish; cut; publish

Idea: pure steps over a log, its row and the lock, none of which waits. A byte that is busy is a False, and the caller
comes again in a later turn; after a while it forces the log back, which makes void what the appender did not finish.

Contract: nothing is appended while the log is lent and not borrowed. What an appender was told stands; what a reader
saw stands. A row is lent only by a broker that has had its byte. The caller publishes the log on its row (`publish`),
and applies what `taken` gives. Must not know: producers' messages, time-outs, other logs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..board_row import PAUSED, Row
from ..layout import split, word
from .following import TakenOver, Terms, follow, follow_every
from .grant import Identity, LogGrant, byte_of

if TYPE_CHECKING:
    from ..batch import Batch
    from ..log import LogWriter
    from ..segment import SegmentRef
    from .appending import ByteLocks

RESERVED_BYTES = 4 << 20
"""A log is lent with so much of its segment reserved, and the index rows of that."""

LEAST_BATCH_BYTES = 256


class Lender:
    """One log and its row. `locks` is the broker's one opening of DATA/lock for these bytes."""

    def __init__(
        self,
        log: LogWriter,
        row: Row,
        number: int,
        locks: ByteLocks,
        *,
        publish: Callable[[], None],
        incarnation: int,
        lock_file: Identity,
    ) -> None:
        """`number`: of the row. `publish` stores on the row how far the log is. `lock_file`: DATA/lock."""
        self.lent = False
        self.refused = ""  # why what the producer wrote may not stand: it gets no grant again
        self._log = log
        self._row = row
        self._locks = locks
        self._byte = byte_of(number)
        self._number = number
        self._publish = publish
        self._incarnation = incarnation
        self._lock_file = lock_file
        self._terms: Terms | None = None
        self._segment: SegmentRef | None = None
        self._taken: list[Batch] = []

    # -- lending ----------------------------------------------------------------------------------

    def lend(self, number: int, terms: Terms, *, time_us: int, monotonic_s: float) -> LogGrant | None:
        """Lend the log under a fresh grant number. None while it cannot be: the byte is busy, or it has no room.

        Raises StorageFull, OSError when nothing can be reserved; the log is not lent then.
        """
        log = self._log
        assert not self.lent, "one grant at a time"
        if not _is_calm(log) or not self._locks.take(self._byte):
            return None
        try:
            active = log.opened[-1]
            end = min(active.position + RESERVED_BYTES, log.options.segment_bytes)
            if end <= active.position:
                return None
            if end > active.allocated and not log.room.has_ahead(RESERVED_BYTES):
                return None
            log.room.reserve(active, end)
            active.reserve_rows(log.written + RESERVED_BYTES // LEAST_BATCH_BYTES)
            active.newest = None
            self._row.appended = word(log.generation, log.written)
            self._row.lent = number
            self._terms, self._segment, self.lent = terms, active.ref, True
        finally:
            self._locks.give_back(self._byte)
        return LogGrant(
            number=number, incarnation=self._incarnation, row=self._number, log_id=log.log_id,
            base_seq=active.ref.base_seq, generation=log.generation, end=log.end(), producer_id=terms.producer_id,
            epoch=terms.epoch, segment_bytes=log.options.segment_bytes, max_batch_bytes=log.options.max_batch_bytes,
            time_us=time_us, monotonic_s=monotonic_s,
            files=(active.file.identity(), active.index.identity(), self._lock_file),
        )  # fmt: skip

    # -- following --------------------------------------------------------------------------------

    @property
    def moved(self) -> bool:
        """Whether there is something to follow."""
        return self.lent and self._row.appended > word(self._log.generation, self._log.written)

    def follow(self, latest_us: int) -> None:
        """Take over what the appender said is there. `refused` says so where it may not stand."""
        generation, seq = split(self._row.appended)
        if self.lent and self._terms is not None and generation == self._log.generation:
            self._note(follow(self._log, self._terms, seq, latest_us))

    def taken(self) -> list[Batch]:
        """The batches that were taken over since the last call, in order."""
        found, self._taken = self._taken, []
        return found

    def _note(self, followed: TakenOver) -> None:
        self._taken += followed.batches
        if self._log.poisoned is None:  # else it could not be read, and nothing is cut
            self.refused = self.refused or followed.stopped
        if followed.batches:
            self._publish()

    # -- the byte ---------------------------------------------------------------------------------

    def borrow(self, latest_us: int) -> bool:
        """Take the log for appends of the broker, with everything that is in it.

        False: it is `refused`, to be recalled; or the byte is busy, and the appender pauses until it is had.
        """
        if not self._hold(latest_us):
            return False
        if self.refused:
            self._locks.give_back(self._byte)
            return False
        return True

    def give_back(self) -> None:
        """The broker's appends are done. Where they went on to another segment, the grant is over."""
        self._publish()
        log = self._log
        if log.must_cut or log.poisoned is not None or not log.opened or log.opened[-1].ref != self._segment:
            self._end()
        self._locks.give_back(self._byte)
        if self.lent:
            self._row.lent &= ~PAUSED

    def recall(self, latest_us: int) -> bool:
        """End the grant with everything that was appended. False while the byte is busy: come again, or `force`."""
        if not self._hold(latest_us):
            return False
        self._end()
        self._locks.give_back(self._byte)
        return True

    def force(self, latest_us: int) -> None:
        """End the grant though the byte is busy. What the appender has not said, and may yet write, is void.

        Raises what a cut raises; the grant is over then, too, and the next append begins with the cut.
        """
        log, row = self._log, self._row
        row.lent = 0
        self.lent = False
        self._locks.take(self._byte)  # a system call: the grant is gone for all to see before the look
        self._locks.give_back(self._byte)
        self._terms, terms = None, self._terms
        generation, seq = split(row.appended)
        if terms is not None and generation == log.generation:
            self._note(follow(log, terms, seq, latest_us))
        log.cut_here()
        self._publish()

    def _hold(self, latest_us: int) -> bool:
        """Take the byte and follow every batch; behind anything else than batches comes a new generation."""
        log, row, terms = self._log, self._row, self._terms
        assert self.lent, "the log is lent"
        assert terms is not None, "under terms"
        row.lent |= PAUSED
        if not self._locks.take(self._byte):
            return False
        followed = follow_every(log, terms, latest_us)
        self._note(followed)
        if followed.stopped:
            log.must_cut, log.ready = True, False
        return True

    def _end(self) -> None:
        """What was followed is published: a reader's limit does not go back."""
        self._row.lent = 0
        self.lent = False


def _is_calm(log: LogWriter) -> bool:
    """Whether nothing of the log is in motion or in doubt."""
    return (
        log.options.commit == "written" and log.ready and log.in_term and not log.must_cut and log.poisoned is None
        and log.durable == log.written and not log.segment_ends
    )  # fmt: skip
