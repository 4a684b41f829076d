"""Selects batches with records for the application, and verifies them.

Contract: kinds that a stream skips are skipped; one that this version does not know ends the reading, because it
must not be skipped. Good batches before it come first. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...storage.batch import KINDS_OF_STREAMS, Batch, Kind
from ...storage.errors import BadChecksum, Corrupt, Error, InvalidBatch, NewerFormat, OutOfBounds
from ...storage.record import Record, records

Readable = tuple[list[Batch], "Error | None"]
"""Batches for the application, and the error behind them, if any."""


def readable(found: Iterable[Batch], offset: int, end: int) -> Readable:
    """The batches with records from `offset` on and below `end`. The error is InvalidBatch or NewerFormat."""
    kept: list[Batch] = []
    try:
        for batch in found:
            if batch.kind not in KINDS_OF_STREAMS:
                _check_known(batch)
            elif batch.base_offset + batch.record_count > offset and batch.base_offset < end:
                kept.append(batch)
    except (InvalidBatch, NewerFormat) as error:
        return kept, error
    return kept, None


def _check_known(batch: Batch) -> None:
    if batch.kind not in Kind._value2member_map_:
        raise NewerFormat(f"batch {batch.seq} is of kind {batch.kind}, unknown to this version; upgrade penstock")


def verify(batch: Batch, partition: int, topic: str, ids: Collection[int] | None = None) -> None:
    """Check every column, or those of `ids` in a batch that may lack others. Raises Corrupt, mostly BadChecksum."""
    try:
        if ids is None:
            batch.check()
        else:
            batch.check_columns(ids)
    except InvalidBatch as error:
        raise damaged(batch, partition, topic, error) from error


def checked_records(batch: Batch, start: int, partition: int, topic: str) -> list[Record]:
    """The records from offset `start` on, every column verified. Raises Corrupt, MissingCodec."""
    try:
        batch.check()
        return records(batch, start=start, partition=partition, topic=topic)
    except InvalidBatch as error:
        raise damaged(batch, partition, topic, error) from error


def damaged(batch: Batch, partition: int, topic: str, error: InvalidBatch) -> Corrupt:
    """The error for a batch that cannot be read because of `error`: it says where reading continues."""
    kind = BadChecksum if isinstance(error, BadChecksum) else Corrupt
    return kind(
        _sentence(batch.base_offset, batch.end_offset, partition, topic, error.message), next_offset=batch.end_offset,
        topic=topic, partition=partition,
    )  # fmt: skip


def removed(offset: int, next_offset: int, partition: int, topic: str) -> OutOfBounds:
    """The error for unread records that retention removed."""
    error = OutOfBounds(
        f"retention removed records {offset} to {next_offset - 1} of partition {partition} of topic {topic} before "
        f"they were read here; reading on goes on at {next_offset}; a topic with retain_unread keeps what its groups "
        "have yet to commit"
    )
    error.offset = next_offset
    return error


def missing(
    offset: int, next_offset: int, partition: int, topic: str, reason: str, kind: type[Corrupt] = Corrupt
) -> Corrupt:
    """The error for records that did not come, because damage hides them."""
    sentence = _sentence(offset, next_offset, partition, topic, reason)
    return kind(sentence, next_offset=next_offset, topic=topic, partition=partition)


def _sentence(offset: int, next_offset: int, partition: int, topic: str, reason: str) -> str:
    return (
        f"records {offset} to {next_offset - 1} of partition {partition} of topic {topic} are damaged ({reason}); "
        "reading on goes on behind them"
    )
