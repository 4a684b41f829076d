"""An archive as a source of a replay.

Idea: file names say which offsets are in them, so a portion opens only the files that it needs; files of other writers
(a Delta table that was compacted) are opened and searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...clients.errors import InvalidArgument
from ..errors import NoArchive
from ..schema import TYPES
from . import durable
from .archive import KIND
from .archive_files import SCHEMA
from .archive_layout import place_of
from .chunks import ArchiveChunk
from .identity import OWN, PIPELINE, PipelineIdentity, listed
from .tables import TableFormat, open_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = ", ".join(f"{name} {TYPES[name]}" for name in SCHEMA.names)
"""Those of a file, as Spark writes types."""


class Archived:
    """One topic of an archive."""

    def __init__(self, spark: SparkSession, directory: Path, topic: str | None) -> None:
        self._spark = spark
        self._directory = directory.absolute()
        self._whose = archive_at(self._directory)
        self._topic = _chosen(self._whose, topic)
        self.topics = {self._topic: self._whose.topics[self._topic]}

    def spans(self, start: datetime | None, end: datetime | None) -> list[ArchiveChunk]:
        """The records between two times, by partition."""
        from pyspark.sql import functions as F

        paths = self._files()
        if not paths:
            return []
        found = self._frame(paths, start, end).groupBy("partition")
        counted = found.agg(F.min("offset"), F.max("offset") + 1, F.count(F.lit(1))).sort("partition")
        return [ArchiveChunk(self._topic, *row) for row in counted.collect()]

    def read(self, spans: list[ArchiveChunk], start: datetime | None, end: datetime | None) -> DataFrame:
        """The rows, each partition by itself and in order."""
        from pyspark.sql import functions as F

        wanted = self._frame([path for path in self._files() if _overlaps(path, spans)], start, end)
        wanted = wanted.where(
            _any((F.col("partition") == s.partition) & F.col("offset").between(s.start, s.end - 1) for s in spans)
        )
        tasks = max(1, min(len(spans), self._spark.sparkContext.defaultParallelism))
        return wanted.repartition(tasks, "partition").sortWithinPartitions("partition", "offset")

    def _frame(self, paths: list[Path], start: datetime | None, end: datetime | None) -> DataFrame:
        from pyspark.sql import functions as F

        frame = self._spark.read.schema(COLUMNS).parquet(*(f"file://{path}" for path in paths))
        if start is not None:
            frame = frame.where(F.col("timestamp") >= F.lit(start))
        if end is not None:
            frame = frame.where(F.col("timestamp") < F.lit(end))
        return frame

    def _files(self) -> list[Path]:
        form = cast(TableFormat, self._whose.kind.partition(" ")[0])
        directory = self._directory / f"topic={self._topic}"
        return [
            path for path in open_table(form, self._directory, self._whose).files() if path.is_relative_to(directory)
        ]


def archive_at(directory: Path) -> PipelineIdentity:
    """The identity of the pipeline that wrote an archive. Raises NoArchive."""
    found = durable.read(directory / OWN / PIPELINE, PipelineIdentity)
    if found is None or not found.kind.endswith(KIND):
        raise NoArchive(f"{directory} holds no archive: name the directory that penstock spark archive wrote")
    return found


def _chosen(archive: PipelineIdentity, topic: str | None) -> str:
    if topic is None and len(archive.topics) == 1:
        return next(iter(archive.topics))
    if topic is None or topic not in archive.topics:
        other = "" if topic is None else f", and not of {topic}"
        raise InvalidArgument(f"{archive.target} is an archive of {listed(archive)}{other}: name one of them")
    return topic


def _overlaps(path: Path, spans: list[ArchiveChunk]) -> bool:
    place = place_of(path.name)
    if place is None:
        return True
    partition, first, last = place
    return any(span.partition == partition and first < span.end and last >= span.start for span in spans)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)
