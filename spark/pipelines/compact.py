"""Compacts topics to the latest value of each key, as a table of Parquet files, or appended to a topic.

Idea: a batch of records is reduced to the newest of each key and merged into the result so far. A table is a directory
per batch and a link `current` that is replaced atomically; a topic gets the newest of each key as one transaction per
batch. The link, or the broker, holds the number of the batch, so a repeated batch is recognised.
Contract: newest is by offset, and between partitions (a key moves when its topic grows) by time. Records without a key
are skipped.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..syncing import sync_directory, sync_file
from . import durable, identity
from .failures import one_sentence
from .progress import Progress
from .running import FORMAT, ONCE, Pace, check_newest, follow, run_batches
from .topics import ask, ids_of, source_and_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND = "compaction"
CURRENT, SNAPSHOTS, CHECKPOINT = "current", "snapshots", "checkpoint"
COLUMNS = ("key", "value", "headers", "partition", "offset", "timestamp", "timestampType")


@one_sentence()
def compact(
    spark: SparkSession,
    url: str,
    topic: str,
    target: str | Path,
    *,
    checkpoint: str | Path | None = None,
    deletes: str | None = None,
    pace: Pace = ONCE,
) -> Progress:
    """Keep the latest value of each key of a topic in `target/current`, Parquet with the columns of the source.

    Args:
        target: a directory that driver and executors see under this path: new, or of this table.
        checkpoint: where Spark notes how far it is; below the target unless told otherwise. The two belong together.
        deletes: which records delete their key, an expression of Spark SQL over these columns: "length(value) = 0".

    Raises: UnknownTopic; TargetInUse; PipelineFailed.
    """
    target = Path(target).absolute()
    checkpoint = target / identity.OWN / CHECKPOINT if checkpoint is None else Path(checkpoint).absolute()
    ids = ids_of(url, [topic])
    with durable.locked(checkpoint):
        identity.claim(checkpoint, KIND, ids, target)
        stream = follow(spark, url, [topic], pace).select(*COLUMNS)
        return run_batches(stream, Snapshots(target, deletes).take, checkpoint / "spark", pace)


@one_sentence()
def compact_into(
    spark: SparkSession, url: str, topic: str, target: str, *, checkpoint: str | Path, pace: Pace = ONCE
) -> Progress:
    """Append the latest record of each key to topic `target`; in later runs, of each key that has a newer one.

    Raises: UnknownTopic; InvalidArgument; TargetInUse; PipelineFailed.
    """
    checkpoint = Path(checkpoint).absolute()
    ids, goal = source_and_target(url, topic, target)
    with durable.locked(checkpoint):
        whose = identity.claim(checkpoint, KIND, ids, goal)
        append = partial(_append, url=url, target=target, name=f"{KIND}-{whose.id}")
        stream = follow(spark, url, [topic], pace)
        return run_batches(stream, append, checkpoint / "spark", pace)


def latest_per_key(records: DataFrame) -> DataFrame:
    """The newest record of each key, in the columns of the source."""
    from pyspark.sql import functions as F

    whole = F.struct(*records.columns).alias("whole")
    keyed = records.where("key is not null").groupBy("key", "partition")
    newest = keyed.agg(F.max_by(whole, "offset").alias("whole")).select("whole.*")
    moved = newest.groupBy("key").agg(F.max_by(whole, F.struct("timestamp", "partition")).alias("whole"))
    return moved.select("whole.*")


def _append(frame: DataFrame, number: int, *, url: str, target: str, name: str) -> None:
    with ask(url) as client:
        check_newest(number, (client.transaction_epoch(name) or 0) - 1, f"topic {target}")
    newest = latest_per_key(frame).select("key", "value", "headers", "timestamp")
    writer = newest.write.format(FORMAT).mode("append").option("url", url).option("topic", target)
    writer.option("txnId", name).option("txnVersion", str(number + 1)).save()


class Snapshots:
    """The table in a directory. Each batch makes a new one and removes those before the last."""

    def __init__(self, target: Path, deletes: str | None) -> None:
        self._target = target
        self._kept = "true" if deletes is None else f"not coalesce({deletes}, false)"
        self._snapshots = target / SNAPSHOTS

    def take(self, frame: DataFrame, number: int) -> None:
        """Put a batch over the table, once, however often it comes. Raises StaleCheckpoint for an earlier one."""
        last = self._last()
        check_newest(number, last, self._target)
        if last == number:
            return
        newest = latest_per_key(frame if last < 0 else self._read(frame.sparkSession).unionByName(frame))
        place = self._place(number)
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # of this query alone
        newest.where(self._kept).write.mode("overwrite").parquet(f"file://{place}")
        _sync(place)
        self._switch(place)
        for older in self._snapshots.iterdir():
            if older not in (place, self._place(last)):
                shutil.rmtree(older)

    def _last(self) -> int:
        try:
            return int(os.readlink(self._target / CURRENT).rpartition("/")[2])
        except FileNotFoundError:
            return -1

    def _read(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(f"file://{self._target / CURRENT}")

    def _place(self, number: int) -> Path:
        return self._snapshots / f"{number:012d}"

    def _switch(self, place: Path) -> None:
        """Readers see it from here on."""
        fresh = self._target / f"{CURRENT}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(place.relative_to(self._target))
        os.replace(fresh, self._target / CURRENT)
        sync_directory(self._target)


def _sync(directory: Path) -> None:
    """Have what Spark wrote survive a power cut."""
    for file in directory.iterdir():
        sync_file(file)
    for each in (directory, directory.parent):
        sync_directory(each)
