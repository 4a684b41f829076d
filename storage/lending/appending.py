"""Appending to a lent log, by the producer that has the grant.

    take the byte; is the grant mine and not paused? behind the broker's appends? index row; batch; `appended`;
    free the byte; wake readers; is the grant still mine?

Idea: the kernel's lock on one byte keeps the broker and the appender apart, and freeing it is the barrier after which
the appender looks at the grant again: either the broker, which took the grant away before its look at `appended`, has
seen the batch, or the appender sees that the grant is gone.

Contract: a batch is acknowledged only if `append` returns its place. After None, or an exception, it may stand in the
log or not: it is sent again through the broker, under the same sequence. What cannot be finished ends the grant. What
a signal's handler raises in the middle is raised. The
appender reserves, rolls, cuts and syncs nothing. One thread at a time. A forked child can change nothing through it.
Must not know: how batches are made, how the grant came.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .. import forks, layout
from ..batch import parse
from ..board_row import PAUSED, Row
from ..errors import Corrupt, Error
from ..header import EVENT_TIMES, HEADER_BYTES_MAX, ColumnId, Kind, Stamp
from ..layout import INDEX_ROW_BYTES, INDEX_ROW_STRUCT, IndexRow, split, word
from ..plan import CODEC_AT, Appended, columns_of, inspect, settled
from ..recovery import LogEnd, end_offset_of
from .grant import GOOD_S, LogGrant, byte_of

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ..files import File


ALLOWED = frozenset({
    ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS, ColumnId.EVENT_TIME, ColumnId.KEY_VALIDITY,
    ColumnId.VALUE_VALIDITY, ColumnId.HEADER_LIST,
})  # fmt: skip
"""Columns of plain records: no priorities, delays, dedup keys or effects, which change more than the end."""


HEADERS_BYTES_MAX = 4 << 20
"""Of a batch with headers that is appended: a broker takes so much of them."""


TAKEN_BACK = "the broker took the log back"
BORROWED = "the broker was appending to the log"
NO_ROOM = "the segment is full, or has no room for a batch so large: the broker appends it, and begins a new one"
NOT_PLAIN = "a batch had more than plain records (delays, priorities, dedup keys, a codec, headers of over 4 MiB)"
"""Why a batch was not appended, for people."""


class ByteLocks(Protocol):
    """Locks on bytes, of one opening of a file (storage/range_locks.py)."""

    def take(self, number: int) -> bool:
        """Take a byte. False while another opening has it."""
        ...

    def give_back(self, number: int) -> None:
        """Let others take it."""
        ...

    def close(self) -> None:
        """Let go of all. Idempotent."""
        ...


class AppendWakes(Protocol):
    """What is told of an append (waking.py)."""

    @property
    def asleep(self) -> int:
        """The number of the broker's present sleep, or 0."""
        ...

    def wake(self) -> None:
        """Wake sleeping readers."""
        ...


class DirectAppender:
    """One grant in use. `locks` is an opening of its own, `incarnation` gives that of DATA/lock as it is now."""

    def __init__(
        self,
        grant: LogGrant,
        row: Row,
        locks: ByteLocks,
        segment: File,
        index: File,
        *,
        incarnation: Callable[[], int],
        monotonic: Callable[[], float],
        wakes: AppendWakes | None = None,
    ) -> None:
        self.ended = False
        self.trouble: BaseException | None = None  # that ended the grant
        self.in_doubt = False  # of the last batch: it may stand, though it was not acknowledged
        self.paused = False  # of the last batch: nothing was written, and soon it can be
        self.why = TAKEN_BACK  # the last batch was not appended, unless it is in doubt or there is trouble
        self._grant = grant
        self._row = row
        self._locks = locks
        self._segment = segment
        self._index = index
        self._incarnation = incarnation
        self._monotonic = monotonic
        self._wakes = wakes
        self._byte = byte_of(grant.row)
        self._end = grant.end
        self._allocated = segment.size()
        self._process = os.getpid()
        forks.tell(self)

    def _forked(self) -> None:
        """A child that goes on in the middle of an append, which a signal's handler interrupted, writes nothing."""
        self.ended = True
        self._segment.close()
        self._index.close()
        self._row.words.release()

    def append(self, batch: Buffer) -> Appended | None:
        """Append one batch of the granted producer. None: it goes through the broker; see the module."""
        self.in_doubt = self.paused = False
        if self.ended or os.getpid() != self._process:
            return None
        try:
            if not self._locks.take(self._byte):
                self.paused, self.why = True, BORROWED
                return None
            appended = self._append(batch)
            self._locks.give_back(self._byte)
            if appended is not None and self._wakes is not None:
                self._wakes.wake()
            if appended is not None and self._is_current():
                self.in_doubt = False
                return appended
        except BaseException as error:
            self.end()
            if not (_is_of_files(error) or (os.getpid() != self._process and isinstance(error, ValueError))):
                raise  # Ctrl-C, or what a signal's handler raised
            self.trouble = error
            return None
        if appended is not None or self.ended:
            self.end()
        return None

    @property
    def has_grant(self) -> bool:
        """Whether the log is lent to it still. For people: that may change at once."""
        return not self.ended and self._is_current()

    @property
    def asleep(self) -> int:
        """The number of the sleep that the broker is in, which wants a message then; 0 if it is awake."""
        return 0 if self._wakes is None else self._wakes.asleep

    @property
    def grant(self) -> LogGrant:
        """What it appends under."""
        return self._grant

    @property
    def last(self) -> LogEnd:
        """Where the log ends behind the last batch that was acknowledged."""
        return self._end

    def end(self) -> None:
        """Give the grant up, and the byte. Idempotent."""
        self.ended = True
        self._locks.close()
        self._segment.close()
        self._index.close()

    def _is_current(self) -> bool:
        """Whether the log is still lent under this grant, by the broker that gave it."""
        grant = self._grant
        return self._row.lent & ~PAUSED == grant.number and self._incarnation() == grant.incarnation

    def _append(self, batch: Buffer) -> Appended | None:
        """The byte is held. None: nothing was written."""
        grant, row = self._grant, self._row
        if not self._is_current() or row.poison:
            self.ended, self.why = True, TAKEN_BACK
            return None
        if row.lent & PAUSED:
            self.paused, self.why = True, BORROWED
            return None
        generation, written = split(row.written)
        if generation != grant.generation:
            self.ended, self.why = True, TAKEN_BACK
            return None
        if written > self._end.seq:
            self._reload(written)
        moved_s = self._monotonic() - grant.monotonic_s
        if moved_s > GOOD_S:
            self.ended = True
            return None
        before, size = self._end, len(batch)
        position = before.position + size
        if not self._has_room(position):
            self.why = NO_ROOM
            return None
        time_us = max(before.time_us, grant.time_us + int(moved_s * 1e6))
        place = Stamp(before.seq + 1, before.offset, before.term, grant.log_id, time_us, before.checksum)
        found = inspect(batch, size, grant.max_batch_bytes)
        if not is_plain(batch, found):
            self.why = NOT_PLAIN
            return None
        entry = settled(batch, found, before.position, place)
        self.in_doubt = True
        self._index.pwritev((entry.row,), layout.index_position(grant.base_seq, place.seq))
        self._segment.pwritev(entry.buffers, before.position)
        self._end = LogEnd(place.seq, position, entry.end_offset, entry.checksum, time_us, before.term)
        row.appended = word(generation, place.seq)
        return Appended(place.seq, before.offset, before.position)

    def _has_room(self, end: int) -> bool:
        if end > self._grant.segment_bytes:
            return False
        if end > self._allocated:
            self._allocated = self._segment.size()
        return end <= self._allocated

    def _reload(self, seq: int) -> None:
        """The broker appended up to `seq`. Raises Corrupt, InvalidBatch unless its index row and header agree."""
        data = self._index.pread(INDEX_ROW_BYTES, layout.index_position(self._grant.base_seq, seq))
        if len(data) < INDEX_ROW_BYTES:
            raise Corrupt(f"batch {seq} has no index row", path=self._index.path)
        row = IndexRow(*INDEX_ROW_STRUCT.unpack(data))
        available = self._segment.size() - row.position
        batch = parse(self._segment.pread(min(HEADER_BYTES_MAX, available), row.position), available=available)
        if (batch.seq, batch.log_id, batch.header_checksum) != (seq, self._grant.log_id, row.header_checksum):
            raise Corrupt(f"the index row of batch {seq} does not agree with it", path=self._index.path)
        position, offset = row.position + batch.batch_bytes, end_offset_of(batch)
        self._end = LogEnd(seq, position, offset, batch.header_checksum, batch.append_time_us, batch.term)


def _is_of_files(error: BaseException) -> bool:
    """Whether an append failed by itself. What the application raises has no errno, also where it is a TimeoutError."""
    return isinstance(error, Error) or (isinstance(error, OSError) and error.errno is not None)


def is_plain(batch: Buffer, found: tuple[int, int, int, int]) -> bool:
    """Whether a batch that `inspect` found good is one that a broker takes without looking: what it says of other
    batches depends on libraries and limits of its own."""
    kind, _, _, columns = found
    ids, codecs = columns_of(batch, columns), columns_of(batch, columns, at=CODEC_AT)
    if kind != Kind.RECORDS or any(codecs) or not ALLOWED.issuperset(ids):
        return False
    if ColumnId.HEADERS in ids and len(batch) > HEADERS_BYTES_MAX:
        return False
    if ColumnId.EVENT_TIME not in ids:
        return True
    times = parse(batch).event_times()
    assert times is not None, "the directory has the column"
    return EVENT_TIMES[0] <= times.min() and times.max() <= EVENT_TIMES[1]
