"""Judging: checks a client's batch before it can be acknowledged.

Idea: the broker answers for every record it acknowledged, so it checks everything that a reader relies on: the layout,
every checksum, the contents of compressed columns, the shape of headers. Every reader can decode a batch that passes.

Contract: raises and has changed nothing, or returns a records batch that claims nothing only a broker may write.
Bounded work: a batch inflates to INFLATED_BYTES_MAX at most, and has HEADERS_BYTES_MAX of headers. A batch of plain
values costs a few comparisons beside its checksums. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ....storage import columns
from ....storage.batch import ALIGNMENT, Batch, Codec, Column, ColumnId, Kind, parse, parse_few
from ....storage.codecs import inflate
from ....storage.encoding import HEADER_DECODER, LIST_DECODER
from ....storage.errors import BatchTooLarge, InvalidBatch, MissingCodec, RecordTooLarge, way_to_install
from ....storage.header import CRITICAL, EVENT_TIMES, HEADER_BYTES, RESERVED_POSITION, aligned
from ....storage.header_list import HeaderList

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ..ports import Now, Payload

ALLOWED = frozenset({
    ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS, ColumnId.EVENT_TIME, ColumnId.KEY_VALIDITY, ColumnId.PRIORITY,
    ColumnId.NOT_BEFORE, ColumnId.DEDUP, ColumnId.VALUE_VALIDITY, ColumnId.HEADER_LIST,
})  # fmt: skip
"""Columns a producer may send. The others are the broker's, or reserved until a reader knows what they mean."""

KINDS = frozenset({Kind.RECORDS, Kind.STAGED})
"""Kinds a producer may send."""

_VALUE, _KEY, _HEADERS, _DEDUP = map(int, (ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS, ColumnId.DEDUP))
_EVENT_TIME, _NOT_BEFORE = int(ColumnId.EVENT_TIME), int(ColumnId.NOT_BEFORE)
_HEADER_LIST = int(ColumnId.HEADER_LIST)
_VALIDITY = {_VALUE: int(ColumnId.VALUE_VALIDITY), _KEY: int(ColumnId.KEY_VALIDITY)}

SIZED = {_VALUE: "a value", _KEY: "a key", _HEADERS: "headers", _HEADER_LIST: "a list of headers"}
"""What `max_record_bytes` limits, each by itself."""

INFLATED_BYTES_MAX = 32 << 20
"""What the compressed columns of one batch may inflate to, together: the broker inflates them to judge them."""

HEADERS_BYTES_MAX = 4 << 20
"""Of headers in one batch: the broker decodes each, which takes longer than any other check."""

DELAY_MAX_S = 10 * 366 * 86400
"""How far ahead a record may be delayed: a later time is in another unit than microseconds."""

_RESERVED = bytes(HEADER_BYTES - RESERVED_POSITION)


def judge(payload: Payload, max_frame_bytes: int, max_record_bytes: int, now: Now) -> Batch:
    """The batch of a Produce. Raises InvalidBatch, BatchTooLarge, RecordTooLarge, BadChecksum, MissingCodec."""
    size = len(payload)
    if size > max_frame_bytes:
        raise BatchTooLarge(f"the batch has {size} bytes, the limit is {max_frame_bytes}: send it in smaller ones")
    few = parse_few(payload) if size <= max_record_bytes else None
    if few is not None:
        _check_producer(few)
        return few
    batch = parse(payload)
    if batch.batch_bytes != size:
        raise InvalidBatch(f"{size} bytes were sent for one batch of {batch.batch_bytes}: send one batch per request")
    _check_header(batch)
    batch.check()
    _check_layout(batch)
    if batch.column_count > 1 or batch.directory()[0].codec or size > max_record_bytes:
        _check_columns(batch, max_frame_bytes, max_record_bytes, now)
    return batch


def _check_header(batch: Batch) -> None:
    """Check the header fields that a producer sets."""
    if batch.kind not in KINDS or batch.flags:
        raise InvalidBatch(f"a batch of kind {batch.kind} with flags {batch.flags} cannot be produced: only records")
    _check_producer(batch)
    if batch.buffer[RESERVED_POSITION:HEADER_BYTES] != _RESERVED:
        raise InvalidBatch(f"bytes {RESERVED_POSITION} to {HEADER_BYTES - 1} of the header are reserved: leave them 0")


def _check_producer(batch: Batch) -> None:
    """Check who sends it, and where it stands in the producer's sequence."""
    if batch.first_sequence < 0:
        raise InvalidBatch(f"the first sequence {batch.first_sequence} is below 0")
    if not batch.producer_id and (batch.first_sequence or batch.producer_epoch):
        raise InvalidBatch(
            f"a batch without a producer id has first sequence {batch.first_sequence} and epoch "
            f"{batch.producer_epoch}: leave both 0"
        )


def _check_layout(batch: Batch) -> None:
    """Allowed columns, one behind the other from the directory to the end of the batch."""
    end = batch.header_bytes
    for column in batch.directory():
        if column.id not in ALLOWED:
            raise InvalidBatch(f"column {column.id} cannot be produced")
        if column.flags & ~CRITICAL:
            raise InvalidBatch(f"column {column.id} has flags {column.flags}, of which only {CRITICAL} is defined")
        if column.position != end:
            raise InvalidBatch(
                f"column {column.id} begins at {column.position} instead of {end}: lay columns out in the order "
                f"of the directory, each on the next multiple of {ALIGNMENT}"
            )
        end = aligned(end + column.stored_bytes)
    if end != batch.batch_bytes:
        raise InvalidBatch(f"the columns end at {end}, the batch at {batch.batch_bytes}: leave nothing behind them")


def _check_columns(batch: Batch, max_frame_bytes: int, max_record_bytes: int, now: Now) -> None:
    """Check the contents of the columns."""
    found = {column.id: column for column in batch.directory()}
    if _DEDUP in found and batch.kind == Kind.STAGED:
        raise InvalidBatch("staged records cannot have dedup keys: a transaction is committed once anyway")
    _check_work(found, min(INFLATED_BYTES_MAX, max_frame_bytes))
    present = {id_: _present(batch, found, id_) for id_, validity in _VALIDITY.items() if validity in found}
    for id_, what in SIZED.items():
        column = found.get(id_)
        if column is None:
            continue
        partial = present.get(id_)
        # Of any other column, `Batch.check` has seen all there is.
        if column.codec or column.raw_bytes > max_record_bytes or id_ == _HEADERS or partial is not None:
            raw = _raw(batch, column)
            _check_records(what, raw, batch.record_count, max_record_bytes, partial)
            if id_ == _HEADERS:
                _check_headers(raw, batch.record_count)
    if _HEADER_LIST in found:
        _check_lists(batch)
    if _EVENT_TIME in found:
        _check_event_times(batch)
    if _NOT_BEFORE in found:
        _check_delays(batch, now)


def _check_work(found: dict[int, Column], inflated_most: int) -> None:
    """The limits on what is inflated and decoded, before any of it is."""
    inflated = sum([column.raw_bytes for column in found.values() if column.codec])
    if inflated > inflated_most:
        raise BatchTooLarge(
            f"the compressed columns have {inflated} bytes when inflated, the limit is {inflated_most}: send smaller "
            "batches"
        )
    headers_bytes = sum([column.raw_bytes for id_, column in found.items() if id_ in (_HEADERS, _HEADER_LIST)])
    if headers_bytes > HEADERS_BYTES_MAX:
        raise BatchTooLarge(
            f"the headers of the batch have {headers_bytes} bytes, the limit is {HEADERS_BYTES_MAX}: send smaller "
            "batches, and what is large as values"
        )


def _raw(batch: Batch, column: Column) -> Buffer:
    """The inflated bytes of a column. Raises InvalidBatch, MissingCodec."""
    stored = batch.stored(column)
    try:
        return inflate(column.codec, stored, column.raw_bytes) if column.codec else stored
    except MissingCodec:
        raise MissingCodec(
            f"the broker cannot check a batch that is compressed with {Codec(column.codec).name.lower()}: "
            f"where the broker runs, {way_to_install('codecs')}, or produce with codec='none'"
        ) from None


def _check_records(what: str, raw: Buffer, count: int, most: int, present: np.ndarray | None) -> None:
    """No record is over the limit of its topic, and those that are not `present` have no bytes."""
    columns.check_variable(raw, count)
    lengths = np.diff(columns.offsets_of(raw, count))
    largest = int(lengths.max())
    if largest > most:
        raise RecordTooLarge(
            f"a record with {what} of {largest} bytes is over the topic's max_record_bytes={most}: "
            "raise the setting or split the record"
        )
    if present is not None and lengths[~present].any():
        raise InvalidBatch(f"a record without {what} has bytes in the column of them: leave them out")


def _check_headers(raw: Buffer, count: int) -> None:
    """One map of text to bytes for each record, or nothing. A map that all records share is decoded once."""
    one = columns.shared(raw, count)
    packed = filter(None, columns.decode_variable(raw, count) if one is None else [one])
    try:
        deque(map(HEADER_DECODER.decode, packed), maxlen=0)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"the headers of a record must be a msgpack map of text to bytes ({error})") from None


def _check_lists(batch: Batch) -> None:
    """A list of pairs for some records, beside a map that has what of it fits one."""
    maps, count = batch.column(_HEADERS), batch.record_count
    if maps is None:
        raise InvalidBatch("a batch without headers has lists of them: leave column 15 out, or give the maps, too")
    found, lists = columns.decode_variable(maps, count), batch.column(_HEADER_LIST)
    assert lists is not None, "the directory has the column"
    for packed, listed in zip(found, columns.decode_variable(lists, count), strict=True):
        if not listed:
            continue
        try:
            pairs = HeaderList(LIST_DECODER.decode(listed))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            what = "must be a msgpack array of pairs of text and bytes or nil"
            raise InvalidBatch(f"a list of headers {what} ({error})") from None
        if pairs != (HEADER_DECODER.decode(packed) if packed else {}):
            raise InvalidBatch("a record has other headers in its list than in its map: the last value of each name")


def _present(batch: Batch, found: dict[int, Column], id_: int) -> np.ndarray:
    """A mask of the records with a key, or a value."""
    if id_ not in found:
        raise InvalidBatch(f"a batch without keys says which of them are there: leave column {_VALIDITY[id_]} out")
    bitmap, count = batch.stored(found[_VALIDITY[id_]]), batch.record_count
    if count % 8 and bitmap[-1] >> count % 8:
        raise InvalidBatch(
            f"column {_VALIDITY[id_]} has bits behind the last of {count} records: fill its last byte with 0"
        )
    return columns.decode_validity(bitmap, count)


def _check_event_times(batch: Batch) -> None:
    """Refuse times that no calendar has."""
    times = batch.event_times()
    assert times is not None, "the directory has the column"
    for time_us in (int(times.min()), int(times.max())):
        if not EVENT_TIMES[0] <= time_us <= EVENT_TIMES[1]:
            raise InvalidBatch(f"event time {time_us} is outside the years 1 to 9999: give microseconds since 1970 UTC")


def _check_delays(batch: Batch, now: Now) -> None:
    """Refuse delays that cannot be meant."""
    times = batch.not_before()
    assert times is not None, "the directory has the column"
    earliest, latest = int(times.min()), int(times.max())
    if earliest < 0:
        raise InvalidBatch(f"not_before={earliest} is negative: give microseconds since 1970 UTC, or 0 for at once")
    if latest > now.wall_us + DELAY_MAX_S * 1_000_000:
        raise InvalidBatch(
            f"not_before={latest} is more than 10 years after the broker's time {now.wall_us}: "
            "give microseconds since 1970 UTC, or a shorter delay"
        )
