"""Producing from one client in a closed loop, beside a bare DEALER and ROUTER and beside every peer.

Over unix:// unless a row says otherwise. The window is the client's own, 8 MB, in penstock, and eight batches in the
bare pairs, over ZeroMQ and over a Unix socket. Those move the same batches, from the same encoder, and acknowledge
each on arrival: no log, no checksum verified, no disk. Peers are driven as their users would to send many records, and
their time includes connecting, which is small beside the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import penstock

from ..bare import limits, unix_sockets, zeromq
from ..lab.harness import Lab
from ..lab.rows import BEST_PEER, Row
from ..load import peers
from ..systems.broker import serve

BARE, BARE_UNIX = "bare DEALER/ROUTER", "bare Unix socket"
SIZES = {100: 1_200_000, 1024: 240_000, 64 << 10: 4_800}
"""Records of a sample, by their size."""
PARTITIONS = (16, 1000)


def rows(lab: Lab) -> Iterator[Row]:
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        yield from _sizes(lab, client)
        yield from _written(lab, client)
        yield from _one_by_one(lab, client)
        for partitions in PARTITIONS:
            yield from _spread(lab, client, partitions)
    with lab.place() as place, serve(place, "ipc") as broker, penstock.connect(broker.url) as client:
        yield from _over_ipc(lab, client)


def _sizes(lab: Lab, client: penstock.Client) -> Iterator[Row]:
    """Produce records of several sizes. The stated figure is that of 100 B; full runs put the others beside peers."""
    for size, full in SIZES.items():
        stated = size == peers.RECORD_BYTES
        with producer_of(client, f"durable-{size}") as producer:
            yield many_row(
                producer,
                f"produce: send_many of {_text(size)}",
                peers.values(lab.count(full, least=zeromq.in_a_batch(size)), size),
                peers=peers.producing(lab, "durable", size) if stated or lab.full else {},
                ratio_goals={BARE: 0.8, BEST_PEER: 5.0} if stated else {},
                goal=2.5e6 if stated else None,
                stated="produce" if stated else "",
            )


def _over_ipc(lab: Lab, client: penstock.Client) -> Iterator[Row]:
    """Produce over ZeroMQ on the same machine, to a broker that listens to nothing else."""
    with producer_of(client, "over-ipc") as producer:
        yield many_row(producer, "produce: send_many of 100 B over ipc://", peers.values(lab.count(SIZES[100])))


def _written(lab: Lab, client: penstock.Client) -> Iterator[Row]:
    with producer_of(client, "written", commit="written") as producer:
        values = peers.values(lab.count(SIZES[100]))
        beside = peers.producing(lab, "written")
        yield many_row(producer, "produce: send_many of 100 B", values, durability="written", peers=beside, full=True)


def _one_by_one(lab: Lab, client: penstock.Client) -> Iterator[Row]:
    count = lab.count(400_000)
    with producer_of(client, "one-by-one") as producer:
        yield Row(
            "produce: send_nowait one by one",
            "records/s",
            lambda: _nowait(producer, count),
            goal=1e6,
            limits={"empty loop": lambda: 1e9 / limits.empty_loop_ns()},
            durability="durable",
        )


def _spread(lab: Lab, client: penstock.Client, partitions: int) -> Iterator[Row]:
    """Produce to a new partition with every batch: a round of syncs has as many files as batches."""
    name = f"produce: send_many of 100 B over {partitions:,} partitions"
    if partitions > 100 and not lab.full:
        return
    with producer_of(client, f"spread-{partitions}", partitions=partitions) as producer:
        yield many_row(producer, name, peers.values(lab.count(SIZES[100])))


def many_row(producer: penstock.Producer, name: str, values: Sequence[bytes], **row) -> Row:
    size = len(values[0])
    batch = zeromq.in_a_batch(size)
    return Row(
        name,
        "records/s",
        lambda: _many(producer, values),
        limits={
            BARE: lambda: zeromq.dealer_router_records_per_s(values, batch),
            BARE_UNIX: lambda: unix_sockets.acknowledged_records_per_s(values, batch),
        },
        **{"durability": "durable", **row},
    )


@contextmanager
def producer_of(
    client: penstock.Client, topic: str, *, partitions: int = 1, commit: str = "durable"
) -> Iterator[penstock.Producer]:
    """A producer on a temporary topic that keeps two segments, so that no sample fills the disk."""
    sizes = {"segment_bytes": "256MB", "retention_bytes": "512MB"} if partitions == 1 else {}
    client.create_topic(topic, partitions=partitions, commit=commit, **sizes)
    try:
        with client.producer(topic) as producer:
            producer.send_many([bytes(peers.RECORD_BYTES)] * zeromq.RECORDS)
            yield producer
    finally:
        client.delete_topic(topic)


def _text(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size >> 10} KiB"


def _many(producer: penstock.Producer, values: Sequence[bytes]) -> float:
    begun = time.perf_counter()
    producer.send_many(values)
    return len(values) / (time.perf_counter() - begun)


def _nowait(producer: penstock.Producer, count: int) -> float:
    send, value = producer.send_nowait, bytes(peers.RECORD_BYTES)
    begun = time.perf_counter()
    for _ in range(count):
        send(value)
    producer.flush()
    return count / (time.perf_counter() - begun)
