"""`penstock.Channel`: a queue of bytes in a directory, with the interface of `queue.Queue`.

    PATH/items/N     logs of what was put           one writer each: the process that put it
    PATH/done/N      logs of what is done           the process that took it
    PATH/taken       locks on what is taken         held by the kernel for the process that took it
    PATH/lock        held while a bounded channel takes an item

Idea: what was put and what is done are records, so they outlive everything. What is taken is a lock, so it ends with
its process, and the item is there for another one at once. Nothing else is shared: an item is waiting if it was put, is
not done, and its lock is free.

Contract: any number of threads and processes. An item is handed to one of them at a time, and again only if it was
not done. A process that takes a lock reads what is done after that, so what was done before the lock came free is not
handed out again. Logs of items are removed once all of them are done, and logs of what is done once none of those
items' logs is left, in this order.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from queue import Empty, Full
from threading import Thread, current_thread
from typing import Literal, Self

from . import forks, layout
from .adopting import CHANNEL, adopting
from .arguments import one_of, some_seconds, whole
from .errors import Closed, InvalidArgument
from .files import Files
from .range_locks import RangeLocks
from .rolling_logs import BUSY_S, OFFSET_BITS, RollingLogs, lock_within

LOOK_S = 0.01
"""How often a waiting thread looks for what other processes did."""

PLACE_BYTES = 8


class Channel:
    """A queue of bytes that any number of threads and processes put into and take from, and that outlives all of them.

    Args:
        path: the directory, made when missing.
        maxsize: `put` waits while so many items are in the queue; 0: it never waits.
        commit: "durable": what `put` and `task_done` returned from survives a power cut; "written": the death of any
            process.

    Raises: InvalidArgument; ForeignDirectory for a directory that is no channel's, or cannot be used; StorageFull,
    Corrupt and others of `penstock.Log`.
    """

    def __init__(
        self, path: str | os.PathLike[str], maxsize: int = 0, *, commit: Literal["durable", "written"] = "durable"
    ) -> None:
        self.maxsize = whole("maxsize", maxsize, 0)
        one_of("commit", commit, ("durable", "written"))
        self.path = os.path.abspath(os.fspath(path))
        self._files = Files()
        self._commit = commit
        self._changed = threading.Condition(threading.RLock())
        with adopting(self.path, CHANNEL, self._files):
            self._items = RollingLogs(f"{self.path}/items", self._files, commit)
            self._done = RollingLogs(f"{self.path}/done", self._files, commit)
            self._locks = RangeLocks(f"{self.path}/taken")
        self._left: dict[int, None] = {}  # items that are not done, by place, oldest first
        self._early: set[int] = set()  # done, and their own logs not read so far
        self._about: dict[int, set[int]] = {}  # by log of what is done: the logs of those items
        self._taken: dict[int, Thread] = {}  # by this channel: the thread that did
        self._ending: set[int] = set()  # being done
        self._torn = False  # an exception ended a look, so what was read so far may not be known
        self._closed = False
        forks.tell(self)
        with self._changed:
            self._look()
            self._remove_finished()

    def _forked(self) -> None:
        """A child has neither the logs nor the locks."""
        self._changed = threading.Condition(threading.RLock())
        self._closed = True

    # -- putting ------------------------------------------------------------------------------------------

    def put(self, item: bytes, block: bool = True, timeout: float | None = None) -> None:
        """Put an item, and return once it is stored as `commit` says.

        Args:
            item: bytes. None is refused: an item that says "no more" is bytes too, such as b"".
            block: wait while the channel is full; if not, raise at once.
            timeout: how many seconds to wait at most; None: without end.

        Raises: queue.Full; RecordTooLarge, StorageFull, Poisoned.
        """
        if not isinstance(item, bytes):
            raise InvalidArgument(
                f"an item must be bytes, not {type(item).__name__}; text needs .encode(), a sentinel is bytes too"
            )
        if not self.maxsize:
            self._append_item(item)
            return
        for _ in self._looks(block, timeout):
            lock = lock_within(BUSY_S, f"{self.path}/{layout.LOCK}", self._files)
            if lock is None:
                continue
            with lock:
                if self.qsize() < self.maxsize:
                    self._append_item(item)
                    return
        raise Full

    def put_nowait(self, item: bytes) -> None:
        """Put `item`, or raise queue.Full."""
        self.put(item, block=False)

    def _append_item(self, item: bytes) -> None:
        self._append(self._items, item)
        with self._changed:
            self._changed.notify_all()

    def _append(self, logs: RollingLogs, value: bytes) -> None:
        _, full = logs.append(self._changed, self._check_open, value)
        with self._changed:
            if full and not self._closed:
                self._remove_finished()

    # -- taking -------------------------------------------------------------------------------------------

    def get(self, block: bool = True, timeout: float | None = None) -> bytes:
        """Take the oldest item that is waiting. It comes again if this process ends before `task_done`.

        Args:
            block: wait while there is none; if not, raise at once.
            timeout: how many seconds to wait at most; None: without end.

        Raises: queue.Empty.
        """
        taking: list[int] = []
        try:
            for _ in self._looks(block, timeout):
                place = self._take(taking)
                if place is not None:
                    return self._items.value(place)
        except BaseException:
            self._give_back(taking)
            raise
        raise Empty

    def get_nowait(self) -> bytes:
        """Take an item, or raise queue.Empty."""
        return self.get(block=False)

    def _take(self, taking: list[int]) -> int | None:
        """The place of an item that is this thread's now (lock held). `taking` has it before it is taken."""
        self._look()
        again = True
        while again:
            again = False
            for place in self._left:
                if place in self._taken or place in self._ending:
                    continue
                taking[:] = [place]
                if not self._locks.take(place):
                    continue
                self._look()  # what its last holder did is known now
                if place in self._left:
                    self._taken[place] = current_thread()
                    return place
                self._locks.give_back(place)
                again = True
                break
        taking.clear()
        return None

    def _give_back(self, taking: list[int]) -> None:
        """Let others have what a `get` took and did not return."""
        with self._changed:
            for place in taking:
                self._taken.pop(place, None)
                if not self._closed:
                    self._locks.give_back(place)

    def task_done(self) -> None:
        """Say that an item is done, so that it never comes again: of those taken and not done, the one that this
        thread took first, or else the one that another thread of this process did.

        Raises ValueError when there is none, as `queue.Queue` does.
        """
        with self._changed:
            self._check_open()
            mine = [place for place, thread in self._taken.items() if thread is current_thread()] or list(self._taken)
            if not mine:
                raise ValueError("task_done() called too many times")
            place = mine[0]
            thread = self._taken.pop(place)
            self._ending.add(place)
        try:
            self._append(self._done, place.to_bytes(PLACE_BYTES))
        except BaseException:
            with self._changed:
                self._taken[place] = thread
            raise
        finally:
            with self._changed:
                self._ending.discard(place)
        with self._changed:
            self._left.pop(place, None)
            if not self._closed:
                self._locks.give_back(place)
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until every item that was put is done, by whichever process."""
        for _ in self._looks(True, None):
            self._look()
            if not self._left:
                return

    # -- sizes --------------------------------------------------------------------------------------------

    def qsize(self) -> int:
        """The number of waiting items. Other processes may change it at any time."""
        with self._changed:
            self._check_open()
            self._look()
            mine = len(self._taken) + len(self._ending)
            return max(len(self._left) - mine - self._locks.others(), 0)

    def empty(self) -> bool:
        """Whether `qsize` is 0."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether `qsize` has reached `maxsize`."""
        return 0 < self.maxsize <= self.qsize()

    # -- what all processes did -----------------------------------------------------------------------------

    def _looks(self, block: bool, timeout: float | None) -> Iterator[None]:
        """Look, with the lock, now and then until the time is over; once, if not `block`."""
        until = None if timeout is None else time.monotonic() + some_seconds(timeout, "timeout")
        with self._changed:
            while True:
                self._check_open()
                yield
                left = LOOK_S if until is None else min(LOOK_S, until - time.monotonic())
                if not block or left <= 0:
                    return
                self._changed.wait(left)

    def _look(self) -> None:
        """Learn what was put and done since (lock held).

        Records are read once. So if an exception ends a look, Ctrl-C or an error of the disk, the next one begins anew.
        """
        if self._torn:
            self._begin_anew()
        self._torn = True
        self._done.look()  # first: while an item's log is there, so are those that say it is done
        vanished = self._items.look()
        if vanished:
            self._forget(vanished)
        newest = max(self._items.known, default=0)
        for number, record in self._done.news():
            place = int.from_bytes(record.value)
            of = place >> OFFSET_BITS
            self._about.setdefault(number >> OFFSET_BITS, set()).add(of)
            if place in self._left:
                del self._left[place]
            elif of in self._items.known or of > newest:
                self._early.add(place)
        came = [(record.timestamp, place) for place, record in self._items.news()]
        for _, place in sorted(came):
            if place in self._early:
                self._early.discard(place)
            else:
                self._left[place] = None
        self._torn = False

    def _begin_anew(self) -> None:
        """Forget what was read."""
        self._done.rewind()
        self._items.rewind()
        self._left.clear()
        self._early.clear()
        self._about.clear()

    def _forget(self, numbers: set[int]) -> None:
        for place in [place for place in self._left if place >> OFFSET_BITS in numbers]:
            del self._left[place]
        self._early = {place for place in self._early if place >> OFFSET_BITS not in numbers}

    def _remove_finished(self) -> None:
        """Remove logs that nothing needs (lock held)."""
        for number in self._items.known - self._needed():
            self._items.remove(number, lambda number=number: number not in self._needed())
        for number in sorted(self._done.known):
            self._done.remove(number, lambda number=number: self._is_over(number))
        self._look()

    def _needed(self) -> set[int]:
        """The logs with items that are not done."""
        self._look()
        return {place >> OFFSET_BITS for place in self._left}

    def _is_over(self, number: int) -> bool:
        """Whether the logs of all items that a log says are done are gone, and stay so if the power goes now."""
        self._look()
        if not self._about.get(number, set()).isdisjoint(self._items.known):
            return False
        self._files.sync_dir(self._items.path)  # another process may have removed one a moment ago
        return True

    # -- the end ------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the channel {self.path} was closed, or opened by the process this one was forked from")

    def close(self) -> None:
        """Let go of everything; items that were taken and are not done come again. Idempotent."""
        with self._changed:
            if self._closed:
                return
            try:
                self._items.let_go()
                self._done.let_go()
                self._remove_finished()
            finally:
                self._closed = True
                self._items.close()
                self._done.close()
                self._locks.close()
                self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{', closed' if self._closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
