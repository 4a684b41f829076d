"""Consuming a stored topic: over a Unix socket, over ZeroMQ, and mapped; as objects and as Arrow batches; warm, cold.

A sample is a new consumer that reads the topic from the first record to the last. Beside it, a bare PUSH and a bare
Unix socket hand ready batches of such records to a receiver that discards them; memcpy is the limit of mapped reading;
every peer reads what it stored before the clock started.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path

import penstock

from ..bare import cold, limits, unix_sockets, zeromq
from ..lab.harness import Lab
from ..lab.rows import BEST_PEER, Row, Sample
from ..load import peers, readers
from ..systems.broker import Served, serve

GOALS = {("push", "objects"): 3e6, ("push", "Arrow"): 10e6, ("mapped", "objects"): 4e6, ("mapped", "Arrow"): 50e6}
STATED = {("push", "objects"): 5.0, ("mapped", "Arrow"): 20.0}
"""Times the best peer. These two rows have the peers beside them; the full run has them beside the others as well."""
PATHS = {"push": "over unix://", "mapped": "mapped"}
OVER_IPC = {"push": "PUSH/PULL", "control": "the control port"}
SIZES = {1024: 240_000, 64 << 10: 4_800}
"""Records of a sample beside the many of 100 bytes, by their size."""
LARGE = 64 << 10
GROUPS = (1, 4, 16)
COLD_BYTES = 2 << 30
BARE, BARE_UNIX, MEMCPY, READ = "bare PUSH/PULL", "bare Unix socket", "memcpy", "reading the files"

_groups = count()


def rows(lab: Lab) -> Iterator[Row]:
    batches = lab.count(1_200_000) // zeromq.RECORDS or 1
    records = batches * zeromq.RECORDS
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        _fill(client, "consume", peers.RECORD_BYTES, records)
        yield from _small(lab, client, records)
        yield from _groups_at_once(broker, records)
        for size in SIZES:
            yield from _larger(lab, client, size)
        yield from large(lab, client)
    with lab.place() as place, serve(place, "ipc") as broker, penstock.connect(broker.url) as client:
        yield from _over_ipc(client, records)
    yield from _cold(lab)


def _small(lab: Lab, client: penstock.Client, records: int) -> Iterator[Row]:
    for (delivery, form), goal in GOALS.items():
        read = READS[form]
        stated = STATED.get((delivery, form))
        yield Row(
            f"consume: {PATHS[delivery]}, as {form}",
            "records/s",
            lambda read=read, delivery=delivery: read(client, "consume", delivery, records),
            goal=goal,
            limits=_bare(records),
            peers=peers.consuming(lab, "durable") if stated or lab.full else {},
            ratio_goals={BEST_PEER: stated} if stated else {},
            durability="durable",
            stated="consume" if stated else "",
        )
    yield Row(
        "consume: mapped, as Arrow, verify=False",
        "records/s",
        lambda: _arrow(client, "consume", "mapped", records, verify=False),
        limits=_bare(records),
        durability="durable",
    )


def _bare(records: int, size: int = peers.RECORD_BYTES) -> Mapping[str, Sample]:
    return {
        BARE: lambda: zeromq.push_pull_records_per_s(records, size),
        BARE_UNIX: lambda: unix_sockets.delivered_records_per_s(records, size),
    }


def _larger(lab: Lab, client: penstock.Client, size: int) -> Iterator[Row]:
    """Consume larger records, beside peers in the full run. Large mapped records are in megabytes: see `large`."""
    ways = [("push", "objects"), *([("mapped", "Arrow")] if size < LARGE else [])]
    records, topic = lab.count(SIZES[size], least=1_600), f"consume-{size}"
    _fill(client, topic, size, records)
    for delivery, form in ways:
        yield Row(
            f"consume: {PATHS[delivery]}, {size >> 10} KiB records, as {form}",
            "records/s",
            lambda read=READS[form], delivery=delivery: read(client, topic, delivery, records),
            limits=_bare(records, size),
            peers=peers.consuming(lab, "durable", size) if lab.full else {},
            durability="durable",
        )


def _over_ipc(client: penstock.Client, records: int) -> Iterator[Row]:
    """Consume over ZeroMQ on the same machine: by an endpoint for each consumer, and over the request port."""
    _fill(client, "consume", peers.RECORD_BYTES, records)
    for delivery, text in OVER_IPC.items():
        yield Row(
            f"consume: over ipc://, {text}, as objects",
            "records/s",
            lambda delivery=delivery: _objects(client, "consume", delivery, records),
            limits=_bare(records),
            durability="durable",
        )


def _groups_at_once(broker: Served, records: int) -> Iterator[Row]:
    """Consume by several groups, new ones in every sample: an old group would resume where it was."""
    for groups in GROUPS:
        for delivery in ("push", "mapped"):

            def read(groups=groups, delivery=delivery) -> float:
                names = [f"group-{next(_groups)}" for _ in range(groups)]
                return readers.together_records_per_s(broker.url, "consume", delivery, names, records)

            yield Row(
                f"consume: {delivery}, as objects, {groups} groups together",
                "records/s",
                read,
                durability="durable",
                full=(groups, delivery) != (4, "push"),
            )


def large(lab: Lab, client: penstock.Client) -> Iterator[Row]:
    """Consume large records, in MB/s. Arrow reads each byte once, for its checksum; objects are copies."""
    records = lab.count(SIZES[LARGE], least=1_600)
    _fill(client, "large", LARGE, records)
    megabytes = LARGE / 1e6
    for form, read in READS.items():
        yield Row(
            f"consume: mapped, 64 KiB records, as {form}",
            "MB/s",
            lambda read=read: read(client, "large", "mapped", records) * megabytes,
            limits={MEMCPY: lambda: megabytes * 1e9 / limits.memcpy_ns_per_record(LARGE)},
            ratio_goals={MEMCPY: 0.5} if form == "Arrow" else {},
            durability="durable",
            stated="mapped" if form == "Arrow" else "",
        )


def _cold(lab: Lab) -> Iterator[Row]:
    """Consume by a consumer so far behind that all of its pages come from the disk."""
    if not lab.full:
        return
    records = int(COLD_BYTES * lab.scale) // 1024
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        _fill(client, "cold", 1024, records)
        files = _segments(broker)
        for delivery in ("push", "mapped"):
            yield Row(
                f"consume: {delivery}, 1 KiB records, as Arrow, none in memory",
                "MB/s",
                lambda delivery=delivery: _cold_mb_per_s(client, delivery, files, records),
                limits={READ: lambda: cold.read_mb_per_s(files)},
                durability="durable",
                note=f"{records * 1024 / 2**30:.2g} GiB, dropped from the page cache before every sample",
                full=True,
            )


def _segments(broker: Served) -> list[Path]:
    return [path for path in cold.files_of(broker.data) if path.stat().st_size >= 1 << 20]


def _cold_mb_per_s(client: penstock.Client, delivery: str, files: list[Path], records: int) -> float:
    cold.drop(files)
    return _arrow(client, "cold", delivery, records) * 1024 / 1e6


def _fill(client: penstock.Client, topic: str, size: int, records: int) -> None:
    """Send values, at most 64 MiB at a time and always the same, because no receiver looks at them."""
    piece = min(records, (64 << 20) // size)
    values = peers.values(piece, size)
    client.create_topic(topic, segment_bytes="256MB")
    with client.producer(topic) as producer:
        for first in range(0, records, piece):
            producer.send_many(values[: records - first])


def _objects(client: penstock.Client, topic: str, delivery: str, records: int) -> float:
    with client.consumer(topic, start="earliest", delivery=delivery) as consumer:
        iterator = iter(consumer)
        next(iterator)
        begun = time.perf_counter()
        deque(islice(iterator, records - 1), maxlen=0)
        return (records - 1) / (time.perf_counter() - begun)


def _arrow(client: penstock.Client, topic: str, delivery: str, records: int, *, verify: bool = True) -> float:
    with client.consumer(topic, start="earliest", delivery=delivery, verify=verify) as consumer:
        batches = consumer.batches("arrow")
        seen = begin = next(batches).num_rows
        begun = time.perf_counter()
        while seen < records:
            seen += next(batches).num_rows
        return (records - begin) / (time.perf_counter() - begun)


READS: Mapping[str, Callable[[penstock.Client, str, str, int], float]] = {"Arrow": _arrow, "objects": _objects}
