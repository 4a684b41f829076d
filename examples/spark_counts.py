"""Spark reads a topic, counts the records of each key, and writes the counts to another topic.

python examples/spark_counts.py
"""

from __future__ import annotations

import penstock
from penstock.spark import session


def main() -> None:
    with penstock.connect() as client:
        for topic in ("departures", "counts"):
            client.create_topic(topic, if_missing=True)
        with client.producer("departures") as producer:
            for carrier in (b"UA", b"AA", b"UA"):
                producer.send(b"departed", key=carrier)
        url = client.url

    spark = session("counts", master="local[2]")
    departures = spark.read.format("penstock").option("url", url).option("subscribe", "departures").load()
    counts = departures.groupBy(departures.key.cast("string").alias("key")).count()
    rows = counts.selectExpr("key", "CAST(count AS string) AS value")
    rows.write.format("penstock").mode("append").option("url", url).option("topic", "counts").save()
    rows.orderBy("key").show()
    spark.stop()


if __name__ == "__main__":
    main()
