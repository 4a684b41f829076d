"""Flights from a topic as a growing table, a view over it, and a topic of the late ones.

Idea: a declarative pipeline: it declares datasets, and Spark works out the order, tracks progress, and runs what is
new. The broker's address is in PENSTOCK_URL.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FLIGHT = "carrier string, number int, delay int"
LATE_MINUTES = 15


def spark() -> SparkSession:
    """The session that this project runs in."""
    active = SparkSession.active()
    assert active is not None
    return active


@dp.table
def flights() -> DataFrame:
    """Each flight once, with the time of its record."""
    reader = spark().readStream.format("penstock").option("subscribe", "flights")
    records = reader.option("startingOffsets", "earliest").load()
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    return records.select("timestamp", flight.alias("flight")).select("timestamp", "flight.*")


@dp.materialized_view
def delays() -> DataFrame:
    """How late each carrier is, over all its flights."""
    by_carrier = spark().read.table("flights").groupBy("carrier")
    return by_carrier.agg(F.count(F.lit(1)).alias("flights"), F.avg("delay").alias("mean_delay"))


dp.create_sink("late", "penstock", {"topic": "late-flights"})


@dp.append_flow(target="late")
def late_flights() -> DataFrame:
    """Each late flight, appended to the topic `late-flights` exactly once."""
    late = spark().readStream.table("flights").where(F.col("delay") > LATE_MINUTES)
    return late.select(F.col("carrier").alias("key"), F.to_json(F.struct("carrier", "number", "delay")).alias("value"))
