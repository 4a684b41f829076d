"""Transactions of one client, beside the same records sent without; and Arrow rows partitioned by key.

A transaction is measured until all of it can be read: its records are synced twice, the second time by the broker
alone. Small ones are measured one after the other, each with its decision, beside single sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import penstock
from penstock.clients.producing.bulk import pieces
from penstock.clients.producing.pieces import Shape

from ..lab.harness import Lab
from ..lab.rows import Row
from ..load import peers
from ..systems.broker import serve

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS = 1_000_000
SMALL = 1000
PARTITIONS = 4
KEYS = 100_000
BATCH = 50_000
"""Rows of a record batch, as Spark hands them out when it is asked for large ones."""


def rows(lab: Lab) -> Iterator[Row]:
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        with topic(client, "transactions") as producer:
            yield _large(lab, client, producer)
            yield _small(lab, producer)
        with topic(client, "keyed") as producer:
            yield _keyed(lab, producer)


def _large(lab: Lab, client: penstock.Client, producer: penstock.Producer) -> Row:
    values = peers.values(lab.count(RECORDS))
    return Row(
        "transactions: one of many records of 100 B",
        "records/s",
        lambda: _rate(len(values), lambda: _committed(client, values)),
        limits={"send_many": lambda: _rate(len(values), lambda: producer.send_many(values))},
        durability="durable",
    )


def _small(lab: Lab, producer: penstock.Producer) -> Row:
    count, value = lab.count(SMALL, least=20), bytes(peers.RECORD_BYTES)
    return Row(
        "transactions: one after the other, one record each",
        "transactions/s",
        lambda: _rate(count, lambda: _one_by_one(producer, count, value)),
        limits={"send": lambda: _rate(count, lambda: [producer.send(value) for _ in range(count)])},
        durability="durable",
    )


def _keyed(lab: Lab, producer: penstock.Producer) -> Row:
    batch = _rows_of(lab.count(BATCH))
    count = 20 * batch.num_rows
    return Row(
        f"produce: send_many of Arrow, 100 B by one of {KEYS:,} keys over {PARTITIONS} partitions",
        "records/s",
        lambda: _rate(count, lambda: producer.send_many(batch for _ in range(20))),
        limits={
            "cut and encoded, not sent": lambda: _rate(batch.num_rows, lambda: _cut(batch)),
            "send_many without keys": lambda: _rate(count, lambda: producer.send_many([batch.select(["value"])] * 20)),
        },
        durability="durable",
    )


@contextmanager
def topic(client: penstock.Client, name: str) -> Iterator[penstock.Producer]:
    """A producer on a temporary topic of a few small partitions, so that no sample fills the disk."""
    client.create_topic(name, partitions=PARTITIONS, segment_bytes="64MB", retention_bytes="256MB")
    try:
        with client.producer(name) as producer:
            yield producer
    finally:
        client.delete_topic(name)


def _rows_of(count: int) -> pa.RecordBatch:
    import pyarrow as pa

    keys = [b"key-%d" % (number * 7919 % KEYS) for number in range(count)]
    return pa.record_batch({"value": pa.array(peers.values(count)), "key": pa.array(keys)})


def _committed(client: penstock.Client, values: list[bytes]) -> None:
    with client.transaction() as transaction:
        transaction.producer("transactions").send_many(values)


def _one_by_one(producer: penstock.Producer, count: int, value: bytes) -> None:
    for _ in range(count):
        with producer.transaction():
            producer.send(value)


def _cut(batch: pa.RecordBatch) -> None:
    shape = Shape(PARTITIONS, 0, 16 << 20, "keyed")
    for number, piece in enumerate(pieces(batch, None, shape, None), 1):
        piece.encode(number, 0, 0)


def _rate(count: int, run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return count / (time.perf_counter() - begun)
