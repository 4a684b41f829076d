"""The keeper's core: rounds of group commit over a board and the files behind it.

Idea: for every partition whose written word is beyond its synced word, a round announces the sync on the board
(`sync_started`), syncs the partition's dirty segments (old ones first), and publishes the result (`synced`). One
fdatasync covers everything written to the file before it, so a thousand producers share a round; above a few dirty
files one syncfs serves all, as long as none ever failed and it reaches all of them. The mark of the durable end is
written into the segment after the broker was told, and not after every round: it dirties a page that the next sync has
to write as well. That sync carries it, or one more when things are quiet.

Contract:
- A segment is opened when it is registered and kept open until it is sealed and all of it is synced: the kernel
  reports a failed write only to descriptors opened before it.
- Only a seq with an index row in a registered segment is synced and vouched for.
- A failed sync is never retried: its partition's poison word and its `poison` file say so.
- Words only go forward, and a row that changed hands meanwhile (other log, other generation) is left alone, so a
  keeper that was stopped and wakes late changes nothing.

Must not know: the link to the broker, processes, clocks (time comes as an argument).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...storage import poison
from ...storage.board import Level, Row, split
from ...storage.errors import StorageError, StorageFull
from ...storage.layout import log_number
from ..config import KeeperOptions
from .files import SegmentFiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...storage.board import Board
    from ...storage.files import Files
    from ...storage.layout import IndexRow
    from .messages import Register


class KeeperTail:
    """One partition as the keeper sees it: its row, and its segments that may be dirty, oldest first."""

    __slots__ = ("directory", "dirty_since", "generation", "log_id", "number", "row", "segments", "silenced")

    def __init__(self, number: int, row: Row, log_id: bytes, directory: str) -> None:
        self.number = number
        self.row = row
        self.log_id = log_number(log_id)
        self.directory = directory
        self.generation = 0
        self.segments: list[SegmentFiles] = []
        self.dirty_since: float | None = None
        self.silenced = False  # nothing of it is vouched for any more

    def holder_of(self, seq: int) -> int:
        """Place in `segments` of the one that `seq` is in; -1 when it lies before all of them."""
        place = len(self.segments) - 1
        while place >= 0 and self.segments[place].base_seq > seq:
            place -= 1
        return place

    def owns_row(self) -> bool:
        """Whether the row is still this log's, in this generation."""
        return self.row.log_id == self.log_id and self.row.generation == self.generation

    def may_be_vouched_for(self) -> bool:
        """False once a sync of it failed, here, in the broker or in an earlier keeper: the next one would succeed."""
        poison = self.row.poison
        if poison and split(poison)[0] == self.generation:
            self.silenced = True
        return not self.silenced

    def close(self) -> None:
        """Close every file."""
        for segment in self.segments:
            segment.close()
        self.segments.clear()


class Step(NamedTuple):
    """One partition in a round."""

    tail: KeeperTail
    target: int  # the word that will be vouched for
    files: Sequence[SegmentFiles]  # to sync, oldest first; the last one gets the mark
    last: IndexRow | None  # where the target ends; None: no mark to write


class Keeper:
    """Rounds over one board. One thread; every method returns without waiting for anything but the disk."""

    def __init__(
        self,
        board: Board,
        files: Files,
        *,
        sync_all: Callable[[], None],
        device: int,
        options: KeeperOptions | None = None,
        warn: Callable[[str], None],
    ) -> None:
        """`sync_all` syncs the file system `device` (syncfs) or raises OSError; `warn` gets sentences for people."""
        self.options = options or KeeperOptions()
        self.rounds = 0
        self._board = board
        self._epoch = board.epoch
        self._files = files
        self._sync_all = sync_all
        self._device = device
        self._all_is_well = True  # no syncfs failed yet
        self._warn = warn
        self._tails: dict[int, KeeperTail] = {}
        self._unmarked: dict[int, Step] = {}  # vouched for, by row
        self._marks_due_s = float("-inf")
        self._unsynced_marks: set[int] = set()
        self._quiet_at = 0.0
        self._watched: NDArray[np.intp] | None = None  # rows of all tails; None when it has to be made anew
        self._clean = np.empty(0, np.uint64)  # of each of these, a written word of which nothing is left to sync
        self._written = board.words("written")

    # -- what is watched --------------------------------------------------------------------------

    def register(self, notice: Register) -> None:
        """Open a segment and watch its row.

        Raises StorageFull or OSError when it cannot be opened. The row is then left to the broker for good: to
        vouch for a later segment would be to vouch for this one.
        """
        tail = self._tails.get(notice.row)
        if tail is None:
            tail = KeeperTail(notice.row, self._board.row(notice.row), notice.log_id, notice.directory)
            self._tails[notice.row] = tail
            self._watched = None
        if tail.silenced:
            return
        try:
            tail.segments.append(
                SegmentFiles.open(self._files, notice.directory, notice.log_id, notice.base_seq, notice.generation)
            )
        except BaseException:
            tail.silenced = True
            tail.close()
            self._unmarked.pop(notice.row, None)
            raise
        tail.generation = notice.generation

    def forget(self, row: int) -> None:
        """Stop watching a row and close its files."""
        tail = self._tails.pop(row, None)
        if tail is not None:
            tail.close()
            self._unsynced_marks.discard(row)
            self._unmarked.pop(row, None)
            self._watched = None

    # -- a round ----------------------------------------------------------------------------------

    def round(self, now_s: float) -> tuple[bool, float | None]:
        """Sync whatever is due.

        Returns:
            Whether any word moved (ring the broker), and in how many seconds there is more to do (None:
            when the doorbell rings).
        """
        steps, wait = self.begin(now_s)
        if steps:
            self.finish(self.sync(steps))
            self._quiet_at = now_s + self.options.quiet_s
            return True, min(self.options.quiet_s, wait if wait is not None else self.options.quiet_s)
        return False, self._quiet(now_s, wait)

    def begin(self, now_s: float) -> tuple[list[Step], float | None]:
        """Say on the board what is about to be synced. Also the seconds until something lazy is due."""
        steps: list[Step] = []
        wait: float | None = None
        if self._board.epoch != self._epoch:
            return steps, wait  # re-initialised for another pair of broker and keeper: nothing here is ours
        for row in self._dirty_rows():
            tail = self._tails[row]
            due = self._due_in(tail, now_s)
            if due > 0:
                wait = due if wait is None else min(wait, due)
                continue
            step = self._step_or_warn(tail, tail.row.written)
            if step is not None:
                tail.row.sync_started = step.target
                tail.dirty_since = None
                steps.append(step)
        return steps, wait

    def sync(self, steps: Sequence[Step]) -> list[Step]:
        """Make the steps' bytes durable. Returns those that are; the others are poisoned."""
        files = [file for step in steps for file in step.files]
        is_one = all(file.device == self._device for file in files)  # a directory may be a link to another disk
        if len(files) > self.options.single_files and is_one and self._all_at_once():
            return list(steps)
        done: list[Step] = []
        for step in steps:
            try:
                for file in step.files:
                    file.sync()
            except (OSError, StorageFull) as error:
                self._poison(step, error)
            else:
                done.append(step)
        return done

    def finish(self, steps: Sequence[Step]) -> None:
        """Say on the board what is durable. Its marks are left to `write_marks`."""
        for step in steps:
            tail = step.tail
            if self._board.epoch != self._epoch or not tail.owns_row() or tail.row.synced >= step.target:
                continue
            if tail.may_be_vouched_for():
                tail.row.synced = step.target
                self._unmarked[tail.number] = step
        self.rounds += 1

    def write_marks(self, now_s: float) -> float | None:
        """After a round, when its result was told. Returns in how many seconds marks are to be written or synced."""
        due = now_s >= self._marks_due_s
        for number, step in list(self._unmarked.items()):
            if due or step.tail.segments[0] is not step.files[-1]:
                del self._unmarked[number]
                self._mark(step)
        if due:
            self._marks_due_s = now_s + self.options.mark_s
        if self._unmarked:
            return self._marks_due_s - now_s
        return self._quiet_at - now_s if self._unsynced_marks else None

    def _mark(self, step: Step) -> None:
        """Write the mark of what was vouched for, and close what is sealed. Whatever fails here, it is synced."""
        tail = step.tail
        if self._board.epoch != self._epoch or not tail.owns_row():
            return
        try:
            if step.last is not None:
                step.files[-1].write_mark(step.target, step.last)
            self._seal(tail, step.files[-1])
        except (StorageFull, OSError) as error:
            self._warn(f"the mark of {tail.directory} could not be written: {error}")
        self._unsynced_marks.add(tail.number)

    def finish_all(self) -> None:
        """The broker is gone or stops: sync everything that was written, marks included, and close."""
        for tail in self._tails.values():
            tail.dirty_since = float("-inf")
        steps, _ = self.begin(float("inf"))
        self.finish(self.sync(steps))
        self._leave_unmarked()
        self.write_marks(float("inf"))
        self._sync_marks()
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    # -- parts ------------------------------------------------------------------------------------

    def _leave_unmarked(self) -> None:
        """Mark logs that the broker synced by itself: their records may be acknowledged, and marks were to come."""
        for number, tail in self._tails.items():
            if tail.may_be_vouched_for():
                step = self._step_or_warn(tail, max(tail.row.synced, tail.row.durable))
                if step is not None:
                    self._unmarked[number] = step

    def _dirty_rows(self) -> list[int]:
        """Rows where something is written that neither the keeper nor the broker has synced.

        Most rows have not moved since they were found clean, and one comparison of all says which.
        """
        watched = self._watched
        if watched is None:
            watched = self._watched = np.array(sorted(self._tails), np.intp)
            self._clean = np.zeros(len(watched), np.uint64)
        dirty: list[int] = []
        for place in np.flatnonzero(self._written[watched] != self._clean).tolist():
            number = int(watched[place])
            row = self._tails[number].row
            written = row.written
            if written <= max(row.durable, row.synced):
                self._clean[place] = written
            elif self._tails[number].may_be_vouched_for():
                dirty.append(number)
        return dirty

    def _due_in(self, tail: KeeperTail, now_s: float) -> float:
        """Seconds a dirty partition may still wait: only those whose records are acknowledged unsynced may."""
        if tail.row.level != Level.WRITTEN:
            return 0.0
        if tail.dirty_since is None:
            tail.dirty_since = now_s
        return tail.dirty_since + self.options.lazy_s - now_s

    def _step_or_warn(self, tail: KeeperTail, target: int) -> Step | None:
        try:
            return self._step(tail, target)
        except (OSError, StorageError) as error:
            # Nothing was vouched for yet, so nothing is lost: the broker sees no progress and syncs by itself.
            self._warn(f"cannot look at {tail.directory}: {error}")
            return None

    def _step(self, tail: KeeperTail, target: int) -> Step | None:
        """The files to sync for a partition up to `target`; None while its segment is not registered yet."""
        generation, seq = split(target)
        place = tail.holder_of(seq)
        if place < 0 or generation != tail.generation or not tail.owns_row():
            return None
        last = tail.segments[place].index_row(seq)
        return None if last is None else Step(tail, target, tail.segments[: place + 1], last)

    def _all_at_once(self) -> bool:
        """One syncfs; False when one ever failed: then each file has to be asked, through its own descriptor.

        The error names no file. It may be that of one outside this round, and it is not told again when that one's
        turn comes; or one that was told to its own partition already. The descriptors of the files know.
        """
        if self._all_is_well:
            try:
                self._sync_all()
            except OSError as error:
                self._all_is_well = False
                self._warn(f"syncing all files at once failed, each is synced by itself from now on: {error}")
        return self._all_is_well

    def _seal(self, tail: KeeperTail, newest: SegmentFiles) -> None:
        """Segments before `newest` are sealed and synced: sync their indexes, close them."""
        while tail.segments[0] is not newest:
            tail.segments[0].sync_index()
            tail.segments.pop(0).close()

    def _poison(self, step: Step, error: Exception) -> None:
        """Say on the board and on disk that what the step's sync covered may be lost."""
        tail = step.tail
        tail.silenced = True
        if self._board.epoch != self._epoch or not tail.owns_row():
            return
        tail.row.poison = step.target
        reason = f"the sync of {tail.directory} up to seq {split(step.target)[1]} failed: {error}"
        durable = split(max(tail.row.synced, tail.row.durable))[1]
        self._warn(poison.write(self._files, tail.directory, reason, durable=durable))

    def _quiet(self, now_s: float, wait: float | None) -> float | None:
        """With no sync due, sync the last marks after a while. Returns the seconds until there is more to do."""
        if self._unsynced_marks:
            if now_s < self._quiet_at:
                left = self._quiet_at - now_s
                return left if wait is None else min(left, wait)
            self._sync_marks()
        return wait

    def _sync_marks(self) -> None:
        """Make the marks durable that no later sync has carried."""
        tails = [self._tails[row] for row in sorted(self._unsynced_marks)]
        self._unsynced_marks.clear()
        steps = [Step(tail, tail.row.synced, tail.segments[-1:], None) for tail in tails if tail.may_be_vouched_for()]
        self.sync([step for step in steps if step.files])
