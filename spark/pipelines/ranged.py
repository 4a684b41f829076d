"""A range of a topic as a source of a replay."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from ...clients.errors import InvalidArgument
from .chunks import ArchiveChunk
from .running import FORMAT
from .topics import ask, ids_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Ranged:
    """Records of a topic that are still there."""

    def __init__(self, spark: SparkSession, url: str, topic: str | None) -> None:
        if topic is None:
            raise InvalidArgument("there is nothing to replay: name an archive or a topic")
        self._spark = spark
        self._url = url
        self._topic = topic
        self.topics = ids_of(url, [topic])

    def spans(self, start: datetime | None, end: datetime | None) -> list[ArchiveChunk]:
        """The records appended between two times."""
        with ask(self._url) as client:
            starts, ends = (
                client.offsets(self._topic, start or "earliest"),
                client.offsets(self._topic, end or "latest"),
            )
        return [
            ArchiveChunk(self._topic, partition, first, ends[partition], ends[partition] - first)
            for partition, first in sorted(starts.items())
            if first < ends.get(partition, 0)
        ]

    def read(self, spans: list[ArchiveChunk], start: datetime | None, end: datetime | None) -> DataFrame:
        """The rows, one task per partition."""
        reader = self._spark.read.format(FORMAT).option("url", self._url).option("includeHeaders", "true")
        reader = reader.option("assign", json.dumps({self._topic: [span.partition for span in spans]}))
        reader = reader.option("startingOffsets", self._offsets({span.partition: span.start for span in spans}))
        return reader.option("endingOffsets", self._offsets({span.partition: span.end for span in spans})).load()

    def _offsets(self, positions: dict[int, int]) -> str:
        return json.dumps({self._topic: {str(partition): offset for partition, offset in positions.items()}})
