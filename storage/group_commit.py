"""One sync for the appends of many threads.

Idea: a thread that has appended waits for the lock of the syncs. When it gets it, another thread's sync has covered
its batches, or its own covers those of every waiting thread. Meanwhile others append.

Contract: `through` returns only after a sync that began after the batch was written. One sync at a time: with two on
one descriptor, the kernel reports a failure to only one of them. Code that closes or syncs files of the writer takes
`syncing` first and the turn after it. Must not know: records, buffers, readers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .tail import LogTail


class GroupCommit:
    """Syncs `writer`, which may be touched only by the thread that has the `turn`."""

    def __init__(self, writer: LogTail, turn: threading.Lock, told: Callable[[], None]) -> None:
        """`told` is called, in the turn, when more is durable."""
        self.syncing = threading.Lock()
        self._writer = writer
        self._turn = turn
        self._told = told

    def through(self, seq: int) -> None:
        """Return when everything up to batch `seq` is durable. Raises Poisoned, Closed."""
        with self.syncing:
            if self._writer.durable < seq:
                self._sync()

    def _sync(self) -> None:
        writer = self._writer
        with self._turn:
            pending = writer.pending()
        writer.carry_out(pending)
        with self._turn:
            writer.settle(pending.generation, pending.end.seq)
            self._told()
