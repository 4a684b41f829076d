"""Spark reads and writes topics: a data source and sink in Python alone, no jar.

    spark.read.format("penstock").option("url", "tcp://host:7070").option("subscribe", "flights").load()

Spark finds the format by itself where penstock is installed (`pyspark_penstock`); elsewhere `register` tells it.
`session` makes a Spark session on this machine. `penstock.spark.pipelines` has whole jobs: archive, replay, rollup.
Nothing here is imported by the rest of penstock but the errors, and pyspark only when a source is. `java` finds what
Spark runs on, and says what is missing where it finds nothing.
"""

from __future__ import annotations

from .local_session import register, session

__all__ = ["register", "session"]
