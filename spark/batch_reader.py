"""The source of a batch: everything between two positions, planned when the query runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from .filters import Filters
from .losses import settle
from .planning import PlannedSpan, beginning, divide
from .reading import SpanPartition, SpanReader
from .source_options import EARLIEST, SourceOptions
from .starting import ending, starting
from .subscription import Subscription


class BatchReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, url: str, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._spans = SpanReader(url, options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One or more for each partition of a topic that holds something to read."""
        pieces = divide(self._wanted(), self._options.min_partitions, self._options.max_partition_rows)
        return [SpanPartition([span]) for span in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one of them."""
        return self._spans.read(partition)

    def _wanted(self) -> list[PlannedSpan]:
        """The spans between the positions that the options name. Raises DataLoss, InvalidOffsets."""
        subscription = Subscription(self._options, self._spans.client)
        topics = subscription.topics()
        subscription.check(topics)
        begin = beginning(starting(self._options, EARLIEST, topics, subscription.times), topics)
        settle(begin.losses, self._options.fail_on_data_loss)
        end = ending(self._options, topics, subscription.times)
        ids = {topic.name: topic.id for topic in topics}
        found = [PlannedSpan(place, ids[place.topic], begin.positions[place], to.offset) for place, to in end.places()]
        return [span for span in found if span.rows > 0]


class FilteringReader(BatchReader):
    """Skips what filters exclude. A class of its own, because Spark refuses one that could, unless it is told to."""

    def __init__(self, url: str, options: SourceOptions, schema: StructType) -> None:
        super().__init__(url, options, schema)
        self._filters = Filters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be taken; what comes back Spark applies itself."""
        left = [given for given in filters if not self._filters.take(given)]
        self._spans.moments = self._filters.moments()
        return left

    def _wanted(self) -> list[PlannedSpan]:
        return self._filters.spans(super()._wanted())
