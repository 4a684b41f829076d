"""Spark reading and writing topics, on two cores: beside Parquet of the same rows, and beside its own Kafka source.

A sample is a whole job from the frame to its end, planning included; streams are timed by their batches. Rows have a
key of 8 bytes and a value of 100, and reads go to a sink that drops them. There are two partitions for each task that
runs at a time, Kafka's likewise; Kafka is filled by Spark's own sink. Everything is read out of the page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import penstock

from ..lab.harness import Lab
from ..lab.rows import Absent, Beside, Row, Sample
from ..load import spark as load
from ..load.peers import RECORD_BYTES
from ..load.spark import COLUMNS, FEW, Place, Spark
from ..systems import kafka
from ..systems.broker import Served, serve

READ, WRITTEN = 4_000_000, 2_000_000
"""Rows of a sample, read and written."""
BATCH = 400_000
BATCHES = 30
"""Micro-batches of a few rows."""
PARTITIONS = 4
STEP = 100_000
IDLE_S = 8.0
PARQUET, KAFKA, LOOSE = "spark.read.parquet", kafka.SYSTEM.name, "at least once"

_topics = count()


def rows(lab: Lab) -> Iterator[Row]:
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        spark = Spark(place, kafka.connector)
        try:
            stored = Stored(spark, broker, client, place)
            yield from _batches(lab, stored)
            yield from _streams(lab, stored)
            yield from _sinks(lab, stored)
        finally:
            spark.close()


class Stored:
    """The same rows in several places, stored when first asked for."""

    def __init__(self, spark: Spark, broker: Served, client: penstock.Client, directory: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.client = client
        self._directory = directory
        self._filled: dict[tuple[str, int], Place] = {}

    def topic(self, rows: int, **options: str) -> Place:
        """A topic filled with `rows` rows."""
        self._once("topic", rows, self._fill_topic)
        return load.ours(self.broker.url, _name(rows), **options)

    def parquet(self, rows: int) -> Place:
        """The rows as files."""
        return self._once("parquet", rows, self._fill_parquet)

    def fresh_topic(self, name: str = "") -> str:
        """An empty topic."""
        name = name or f"sink-{next(_topics)}"
        self.client.create_topic(name, partitions=PARTITIONS, segment_bytes="256MB")
        return name

    def _once(self, kind: str, rows: int, fill: Callable[[int], Place]) -> Place:
        if (kind, rows) not in self._filled:
            self._filled[kind, rows] = load.checked(self.spark, fill(rows), rows)
        return self._filled[kind, rows]

    def _fill_topic(self, rows: int) -> Place:
        with self.client.producer(self.fresh_topic(_name(rows))) as producer:
            for first in range(0, rows, STEP):
                numbers = range(first, min(first + STEP, rows))
                producer.send_many([b"%0*d" % (RECORD_BYTES, n) for n in numbers], keys=[b"%08d" % n for n in numbers])
        return load.ours(self.broker.url, _name(rows))

    def _fill_parquet(self, rows: int) -> Place:
        return load.as_parquet(self.spark, self.topic(rows), self._directory / f"parquet-{rows}")


def _name(rows: int) -> str:
    return f"rows-{rows}"


# -- batches --------------------------------------------------------------------------------------


def _batches(lab: Lab, stored: Stored) -> Iterator[Row]:
    count = lab.count(READ)

    def read(place: Place, columns: tuple[str, ...] = COLUMNS) -> float:
        return load.read_rows_per_s(stored.spark, place, columns, count)

    yield Row(
        "spark: read a batch, all columns",
        "rows/s",
        lambda: read(stored.topic(count)),
        peers={
            PARQUET: _here(lambda: read(stored.parquet(count))),
            KAFKA: _kafka(lab, stored, count, read),
        },
        ratio_goals={PARQUET: 1.0, KAFKA: 2.0},
        note=f"{count:,} rows; {_through()}",
        stated="spark, batch",
    )
    yield Row(
        "spark: read a batch, values alone",
        "rows/s",
        lambda: read(stored.topic(count, columns="value"), ("value",)),
        goal=4e6,
        peers={PARQUET: _here(lambda: read(stored.parquet(count), ("value",)))},
        note=f"{count:,} rows",
        stated="spark, values",
    )


@contextmanager
def _as_it_is(sample: Sample) -> Iterator[Sample]:
    yield sample


def _here(sample: Sample) -> Beside[Sample]:
    """A peer without a server."""
    return lambda: _as_it_is(sample)


def _through() -> str:
    return f"{KAFKA} through Spark's own source {kafka.connector_version()}"


def _kafka(lab: Lab, stored: Stored, rows: int, measure: Callable[[Place], float]) -> Beside[Sample]:
    """Kafka with these rows. Raises Absent when it cannot run or Spark has no source for it."""

    @contextmanager
    def enter() -> Iterator[Sample]:
        if reason := kafka.SYSTEM.absent():
            raise Absent(reason)
        if not kafka.connector():
            raise Absent("the jars of Spark's Kafka source are missing; perf/install-peers fetches them")
        with lab.place() as place, kafka.SYSTEM.serve(place, "written") as address:
            topic = _name(rows)  # as long as ours: it stands in each row
            kafka.SYSTEM.create(address, topic, PARTITIONS)
            filled = Place("kafka", {"kafka.bootstrap.servers": address, "topic": topic})
            load.written_rows_per_s(stored.spark, stored.topic(rows), filled, rows)
            read = load.checked(stored.spark, load.kafka(address, topic), rows)
            yield lambda: measure(read)

    return enter


# -- streams --------------------------------------------------------------------------------------


def _streams(lab: Lab, stored: Stored) -> Iterator[Row]:
    count, batch, few = lab.count(READ), lab.count(BATCH), BATCHES * FEW

    def streamed(place: Place) -> float:
        return load.streamed_rows_per_s(stored.spark, place, count, batch)

    def overhead(place: Place) -> float:
        return load.micro_batch_ms(stored.spark, place, few)

    def idle(place: Place, server_cpu_s: Callable[[], float] = lambda: 0.0) -> float:
        return load.idle_share(stored.spark, place, IDLE_S, server_cpu_s)

    yield Row(
        "spark: read a stream",
        "rows/s",
        lambda: streamed(stored.topic(count)),
        goal=1e6,
        peers={KAFKA: _kafka(lab, stored, count, streamed)} if lab.full else {},
        note=f"{count:,} rows in batches of {batch:,}, all columns, from the first batch to the last",
        stated="spark, stream",
    )
    yield Row(
        "spark: a micro-batch of a few rows",
        "ms",
        lambda: overhead(stored.topic(few)),
        more_is_better=False,
        peers={KAFKA: _kafka(lab, stored, few, overhead)},
        ratio_goals={KAFKA: 1.0},
        note=f"median of {BATCHES - 1} batches of {FEW} rows; {_through()}",
        stated="spark, overhead",
    )
    yield Row(
        "spark: a query with nothing to read",
        "% of a core",
        lambda: idle(stored.topic(few), stored.broker.cpu_s),
        more_is_better=False,
        goal=3.0,
        peers={KAFKA: _kafka(lab, stored, few, idle)},
        note=f"over {IDLE_S:g} s: the JVM, its Python workers and the broker; without the server of {KAFKA}",
        stated="spark, idle",
    )


# -- sinks ----------------------------------------------------------------------------------------


def _sinks(lab: Lab, stored: Stored) -> Iterator[Row]:
    count = lab.count(WRITTEN)

    def written(delivery: str) -> float:
        topic = stored.fresh_topic()
        target = Place("penstock", {"url": stored.broker.url, "topic": topic, "delivery": delivery})
        rate = load.written_rows_per_s(stored.spark, stored.parquet(count), target, count)
        found = sum(partition.end for partition in stored.client.topic(topic).partitions)
        stored.client.delete_topic(topic)
        if found != count:
            raise RuntimeError(f"{found:,} records are in the topic, and {count:,} rows were written")
        return rate

    yield Row(
        "spark: write keys and values, exactly once",
        "rows/s",
        lambda: written("exactly-once"),
        goal=1e6,
        limits={LOOSE: lambda: written("at-least-once")},
        ratio_goals={LOOSE: 0.8},
        durability="durable",
        note=f"{count:,} rows out of Parquet files",
        stated="spark, sink",
    )
