"""Counts dead letters by reason over time, from a dead-letter topic or from the broker's list.

Idea: a copy in a dead-letter topic has its origin, time and reason in headers, so counting dead letters is a rollup
grouped by the reason, over the time of death. Numbers in a reason become #, so that reasons which differ only by, say,
an order's number are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...clients import Client, DeadTask
from .failures import one_sentence
from .progress import Progress
from .rollup import rollup
from .running import FORMAT, ONCE, Pace
from .topics import ask, ids_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

PAGE = 1000
COLUMNS = "died timestamp, reason string, `group` string, topic string, partition int, offset bigint, attempts int"


@one_sentence()
def dead_letters(spark: SparkSession, url: str, topic: str, *, group: str | None = None) -> DataFrame:
    """One row for each dead letter: `died`, `reason`, `group`, `topic`, `partition`, `offset`, `attempts`.

    Args:
        topic: a dead-letter topic; with `group`, the topic itself, of which the broker lists what is dead-lettered now.
        group: a queue group.

    Raises: UnknownTopic, UnknownGroup.
    """
    if group is not None:
        return spark.createDataFrame(_listed(url, topic, group), schema=COLUMNS)
    ids_of(url, [topic])
    reader = spark.read.format(FORMAT).option("url", url).option("subscribe", topic).option("includeHeaders", "true")
    return died(reader.load())


def died(records: DataFrame) -> DataFrame:
    """Records of a dead-letter topic as dead letters. Others are skipped."""
    from pyspark.sql import functions as F

    return records.where(_about("reason").isNotNull()).select(
        F.expr(TIME_OF_DEATH).alias("died"),
        F.make_valid_utf8(_about("reason")).alias("reason"),
        _about("group").alias("group"),
        _about("topic").alias("topic"),
        _about("partition").try_cast("int").alias("partition"),
        _about("offset").try_cast("bigint").alias("offset"),
        _about("attempts").try_cast("int").alias("attempts"),
    )


def by_reason(letters: DataFrame, window: str = "1 hour") -> DataFrame:
    """How many failed for which reason in each window: `from`, `to`, `topic`, `group`, `reason`, `dead_lettered`."""
    from pyspark.sql import functions as F

    letters = letters.withColumn("reason", F.expr(ALIKE.format("reason")))
    counts = letters.groupBy(F.window("died", window), "topic", "group", "reason").agg(
        F.count(F.lit(1)).alias("dead_lettered")
    )
    counts = counts.select(
        F.col("window.start").alias("from"),
        F.col("window.end").alias("to"),
        "topic",
        "group",
        "reason",
        "dead_lettered",
    )
    return counts.sort("from", F.desc("dead_lettered"), "topic", "group", "reason")


@one_sentence()
def count_dead_letters(
    spark: SparkSession,
    url: str,
    topic: str,
    target: str,
    *,
    checkpoint: str | Path,
    window: str = "1 hour",
    late: str = "10 minutes",
    pace: Pace = ONCE,
) -> Progress:
    """Count the records of the dead-letter topic `topic` by reason and window into topic `target`, as `rollup` does."""
    return rollup(
        spark, url, topic, target, checkpoint=checkpoint, window=window, late=late, by=REASON, time=TIME_OF_DEATH,
        pace=pace
    )  # fmt: skip


def _header(name: str) -> str:
    """An expression: the text of a header, null where there is none."""
    return f"cast(try_element_at(filter(headers, h -> h.key = 'penstock-dead-{name}'), 1).value as string)"


def _about(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.expr(_header(name))


ALIKE = r"regexp_replace({}, '[0-9]+', '#')"
"""An expression: reasons that differ only in numbers are alike."""

REASON = ALIKE.format(f"make_valid_utf8({_header('reason')})")
TIME_OF_DEATH = f"timestamp_micros(try_cast({_header('time')} as bigint))"


def _listed(url: str, topic: str, group: str) -> pa.Table:
    """The broker's dead letters, page by page."""
    import pyarrow as pa

    with ask(url) as client:
        rows = [_row(task, group) for task in _dead(client, topic, group)]
    types = {
        "died": pa.timestamp("us", "UTC"), "reason": pa.string(), "group": pa.string(), "topic": pa.string(),
        "partition": pa.int32(), "offset": pa.int64(), "attempts": pa.int32(),
    }  # fmt: skip
    return pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))


def _dead(client: Client, topic: str, group: str) -> Iterator[DeadTask]:
    for each in client.topic(topic).partitions:
        offset, found = 0, [None]
        while found:
            found = client.dead_letters(topic, group, partition=each.partition, offset=offset, max_records=PAGE)
            yield from found
            offset = found[-1].record.offset + 1 if found else offset


def _row(task: DeadTask, group: str) -> dict[str, Any]:
    record, died_at = task.record, task.time
    return {
        "died": died_at, "reason": task.reason, "group": group, "topic": record.topic, "partition": record.partition,
        "offset": record.offset, "attempts": task.attempt,
    }  # fmt: skip
