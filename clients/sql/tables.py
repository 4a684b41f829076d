"""A topic as a table for DuckDB: an Arrow dataset that reads what a scan asks for, while it is scanned.

Idea: DuckDB hands each scan's columns and filter to `scanner`. Partitions and offsets outside of the filter's bounds
are not read, nor are batches whose time is outside, nor columns that were not asked for; the rest are views of mapped
segments. A table holds what was committed when it was made.

Contract: Arrow applies the filter to what is read, so bounds that are too wide cost time only. Must not know: clients,
sockets; `read` yields the batches of a range, in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage.arrow import kit, record_batch
from ...storage.batch import Batch, ColumnId, Origin
from ...storage.errors import MissingLibrary, way_to_install
from ..descriptions import Partition, Topic
from .bounds import Bounds, Span, bounds_of

if TYPE_CHECKING:
    import pyarrow as pa

Read = Callable[[str, int, int, int, Sequence[str]], Iterator[Batch]]
"""The batches with the records of a topic's partition from one offset to another, with these columns."""

COLUMNS = ("offset", "timestamp", "partition", "key", "value", "headers", "topic")
"""The cheapest come first: DuckDB reads the first one to count rows."""


@lru_cache(maxsize=1)
def schema() -> pa.Schema:
    """The columns of every topic. Raises MissingLibrary."""
    arrow = kit()
    import pyarrow as pa

    topic = pa.dictionary(pa.int32(), pa.string())
    types = (arrow.int64, arrow.time, arrow.int32, arrow.binary, arrow.binary, arrow.headers, topic)
    return pa.schema(list(zip(COLUMNS, types, strict=True)))


class Unfiltered(NamedTuple):
    """What DuckDB uses of a scanner. Arrow's own takes as long for a batch as reading it, for nothing."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def to_reader(self) -> pa.RecordBatchReader:
        """The stream of batches, once."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.batches)


def table(topic: Topic, read: Read) -> Any:
    """A topic as a dataset of Arrow that is read as it is scanned. Raises MissingLibrary."""
    return _dataset_type()(topic, read)


@lru_cache(maxsize=1)
def _dataset_type() -> Any:
    """The class of tables: made late, as pyarrow is an extra."""
    try:
        import pyarrow.dataset as ds
    except ModuleNotFoundError:
        raise MissingLibrary(f"SQL needs pyarrow and duckdb: {way_to_install('sql')}") from None

    class TopicTable(ds.InMemoryDataset):
        """See the module."""

        def __init__(self, topic: Topic, read: Read) -> None:
            super().__init__(schema().empty_table())
            self._topic = topic
            self._read = read

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Any:
            """What DuckDB asks for, read while it is scanned."""
            names = COLUMNS if columns is None else tuple(columns)
            text = "" if filter is None else str(filter)
            used = used_columns(names, text)
            found = record_batches(self._topic, self._read, used, bounds_of(text))
            part = _schema_of(used)
            if filter is None:
                return Unfiltered(part, found)
            return ds.Scanner.from_batches(found, schema=part, columns=list(names), filter=filter, **options)

    return TopicTable


def used_columns(names: Sequence[str], filter_text: str) -> tuple[str, ...]:
    """The columns that are handed out or filtered by."""
    return tuple(name for name in COLUMNS if name in names or name in filter_text)


def _schema_of(names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([schema().field(name) for name in names])


def record_batches(topic: Topic, read: Read, names: tuple[str, ...], bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """The records of a topic within bounds, with these columns, and perhaps some that are outside by time."""
    for partition in topic.partitions:
        if bounds.partition.holds(partition.partition):
            yield from _partition_batches(topic, partition, read, names, bounds)


def _partition_batches(
    topic: Topic, partition: Partition, read: Read, names: tuple[str, ...], bounds: Bounds
) -> Iterator[pa.RecordBatch]:
    start, end = max(partition.first, bounds.offset.least), min(partition.end, bounds.offset.most + 1)
    if start >= end:
        return
    origin = Origin(topic.name, partition.partition)
    for batch in read(topic.name, partition.partition, start, end, names):
        if _may_hold(batch, bounds.timestamp):
            found = record_batch(batch, names, start, origin)
            yield found.slice(0, batch.first_at(end) - batch.first_at(start)) if batch.end_offset > end else found


def _may_hold(batch: Batch, times: Span) -> bool:
    """Whether a record of the batch may have such a time: without times of its own, all have that of the append."""
    return batch.has(ColumnId.EVENT_TIME) or times.holds(batch.append_time_us)
