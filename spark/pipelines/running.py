"""Runs a pipeline: reads topics batch by batch, reports progress, and stops cleanly.

Idea: every pipeline that follows topics is one streaming query with a checkpoint; Spark notes a batch before it runs
and after it is done, so that a restart repeats at most the last batch, unchanged. The pipeline makes its own work on a
repeated batch idempotent.
Contract: failures are raised as an error of penstock with one sentence, also when they happened in one of Spark's
Python workers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ...clients.arguments.quantities import Duration, seconds
from ..errors import StaleCheckpoint
from ..local_session import PLAIN
from ..syncing import sync_identity, sync_micro_batch
from . import durable
from .progress import OnProgress, Progress, after, ignore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "penstock"
QUERY = "query.json"
LOOK_S = 1
"""Between two looks at what became of a query: how soon it is told to stop, and how fresh its progress is."""


MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Below its greatest value Spark measures a batch for Python anew at each row, and lists in it from their first entry:
with headers that takes the square of the rows."""


def never() -> bool:
    """Never stop early."""
    return False


class Pace(Struct, frozen=True):
    """How a pipeline follows its topics.

    Attributes:
        every: seconds between batches, or a time like "1m"; None: up to what stands there now, and no further.
        max_records: at most so many in a batch.
        on_progress: is told after each batch.
        stopped: is asked every second; True ends it. A running batch is abandoned, and is the next run's first.
        skip_lost: go on behind records that are gone before they were read, with a warning in Spark's standard error;
            else they are DataLoss.
    """

    every: Duration | None = None
    max_records: int | None = None
    on_progress: OnProgress = ignore
    stopped: Callable[[], bool] = never
    skip_lost: bool = False


ONCE = Pace()
"""All that stands there now, at once."""


def follow(
    spark: SparkSession, url: str, topics: Sequence[str], pace: Pace, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The records of these topics as a stream, from the earliest on unless options say otherwise."""
    reader = spark.readStream.format(FORMAT).option("url", url).option("subscribe", ",".join(topics))
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    if pace.max_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(pace.max_records))
    if pace.skip_lost:
        reader = reader.option("failOnDataLoss", "false")
    return reader.options(**dict(options or {})).load()


def run(writer: DataStreamWriter, checkpoint: Path, pace: Pace) -> Progress:
    """Run a query to its end: where topics ended when it began, or until it is stopped. Raises what went wrong.

    Args:
        checkpoint: Spark's directory, below the pipeline's own.
    """
    writer = writer.option("checkpointLocation", str(checkpoint))
    if pace.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(seconds(pace.every, 'every') * 1000)} milliseconds")
    known = _query_of(checkpoint)
    query = writer.start()
    try:
        if known is None:
            sync_identity(checkpoint)
            durable.write(checkpoint.parent / QUERY, Query(query.id))
        return _watch(query, pace)
    finally:
        query.stop()


class Query(Struct, frozen=True):
    """What Spark knows a query by."""

    id: str


def _query_of(checkpoint: Path) -> Query | None:
    """The query of a pipeline, once it has one: another would do all its work anew, under numbers that are taken.

    Raises StaleCheckpoint where Spark's directory has another, or none.
    """
    known, found = (durable.read(path, Query) for path in (checkpoint.parent / QUERY, checkpoint / "metadata"))
    if known is not None and found != known:
        raise StaleCheckpoint(
            f"{checkpoint} is not of query {known.id}, which wrote what this pipeline has written: put it back, or "
            "begin anew with another checkpoint and target"
        )
    return known


def run_batches(stream: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: Path, pace: Pace) -> Progress:
    """Run a query that hands each batch and its number to `take`.

    What a number stands for is synced before it is used: Spark itself leaves that to its file system, and after a
    power cut would give a number out again, for other records than those that are known to be done under it.
    """

    def known(frame: DataFrame, number: int) -> None:
        sync_micro_batch(checkpoint, number)
        frame.sparkSession.conf.set(MAX_BYTES, PLAIN[MAX_BYTES])  # of this query alone
        take(frame, number)

    return run(stream.writeStream.foreachBatch(known), checkpoint, pace)


def _watch(query: StreamingQuery, pace: Pace) -> Progress:
    seen, progress, ended = "", Progress(), False
    while not ended:
        ended = _has_ended(query, pace)
        for text in _news(query, seen):
            seen, progress = text, after(progress, json.loads(text))
            pace.on_progress(progress)
    return progress


def _has_ended(query: StreamingQuery, pace: Pace) -> bool:
    """Whether it has, or shall: then it does not matter how, for ^C reaches the Python workers, too."""
    try:
        return bool(query.awaitTermination(LOOK_S)) or pace.stopped()
    except Exception:
        if not pace.stopped():
            raise
        return True


def _news(query: StreamingQuery, seen: str) -> list[str]:
    """What Spark says of the triggers that ended since the one of which it said `seen`, of all that it remembers else.
    Their times say less, as a clock may be set, and so do numbers of batches, as idle ones have none."""
    found = [each.json for each in query.recentProgress]
    return found[found.index(seen) + 1 :] if seen in found else found


def check_newest(number: int, last: int, target: Path | str) -> None:
    """Raise StaleCheckpoint for a batch that comes after a later one: Spark repeats none but the last."""
    if number < last:
        raise StaleCheckpoint(
            f"batch {number} comes after batch {last} went into {target}: the checkpoint is older than what was "
            "written, and its batches would be taken for those; go on from the newest one, or begin anew with "
            "another checkpoint and target"
        )
