"""One log that is lent: its partition follows what the producer appends, and the broker borrows it or takes it back.

Idea: steps that never wait. While the producer is in the middle of an append its byte is busy, and the step is tried
again in later turns; after PATIENCE_S the log is taken back by force, because the producer must be stopped.

Contract: what was taken over is in flight before the broker appends anything. Must not know: messages, peers' requests,
why a log is taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ....storage.errors import Error
from ..tables.entry import entry_of

if TYPE_CHECKING:
    from ..logs.overlays import Overlays
    from ..logs.partition import Partition
    from ..ports import LentLog, Peer

PATIENCE_S = 1.0
"""Until a producer in the middle of an append counts as stopped. It takes some microseconds."""


TRIES = 2000
"""Each takes microseconds: a producer that is not stopped ends its append meanwhile, and begins no other."""


class Clock:
    """Times of the turn. `latest_us`: no batch that is followed may be later."""

    latest_us = 0
    monotonic_s = 0.0


class Tally:
    """What became of the grants of one office, in total. `records` and `batches`: that their producers appended."""

    given = refused = recalled = borrowed = batches = records = 0


class Loan:
    """A grant from its beginning to its end. `ending`: it is to be taken back."""

    def __init__(
        self, partition: Partition, peer: Peer, owner: str, producer_id: int, number: int, log: LentLog,
        overlays: Overlays, clock: Clock, tally: Tally,
        on_busy: Callable[[Loan], None], on_over: Callable[[Loan], None],
    ) -> None:  # fmt: skip
        """`owner`: its proof. `on_busy`: a step is to be tried again. `on_over`: the grant has ended."""
        self.partition = partition
        self.peer = peer
        self.owner = owner
        self.producer_id = producer_id
        self.number = number
        self.ending = False
        self.for_another = False  # it ends because another producer, or the broker, appends
        self._log = log
        self._overlays = overlays
        self._overlay = partition.overlay
        self._clock = clock
        self._tally = tally
        self._on_busy = on_busy
        self._on_over = on_over
        self._busy_since_s: float | None = None

    @property
    def refused(self) -> str:
        """Why what the producer wrote may not stand; "" as long as it may."""
        return self._log.refused

    def follow(self) -> None:
        """Take over what the producer said is there."""
        self._log.follow(self._clock.latest_us)
        self._take()
        if self._log.refused:
            self.recall()

    def recall(self) -> bool:
        """Take the log back, by force from a producer that is stopped. False: not yet, and it is tried again."""
        self.ending = True
        if self._log.recall(self._clock.latest_us):
            self._over()
        elif self._is_stopped():
            self.force()
        return not self._log.lent

    def force(self) -> None:
        """Take the log back at once, whatever the producer is doing."""
        with suppress(Error, OSError):  # the next append begins with what could not be done
            self._log.force(self._clock.latest_us)
        self._over()

    def end(self) -> None:
        """As `recall`, now: by force if the producer is in the middle for as long as TRIES take."""
        if not any(self.recall() for _ in range(TRIES)):
            self.force()

    # -- the flush ----------------------------------------------------------------------------------

    def opens(self) -> bool:
        """Whether the broker may append now. What commutes with records is borrowed for, for all else it is recalled.

        False: what is queued stays so until a later turn.
        """
        if not self._overlay.commutes:
            self.ending = self.for_another = True
        if self.ending:
            return self.recall()
        if self._log.borrow(self._clock.latest_us):
            self._busy_since_s = None
            self._tally.borrowed += 1
            self.partition.lent.borrowed += 1
            self._take()
            return True
        self._take()
        if self._log.refused or self._is_stopped():
            return self.recall()
        return False

    def closes(self) -> None:
        """The broker's appends are done. Nothing, if the grant ended for them."""
        if self._log.lent:
            self._log.give_back()
            if not self._log.lent:
                self._over()

    # -- parts --------------------------------------------------------------------------------------

    def again(self) -> None:
        """Try again what was not possible while the byte was busy."""
        if self.ending:
            self.recall()
        else:
            self._overlays.dirty[self._overlay] = None

    def _is_stopped(self) -> bool:
        """The byte is busy: whether that is so for too long."""
        now_s = self._clock.monotonic_s
        if self._busy_since_s is None:
            self._busy_since_s = now_s
        if now_s - self._busy_since_s < PATIENCE_S:
            self._on_busy(self)
            return False
        return True

    def _over(self) -> None:
        self._take()
        self._overlays.dirty[self._overlay] = None  # what waited for the byte, whatever the log was taken back for
        self._on_over(self)

    def _take(self) -> None:
        batches = self._log.taken()
        if batches:
            size = sum(batch.batch_bytes for batch in batches)
            self._tally.batches += len(batches)
            self._tally.records += sum(batch.record_count for batch in batches)
            self._overlays.follow(self._overlay, [entry_of(batch) for batch in batches], size)
