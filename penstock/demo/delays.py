"""The Spark program of the demo: delays per carrier and hour of flights as they stream in, and an archive.

Idea: an ordinary Structured Streaming query, in SQL. It reads the topic of flights from the earliest record on, adds
them up by carrier and hour, and writes each sum to another topic once, when the time in the records says that the hour
is over. Half way it is stopped and made to forget that its last batch was done, as a driver that dies does: it is done
again. Then an archive takes both topics as Parquet files.
Contract: the JVM and its workers are gone when the role is done; what they complain about is in a file of its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..spark import jvm
from ..spark.local_session import session
from .flights import CARRIER, COLUMNS
from .roles import Conductor, Go, Progress, RoleDone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATENESS = "2 days"
"""How far apart the times of records that stand in the topic at once may be: what the feeder promises."""
LOOK_S = 0.1
COMPLAINTS = "spark.log"
CHECKPOINT, ARCHIVE = "checkpoint", "archive"

_HOUR, _DELAY = COLUMNS.index("time_hour"), COLUMNS.index("dep_delay")
FIELDS = (
    f"f[{CARRIER}] AS carrier",
    f"CAST(f[{_HOUR}] AS timestamp) AS hour",
    f"TRY_CAST(f[{_DELAY}] AS int) AS delay",  # NA of a flight that never left is no number
)
SUMS = """
SELECT carrier AS key,
       to_json(named_struct(
           'hour', date_format(hour, "yyyy-MM-dd'T'HH:mm:ss'Z'"),
           'flights', count(*), 'departed', count(delay), 'delay_minutes', coalesce(sum(delay), 0)
       )) AS value
FROM flights GROUP BY carrier, hour
"""


class Driven(msgspec.Struct):
    """The result of the program."""

    batches: int
    stopped_at: int  # flights read when it was stopped
    archived: int
    archived_bytes: int


def drive(conductor: Conductor) -> None:
    """When told to go, start Spark and read until told to stop; then archive and write the report."""
    from ..spark.pipelines.failures import explained

    order = conductor.wait_for_go()
    if order is None:
        return
    workspace = Path(order.place)
    with _complaints_in(workspace / COMPLAINTS), _spark() as spark:
        try:
            driven = _drive(spark, conductor, order, workspace)
        except Exception as error:
            raise explained(error) from error
        Path(order.report).write_bytes(msgspec.msgpack.encode(driven))
        conductor.say(RoleDone(order.flights, 0.0))


@contextmanager
def _spark() -> Iterator[SparkSession]:
    spark = session("penstock demo", settings={"spark.driver.memory": "1g"})
    try:
        yield spark
    finally:
        jvm.end(spark)


@contextmanager
def _complaints_in(file: Path) -> Iterator[None]:
    """Redirect standard error of this process and its children: JVM warnings would garble the progress bar."""
    kept = os.dup(2)
    with file.open("wb") as complaints:
        os.dup2(complaints.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _drive(spark: SparkSession, conductor: Conductor, order: Go, workspace: Path) -> Driven:
    from ..spark.pipelines.archive import archive

    reading = QueryRun(spark, order, workspace / CHECKPOINT)
    try:
        while not (reading.stopped_at and conductor.should_stop()):
            conductor.progress(reading.look())
            if not reading.stopped_at and reading.read >= order.flights // 2:
                reading.start_again()
        conductor.say(Progress(reading.finish()))
    finally:
        reading.close()
    archived = archive(spark, order.url, [order.topic, order.target], workspace / ARCHIVE)
    size = sum(file.stat().st_size for file in (workspace / ARCHIVE).rglob("*.parquet"))
    return Driven(len(reading.batches), reading.stopped_at, archived.records, size)


def delays(spark: SparkSession, order: Go) -> DataFrame:
    """Keys and values of the topic of delays, as a stream."""
    flights = (
        spark.readStream.format("penstock")
        .option("url", order.url)
        .option("subscribe", order.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    fields = flights.selectExpr("split(CAST(value AS string), ',') AS f").selectExpr(*FIELDS)
    fields.withWatermark("hour", LATENESS).createOrReplaceTempView("flights")
    return spark.sql(SUMS)


class QueryRun:
    """The query and its progress."""

    def __init__(self, spark: SparkSession, order: Go, checkpoint: Path) -> None:
        self.batches: dict[int, int] = {}  # records by batch: one that is done again counts once
        self.stopped_at = 0
        self._order = order
        self._checkpoint = checkpoint
        writer = delays(spark, order).writeStream.format("penstock").outputMode("append")
        self._writer = writer.options(url=order.url, topic=order.target, checkpointLocation=str(checkpoint))
        self._query: StreamingQuery = self._writer.start()

    @property
    def read(self) -> int:
        """Flights read so far."""
        return min(sum(self.batches.values()), self._order.flights)  # the closing record is none

    def look(self) -> int:
        """Wait a moment and return the progress. Raises what ended the query."""
        self._query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # Spark takes parts of a second
        for each in self._query.recentProgress:
            batch: dict[str, Any] = json.loads(each.json)
            if batch["numInputRows"]:
                self.batches[batch["batchId"]] = batch["numInputRows"]
        return self.read

    def start_again(self) -> None:
        """Restart as if the driver had died behind its last batch, before it logged that batch as done."""
        self._query.stop()
        self.stopped_at = self.read
        last = max(int(file.name) for file in (self._checkpoint / "offsets").iterdir() if file.name.isdecimal())
        for note in (str(last), f".{last}.crc"):
            (self._checkpoint / "commits" / note).unlink(missing_ok=True)
        self._query = self._writer.start()

    def finish(self) -> int:
        """Wait until everything in the topic is read and its results are written."""
        self._query.processAllAvailable()
        return self.look()

    def close(self) -> None:
        self._query.stop()
