"""A reading: the records of one lease, gathered batch by batch.

Idea: a batch is sent whole when most of it is leased, or when cutting it would cost more than sending it; otherwise
the leased records are copied into a batch of their own.

Contract: batches come in the order of the runs, each whole one once. At most `max_bytes`, except for the first record;
records that did not fit stay in `rest`. Must not know how batches are found. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....storage.batch import Kind
from .....storage.errors import BadChecksum, InvalidBatch, MissingCodec
from .....storage.kept import cut, keep, runs_of

if TYPE_CHECKING:
    from collections.abc import Buffer, Sequence  # pyright: ignore[reportAttributeAccessIssue]

    from .....storage.batch import Batch
    from .....storage.reader import Cursor
    from ...logs.partition import Partition
    from ...tables.queues.leases import Range, Run

SPARE_BYTES = 128 << 10
"""So many extra bytes are sent rather than cut off: cutting costs as much as sending them."""

SLICE_SPARE_BYTES = 8 << 10
"""The same of a batch that is not compressed, for records without a gap: a slice costs little."""

CUT_BYTES, CUT_RECORD_BYTES = 1024, 16
"""Overhead of a cut batch: columns of offsets and times, and a header."""


class Spot:
    """A place in a partition: batches that were read, and the cursor behind them."""

    __slots__ = ("at", "batches", "cursor", "record_bytes")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.batches: list[Batch] = []
        self.at = 0  # the batch that was used last
        self.record_bytes = 0.0  # of the records that were read last

    def holding(self, offset: int) -> Batch | None:
        """The batch that holds a record, if it was read and not passed yet."""
        batches, at = self.batches, self.at
        while at < len(batches) and batches[at].end_offset <= offset:
            at += 1
        if at == len(batches) or batches[at].base_offset > offset:
            return None
        self.at = at
        return batches[at]

    def leads_to(self, offset: int) -> bool:
        """Whether reading on from here comes to a record at once."""
        return self.cursor.offset == offset

    @property
    def read_bytes(self) -> int:
        """The bytes it keeps in memory."""
        return sum([batch.batch_bytes for batch in self.batches])


class LeaseReading:
    """A lease on its way out."""

    __slots__ = ("kept", "max_bytes", "partition", "pieces", "rest", "seqs", "size", "spot")

    def __init__(self, partition: Partition, runs: Sequence[Run], max_bytes: int) -> None:
        self.partition = partition
        self.rest: list[Range] = [(first, count) for first, count, _ in reversed(runs)]  # the next one last
        self.max_bytes = max_bytes
        self.pieces: list[Buffer] = []
        self.seqs: set[int] = set()
        self.size = 0
        self.spot: Spot | None = None
        self.kept: Batch | None = None  # the one with records carried forward that was read last

    def take(self, batch: Batch) -> bool:
        """Take the next records out of a batch that has the first of them. False: they do not fit any more."""
        ranges = self._next_of(batch)
        if batch.seq not in self.seqs:
            ranges = self._fitting(batch, ranges)
            if not ranges or not self._add(batch, ranges):
                return False
        for first, count in ranges:
            self._gone(first, count)
        return True

    @property
    def payload(self) -> Buffer:
        """The second frame."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def _next_of(self, batch: Batch) -> list[Range]:
        """As much of the next records as a batch has."""
        if batch.kind == Kind.KEPT:
            return [_without_gap(batch, *self.rest[-1])]
        ranges: list[Range] = []
        for first, count in reversed(self.rest):
            if not batch.base_offset <= first < batch.end_offset or (ranges and first < sum(ranges[-1])):
                break
            ranges.append((first, min(count, batch.end_offset - first)))
            if first + count > batch.end_offset:
                break
        return ranges

    def _fitting(self, batch: Batch, ranges: list[Range]) -> list[Range]:
        """As many of the next records as there is room for, taking those of a batch to be of one size."""
        room = self.max_bytes - self.size
        if batch.batch_bytes <= room:
            return ranges
        each = batch.batch_bytes // batch.record_count + CUT_RECORD_BYTES
        most = max((room - CUT_BYTES) // each, 0 if self.pieces else 1)
        kept: list[Range] = []
        for first, count in ranges:
            kept.append((first, min(count, most)))
            most -= count
            if most <= 0:
                break
        return [(first, count) for first, count in kept if count > 0]

    def _add(self, batch: Batch, ranges: list[Range]) -> bool:
        wanted = sum([count for _, count in ranges])
        spare = batch.batch_bytes * (batch.record_count - wanted) // batch.record_count
        fits = self.size + batch.batch_bytes <= self.max_bytes
        whole = wanted == batch.record_count or (fits and spare <= _spare_bytes(batch, ranges))
        try:
            piece = batch.buffer if whole else _cut(batch, ranges)
        except MissingCodec:
            piece, whole = batch.buffer, True  # its worker may have the library
        if self.pieces and self.size + len(piece) > self.max_bytes:
            return False
        if whole:
            self.seqs.add(batch.seq)
        self.pieces.append(piece)
        self.size += len(piece)
        return True

    def _gone(self, first: int, count: int) -> None:
        """The next records are taken."""
        at, many = self.rest.pop()
        assert at == first
        if many > count:
            self.rest.append((first + count, many - count))


def _spare_bytes(batch: Batch, ranges: Sequence[Range]) -> int:
    """How many extra bytes of a batch are sent rather than cut off."""
    is_slice = len(ranges) == 1 and batch.kind == Kind.RECORDS and not any(each.codec for each in batch.directory())
    return SLICE_SPARE_BYTES if is_slice else SPARE_BYTES


def _cut(batch: Batch, ranges: Sequence[Range]) -> Buffer:
    """Read the chosen records of a batch. Raises MissingCodec, and BadChecksum with the end of a damaged batch."""
    runs, is_plain = runs_of(batch, ranges), batch.kind == Kind.RECORDS
    try:
        return cut(batch, *runs[0]) if is_plain and len(runs) == 1 else keep(batch, runs)
    except InvalidBatch as error:
        raise BadChecksum(error.message, next_offset=batch.end_offset if is_plain else None) from error


def _without_gap(batch: Batch, first: int, count: int) -> Range:
    """As much of a range as a batch of kept records has of it without a gap."""
    start = batch.first_at(first)
    here = batch.offsets()[start : start + count]
    gaps = (here != range(first, first + len(here))).nonzero()[0]
    return first, int(gaps[0]) if len(gaps) else len(here)
