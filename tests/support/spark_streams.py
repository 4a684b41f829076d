"""A streaming query over topics that keeps what each micro-batch held, to be run again and again on one checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 90


class Held(NamedTuple):
    """One micro-batch: its number, and what was in it, as `partition:offset`."""

    batch: int
    rows: list[str]


class Stream:
    """A query over one checkpoint. `options` are those of its source."""

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: Any) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.options = options
        self.held: list[Held] = []
        self._holds = threading.Condition()

    def read(self, **options: Any) -> DataFrame:
        """The rows of the topics."""
        reader = self._spark.readStream.format("penstock")
        return reader.options(**{**self.options, **options}).load()

    def start(self, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        """Begin, keeping what comes."""
        writer = self.read(**options).writeStream.foreachBatch(self._hold)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def _hold(self, rows: DataFrame, batch: int) -> None:
        found = [f"{row.partition}:{row.offset}" for row in rows.select("partition", "offset").collect()]
        with self._holds:
            self.held.append(Held(batch, sorted(found)))
            self._holds.notify_all()

    def wait_for(self, count: int) -> None:
        """Until so many rows are held."""
        with self._holds:
            there = self._holds.wait_for(lambda: sum(len(held.rows) for held in self.held) >= count, PATIENCE_S)
        assert there, f"the query holds {sum(len(held.rows) for held in self.held)} of {count} rows"

    def run(self, **options: Any) -> list[Held]:
        """Read what is there; what was held meanwhile. Raises what ended the query."""
        before = len(self.held)
        finish(self.start({"availableNow": True}, **options))
        return self.held[before:]

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died before Spark noted that a micro-batch is done."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self._checkpoint / "commits" / name).unlink()


def finish(query: StreamingQuery) -> None:
    """Until it has ended. Raises what ended it."""
    try:
        assert query.awaitTermination(PATIENCE_S), f"the query is not done after {PATIENCE_S} s"
    finally:
        query.stop()


def places(partition: int, first: int, end: int) -> list[str]:
    """Records of a partition as they are held."""
    return [f"{partition}:{offset}" for offset in range(first, end)]
