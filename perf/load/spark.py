"""Spark with one kind of place at a time: a session that is started when first needed, and what it reads and writes.

Idea: penstock, Kafka and Parquet hold the same rows; a `Place` says under which format and options Spark finds them,
and everything that is measured takes a place. Frames are made anew for each sample, as a job makes them, so planning is
part of it.
Contract: nothing starts before a sample asks for it. `local[2]`, so that figures of machines with more cores compare.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark import jvm
from penstock.spark.java import missing

from ..lab.rows import Absent
from ..systems.broker import cpu_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = "local[2]"
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    # Kafka's producer is kept, and looks for its server long after that is gone.
    "spark.kafka.producer.cache.timeout": "1s",
    "spark.kafka.producer.cache.evictorThreadRunInterval": "1s",
}
"""Beside those that every session of penstock has."""
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
PATIENCE_S = 600
FEW = 10
"""Rows of a micro-batch that has next to nothing to do."""

_streams = itertools.count()


class Spark:
    """A session on two cores, with the jars of other sources; its files lie below `directory`."""

    def __init__(self, directory: Path, jars: Callable[[], list[Path]] = list) -> None:
        self._directory = directory
        self._jars = jars

    @cached_property
    def session(self) -> SparkSession:
        """The session, started when first asked for. Raises Absent where Spark cannot run."""
        if reason := missing():
            raise Absent(reason)
        from penstock.spark.local_session import session

        directory = self._directory / "spark"
        directory.mkdir()
        own = {"spark.local.dir": str(directory), "spark.sql.warehouse.dir": str(directory / "warehouse")}
        if jars := self._jars():
            own["spark.driver.extraClassPath"] = ":".join(map(str, jars))
        return session("perf", master=MASTER, settings={**SETTINGS, **own})

    def checkpoint(self) -> Path:
        """A fresh directory for the notes of a query."""
        return self._directory / f"checkpoint-{next(_streams)}"

    def cpu_s(self) -> float:
        """Processor time of the JVM and its Python workers so far."""
        pid = jvm.process().pid
        return sum(map(_cpu_s, [pid, *jvm.descendants(pid)]))

    def close(self) -> None:
        if "session" in self.__dict__:
            jvm.end(self.__dict__.pop("session"))


def _cpu_s(pid: int) -> float:
    try:
        return cpu_s(pid)
    except FileNotFoundError:
        return 0.0  # a worker that ended meanwhile


@dataclass(frozen=True)
class Place:
    """A place where Spark reads or writes rows."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.format(self.format).options(**self.options).load()

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        return spark.readStream.format(self.format).options(**self.options, **options).load()


def ours(url: str, topic: str, **options: str) -> Place:
    """One of our topics, from its earliest record on."""
    return Place("penstock", {"url": url, "subscribe": topic, "startingOffsets": "earliest", **options})


def kafka(address: str, topic: str) -> Place:
    """A topic of Kafka, from its earliest record on."""
    return Place("kafka", {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"})


def parquet(directory: Path) -> Place:
    """Parquet files."""
    return Place("parquet", {"path": str(directory)})


# -- reading --------------------------------------------------------------------------------------


def read_rows_per_s(spark: Spark, place: Place, columns: tuple[str, ...], rows: int) -> float:
    """Rate of reading these columns of all rows, into a sink that discards them."""
    session = spark.session
    begun = time.perf_counter()
    place.frame(session).select(*columns).write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - begun)


def checked(spark: Spark, place: Place, rows: int) -> Place:
    """The place, if it has `rows` rows; raises if not: a sink that discards rows does not count them."""
    if (found := place.frame(spark.session).count()) != rows:
        raise RuntimeError(f"{place.format} gives {found:,} rows, and {rows:,} were written")
    return place


def streamed_rows_per_s(spark: Spark, place: Place, rows: int, each: int) -> float:
    """Rows per second from the first batch to the last, `each` rows at a time; starting the query is not counted."""
    took = batches_ms(spark, place, rows, each)
    return rows / sum(took) * 1e3


def micro_batch_ms(spark: Spark, place: Place, rows: int) -> float:
    """Median time of a batch of a few rows."""
    return statistics.median(batches_ms(spark, place, rows, FEW)[1:])


def batches_ms(spark: Spark, place: Place, rows: int, each: int) -> list[float]:
    """Durations of the batches of a stream that reads all rows, `each` at a time. Raises if it read other rows."""
    checkpoint = spark.checkpoint()
    frame = place.stream(spark.session, {"maxOffsetsPerTrigger": str(each)})
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    running = query.start()
    try:
        if not running.awaitTermination(PATIENCE_S):
            raise TimeoutError(f"a stream from {place.format} did not end within {PATIENCE_S} s")
        batches = [batch for batch in map(_described, running.recentProgress) if batch["numInputRows"]]
    finally:
        running.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    if (found := sum(batch["numInputRows"] for batch in batches)) != rows:
        raise RuntimeError(f"a stream from {place.format} gave {found:,} rows, and {rows:,} were written")
    return [batch["durationMs"]["triggerExecution"] for batch in batches]


def _described(progress: Any) -> dict[str, Any]:
    return json.loads(progress.json)


def idle_share(spark: Spark, place: Place, seconds: float, server_cpu_s: Callable[[], float]) -> float:
    """Percent of a core that a query uses with nothing left to read, including the load on the server."""
    checkpoint = spark.checkpoint()
    frame = place.stream(spark.session, {})
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        time.sleep(1.0)  # what the first batch left to be done
        before, begun = spark.cpu_s() + server_cpu_s(), time.perf_counter()
        time.sleep(seconds)
        return (spark.cpu_s() + server_cpu_s() - before) / (time.perf_counter() - begun) * 100
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


# -- writing --------------------------------------------------------------------------------------


def written_rows_per_s(spark: Spark, source: Place, target: Place, rows: int) -> float:
    """Rate of copying keys and values from one place to another, until all is committed."""
    frame = source.frame(spark.session).select("key", "value")
    begun = time.perf_counter()
    frame.write.format(target.format).options(**target.options).mode("append").save()
    return rows / (time.perf_counter() - begun)


def as_parquet(spark: Spark, source: Place, directory: Path) -> Place:
    """The same rows as files, uncompressed."""
    source.frame(spark.session).write.option("compression", "none").parquet(str(directory))
    return parquet(directory)
