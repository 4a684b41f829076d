"""Counts and rates by key and time window, from a topic into a topic.

Idea: Spark keeps open windows in its state and closes them by a watermark: a window is written once, when records as
late as `late` can no longer come. Results are records, with the group as their key and JSON as their value, appended
exactly once by the sink.
Contract: records later than the watermark are not counted; a window without records is not written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import durable, identity
from .failures import one_sentence
from .progress import Progress
from .running import FORMAT, ONCE, Pace, follow, run
from .topics import source_and_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND = "rollup"


@one_sentence()
def rollup(
    spark: SparkSession,
    url: str,
    topic: str,
    target: str,
    *,
    checkpoint: str | Path,
    window: str = "1 minute",
    slide: str | None = None,
    late: str = "10 minutes",
    by: str = "key",
    time: str = "timestamp",
    pace: Pace = ONCE,
) -> Progress:
    """Append to topic `target` how many records of `topic` there were, by key and window.

    Args:
        checkpoint: a directory of its own, which remembers how far it is and the windows that are open.
        window, slide: how long a window is, and how far apart two begin; None: one after the other.
        late: how much a record may be behind the latest one and still count.
        by: what to group by, an expression of Spark SQL over the columns of the source.
        time: which time counts, likewise.

    Raises: UnknownTopic; InvalidArgument; TargetInUse; PipelineFailed.
    """
    checkpoint = Path(checkpoint).absolute()
    ids, goal = source_and_target(url, topic, target)
    with durable.locked(checkpoint):
        identity.claim(checkpoint, KIND, ids, goal)
        counts = counted(follow(spark, url, [topic], pace), window=window, slide=slide, late=late, by=by, time=time)
        writer = as_records(counts).writeStream.format(FORMAT).outputMode("append")
        writer = writer.option("url", url).option("topic", target)
        return run(writer, checkpoint / "spark", pace)


def counted(
    records: DataFrame, *, window: str, slide: str | None, late: str, by: str = "key", time: str = "timestamp"
) -> DataFrame:
    """Streams and batches alike: `topic`, `group`, `from`, `to`, and in that window `records`, `bytes`, `per_s`."""
    from pyspark.sql import functions as F

    records = records.select("topic", "value", F.expr(by).alias("group"), F.expr(time).alias("at"))
    if records.schema["group"].dataType.typeName() != "binary":
        records = records.withColumn("group", F.col("group").cast("string"))
    size = F.coalesce(F.length("value"), F.lit(0))
    groups = records.withWatermark("at", late).groupBy("topic", F.window("at", window, slide).alias("window"), "group")
    found = groups.agg(F.count(F.lit(1)).alias("records"), F.sum(size).alias("bytes"))
    seconds = F.unix_timestamp("window.end") - F.unix_timestamp("window.start")
    return found.select(
        "topic", "group", F.col("window.start").alias("from"), F.col("window.end").alias("to"), "records", "bytes",
        (F.col("records") / seconds).alias("per_s"),
    )  # fmt: skip


def as_records(counts: DataFrame) -> DataFrame:
    """Counts as records: the group is the key, a JSON object the value, the end of the window the time."""
    from pyspark.sql import functions as F

    group = F.col("group").cast("binary")
    shown = [
        F.make_valid_utf8(group.cast("string")).alias(name) if name == "group" else F.col(name)
        for name in counts.columns
    ]
    return counts.select(group.alias("key"), F.to_json(F.struct(*shown)).alias("value"), F.col("to").alias("timestamp"))
