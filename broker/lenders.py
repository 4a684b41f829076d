"""The logs of a broker that are lent to producers: a lender for each, and which of them moved.

Idea: one opening of DATA/lock has the bytes of all rows. One comparison over the words of the board finds those whose
producers appended something, so that a thousand idle ones cost a few microseconds.

Contract: as `engine.ports.LentLogs`. Nothing is lent where the board has no incarnation. What ends a grant because it
may not stand is noted for the broker's log. Must not know: messages, what batches mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ..storage.futex import fence
from ..storage.lending.attaching import MISSING
from ..storage.lending.following import Terms
from ..storage.lending.lender import Lender
from .refusals import Refusals

if TYPE_CHECKING:
    from ..storage.batch import Batch
    from ..storage.board import Board
    from ..storage.lending.appending import ByteLocks
    from ..storage.lending.grant import Identity, LogGrant
    from ..storage.log import LogWriter
    from .engine import Now
    from .watermarks import Watermarks


DOZE_S = 0.002
"""A shorter wait than this is no sleep: what producers append waits for its end."""


class Lenders:
    """The lent logs of one board. `locks` is an opening of DATA/lock of its own, `lock_file` that file's identity."""

    def __init__(
        self, board: Board, watermarks: Watermarks, locks: ByteLocks, lock_file: Identity, *, missing: str = MISSING
    ) -> None:
        """`missing`: why nothing can be lent here; "" if it can."""
        self._board = board
        self._watermarks = watermarks
        self._locks = locks
        self._lock_file = lock_file
        self._missing = missing
        self._sleeps = count(int.from_bytes(os.urandom(7), "little") + 1)
        self._rows = np.zeros(0, np.int64)
        self.logs: list[LogWriter] = []
        """The logs that are lent."""
        self.refusals = Refusals("batches that producers appended by themselves, refused and cut away")
        self._granted: dict[LogWriter, tuple[Lender, int]] = {}  # with the producer's id

    def lend(
        self,
        log: LogWriter,
        number: int,
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        judge: Callable[[Batch], object],
        now: Now,
    ) -> tuple[Lender, LogGrant] | None:
        """See LentLogs."""
        held = self._watermarks.held(log)
        if self._missing or held is None or not self._board.incarnation:
            return None
        self._watermarks.sync_now(log)
        lender = Lender(
            log, held.row, held.number, self._locks, publish=held.publish, incarnation=self._board.incarnation,
            lock_file=self._lock_file,
        )  # fmt: skip
        terms = Terms(producer_id, epoch, sequence, judge)
        grant = lender.lend(number, terms, time_us=now.wall_us, monotonic_s=now.monotonic_s)
        if grant is None:
            return None
        self.logs.append(log)
        self._granted[log] = lender, producer_id
        self._list()
        return lender, grant

    def moved(self) -> list[LogWriter]:
        """See LentLogs."""
        return [self.logs[place] for place in self._board.ahead(self._rows)]

    def sleep(self, wait_s: float) -> float:
        """How long to wait for messages, of `wait_s`: a producer that appends meanwhile sends one."""
        if not self.logs or wait_s <= DOZE_S:
            return wait_s
        self._board.asleep = next(self._sleeps)
        fence()
        return 0.0 if self.moved() else wait_s

    def wake(self) -> None:
        """The broker looks again."""
        if self.logs and self._board.asleep:
            self._board.asleep = 0

    def over(self, log: LogWriter) -> None:
        """See LentLogs."""
        self.logs.remove(log)
        lender, producer_id = self._granted.pop(log)
        if lender.refused:
            self.refusals.note(f"of producer {producer_id:x} in {log.path}: {lender.refused}")  # the end may be cut
        self._list()

    def _list(self) -> None:
        self._rows = np.array([self._watermarks.number_of(log) for log in self.logs], np.int64)

    def close(self) -> None:
        """The node is closed: let go of the file."""
        self._locks.close()
