"""Ranges: the batches between two offsets, mapped and over the client's connection, whole or only their positions.

A sample reads a stored topic once, from its first record to its last, as a planner's tasks do. Beside it a bare Unix
socket hands ready batches of such records to a receiver that discards them, and a consumer reads the same topic as
Arrow batches. A question about the ends of many partitions is beside an empty one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import penstock

from ..bare import unix_sockets
from ..lab.harness import Lab
from ..lab.rows import Row, Sample
from ..load import peers
from ..systems.broker import serve
from .consume import READS

RECORDS = 3_000_000
PARTITIONS = 64
ASKS = 500
WAYS: Mapping[Literal["mapped", "control"], tuple[str, float]] = {
    "mapped": ("mapped", 20e6),
    "control": ("over unix://", 5e6),
}
"""What a way is called, and the goal of records of 100 bytes in a second."""


def rows(lab: Lab) -> Iterator[Row]:
    records = lab.count(RECORDS)
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        _fill(client, records)
        for way in WAYS:
            yield _whole(client, records, way)
            yield _places(client, records, way)
        yield _ends(lab, client)


def _fill(client: penstock.Client, records: int) -> None:
    client.create_topic("ranges", partitions=PARTITIONS, segment_bytes="256MB")
    with client.producer("ranges") as producer:
        producer.send_many(peers.values(records), partition=0)


def _whole(client: penstock.Client, records: int, way: Literal["mapped", "control"]) -> Row:
    text, goal = WAYS[way]
    consumed = "mapped" if way == "mapped" else "push"
    limits: dict[str, Sample] = {
        "bare Unix socket": lambda: unix_sockets.delivered_records_per_s(records),
        "consumer, as Arrow": lambda: READS["Arrow"](client, "ranges", consumed, records),
    }
    return Row(
        f"ranges: {text}, as batches",
        "records/s",
        lambda: _rate(client, records, way),
        goal=goal,
        limits=limits,
        durability="durable",
    )


def _places(client: penstock.Client, records: int, way: Literal["mapped", "control"]) -> Row:
    """Read a range with no columns: batches then only tell the places of their records."""
    return Row(
        f"ranges: {WAYS[way][0]}, as batches without columns",
        "records/s",
        lambda: _rate(client, records, way, ["offset"]),
        durability="durable",
    )


def _rate(
    client: penstock.Client, records: int, way: Literal["mapped", "control"], columns: Sequence[str] | None = None
) -> float:
    begun = time.perf_counter()
    seen = sum(batch.record_count for batch in client.range("ranges", 0, 0, records, delivery=way, columns=columns))
    assert seen == records, f"{seen} of {records} records came"
    return records / (time.perf_counter() - begun)


def _ends(lab: Lab, client: penstock.Client) -> Row:
    asks, known = lab.count(ASKS, least=10), client.ends(["ranges"])
    return Row(
        f"ranges: ends of {PARTITIONS} partitions",
        "questions/s",
        lambda: _asked(asks, lambda: client.ends(["ranges"], known=known)),
        limits={"ping": lambda: _asked(asks, client.ping)},
    )


def _asked(asks: int, ask: Callable[[], object]) -> float:
    begun = time.perf_counter()
    for _ in range(asks):
        ask()
    return asks / (time.perf_counter() - begun)
