"""A streaming query from a folder of text files to a topic, a micro-batch for each file, to be run again and again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 240.0


class Lines:
    """A folder of text files that a query reads one by one: a micro-batch for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[str] = []
        self._files = 0
        folder.mkdir()

    def add(self, count: int) -> None:
        """One more file, of so many lines that no other has."""
        found = [f"line {len(self.all) + number}" for number in range(count)]
        unseen = self.folder.parent / "unseen"
        unseen.write_text("\n".join(found) + "\n")
        os.utime(unseen, (self._files, self._files))  # they are read in this order
        unseen.rename(self.folder / f"{self._files:04}.txt")
        self._files += 1
        self.all += found


class Query:
    """A query over one checkpoint. `options` are those of its sink."""

    def __init__(self, spark: SparkSession, lines: Lines, checkpoint: Path, **options: str) -> None:
        self._spark, self._lines, self._checkpoint = spark, lines, checkpoint
        self.options = {**options, "checkpointLocation": str(checkpoint)}

    def rows(self) -> DataFrame:
        """Column `value`, in two tasks."""
        reader = self._spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        return reader.load(str(self._lines.folder)).repartition(2)

    def start(self, sink: str = "penstock", **options: Any) -> StreamingQuery:
        """Begin to write what is there."""
        writer = self.rows().writeStream.format(sink).options(**{**self.options, **options})
        return writer.trigger(availableNow=True).start()

    def run(self, **options: Any) -> StreamingQuery:
        """Write what is there."""
        return finish(self.start(**options))

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died between the sink's commit and Spark's own note of it."""
        forget_commit(self._checkpoint, batch)


def finish(query: StreamingQuery) -> StreamingQuery:
    """Until it has ended. Raises what ended it."""
    assert query.awaitTermination(int(PATIENCE_S)), f"the query is not done after {PATIENCE_S} s"
    return query


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Take Spark's note away that a micro-batch is done."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()
