"""Of batches that were read, those with records for the application, and whether they are what was written.

Contract: kinds that a stream skips are skipped; one that this version does not know ends the reading, because nobody
may skip it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..storage.batch import KINDS_OF_STREAMS, Batch, Kind
from ..storage.errors import BadChecksum, InvalidBatch, NewerFormat


def readable(found: Iterable[Batch], offset: int, end: int) -> list[Batch]:
    """Those with records from `offset` on and below `end`. Raises InvalidBatch, NewerFormat."""
    kept: list[Batch] = []
    for batch in found:
        if batch.kind not in KINDS_OF_STREAMS:
            if batch.kind not in Kind._value2member_map_:
                raise NewerFormat(
                    f"batch {batch.seq} is of kind {batch.kind}, unknown to this version; upgrade penstock"
                )
        elif batch.base_offset + batch.record_count > offset and batch.base_offset < end:
            kept.append(batch)
    return kept


def verify(batch: Batch, partition: int, topic: str, ids: Collection[int] | None = None) -> None:
    """Check every column, or those of `ids` in a batch that may lack others. Raises BadChecksum."""
    try:
        if ids is None:
            batch.check()
        else:
            batch.check_columns(ids)
    except InvalidBatch as error:
        raise BadChecksum(
            f"records {batch.base_offset} to {batch.end_offset - 1} of partition {partition} of topic "
            f"{topic} are damaged ({error}); reading on goes on behind them",
            next_offset=batch.end_offset,
        ) from error
