"""Makes what `tests/golden/directories` keeps of a release: `python past.py DIR`, with the penstock of then.

It uses only what all of these releases have (owners: those since 2026-11-28), and writes down what it saw: `seen.json`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.broker.engine import Node
from penstock.storage.batch import encode

DAY_S = 86400
TOPICS = {"flights": 2, "jobs": 1, "orders": 2}


def streams(client: Any) -> None:
    """Several segments, and a group in the middle of them."""
    with client.producer("flights") as producer:
        producer.send(b"UA 1545", key=b"UA", headers={"day": b"1"})
        for number in range(40):
            producer.send_many([b"%d %d " % (number, each) + bytes(200) for each in range(20)])
    with client.consumer("flights", group="report", start="earliest") as consumer:
        taken = 0
        while taken < 300:
            taken += len(consumer.fetch(max_records=100, wait=1.0))
        consumer.commit()


def queues(client: Any) -> None:
    """A task in each state that there is, a dedup key and a schedule."""
    client.set_queue("jobs", "work", lease_s=30, max_attempts=3)
    with client.producer("jobs") as producer:
        for number in range(6):
            producer.send(b"job %d" % number)
        producer.send(b"later", delay=300 * DAY_S)
        producer.send(b"urgent", priority=9)
        assert producer.send(b"once", dedup=b"order-17") == producer.send(b"once", dedup=b"order-17")
    with client.worker("jobs", group="work") as worker:
        done, rejected, failed, released, acked = worker.fetch(max_records=5, wait=1.0)
        done.ack(result=b"sent")
        rejected.reject("no address")
        failed.nack()
        released.release()
        acked.ack()
    client.schedule("jobs", "daily", "0 6 * * *", b"report")


def transactions(client: Any) -> None:
    """Published records of two kinds of transaction, and staged ones that are not published."""
    with client.transaction() as transaction:
        transaction.producer("orders").send(b"1 book", key=b"ann")
        transaction.producer("orders").send(b"12 EUR", key=b"bob")
    for publish in (True, False):
        with client.staging() as staging:
            staging.producer("orders").send_many([b"2 pens", b"3 cups"])
        assert not publish or client.commit_stages("import", 8, staging.stages())


def values(client: Any, topic: str) -> list[list[str]]:
    """All records of a topic, by partition."""
    found = []
    for partition in client.topic(topic).partitions:
        records: list[Any] = []
        while len(records) < partition.end:
            records += client.read(topic, partition.partition, len(records), max_records=1000)
        found.append([record.value.decode().rstrip("\0") for record in records])
    return found


def alone(root: Path) -> None:
    """The directories that need no broker."""
    with penstock.Log(root / "log") as log:
        log.append([b"UA 1545", b"AA 1141"], keys=[b"UA", None])
        log.write(b"B6 725", headers={"day": b"1"})
    if hasattr(penstock, "Channel"):
        with penstock.Channel(root / "channel") as channel:
            for item in (b"one", b"two", b"three"):
                channel.put(item)
            channel.get(timeout=5)
            channel.task_done()
    if hasattr(penstock, "Spool"):
        with penstock.Spool(root / "spool") as spool:
            spool.send("flights", b"spooled", key=b"UA")
            spool.send_many("flights", [b"AA 1141"])


def acting_as(name: str) -> Callable[..., None]:
    """What stands in for `Node.receive`, so that an embedded broker has users, and all clients are this one."""
    from penstock.broker.rights import Grant, Principal

    receive, own = Node.receive, [Grant(False, frozenset(["see", "read", "write"]), "*")]
    known = getattr(receive, "real", receive)
    user = Principal(name, [*own, Grant(False, frozenset(["manage"]), "*")] if name == "admin" else own)

    def acting(node: Any, peer: Any, message: Any, payload: Any, now: Any) -> None:
        known(node, peer, message, payload, now, user)

    acting.real = known  # pyright: ignore[reportFunctionMemberAccess]
    return acting


OWNED = "owned"
SENDS = 0xA11CE
"""The id of a producer of ann's."""


def owned(client: Any) -> dict[str, Any]:
    """What belongs to ann: producers with and without a name, a stage, a transaction. Returns what names them."""
    Node.receive = acting_as("admin")
    topic = client.create_topic(OWNED, segment_bytes=64 << 10)
    Node.receive = acting_as("ann")
    feed = client.open_producer(OWNED, 0, "feed")
    for producer_id, epoch in ((feed.producer_id, feed.epoch), (SENDS, 0)):
        batch = encode([b"ann's"], producer_id=producer_id, producer_epoch=epoch)
        client.append_batch(OWNED, 0, batch, id=topic.id)
    with client.staging() as staging:
        staging.producer(OWNED).send(b"staged")
        stages = staging.stages()
    client.commit_stages("nightly", 1, [])
    return {"feed": [feed.producer_id, feed.epoch], "stage": stages[0].stage}


def main(root: Path) -> None:
    root.mkdir(parents=True)
    alone(root)
    with penstock.connect(f"file://{root}/data") as client:
        for topic, partitions in TOPICS.items():
            client.create_topic(topic, partitions=partitions, segment_bytes=64 << 10)
        for live in (streams, queues, transactions):
            live(client)
        seen = {"topics": {topic: values(client, topic) for topic in TOPICS}}
        seen["lag"] = client.group("flights", "report").lag
    with penstock.connect(f"file://{root}/owned") as client:
        seen["owned"] = owned(client)
    killed = penstock.connect(f"file://{root}/owned-killed")
    seen["owned-killed"] = owned(killed)
    Node.receive = acting_as("admin")
    seen["made_us"] = time.time_ns() // 1000
    (root / "seen.json").write_text(json.dumps(seen))
    client = penstock.connect(f"file://{root}/killed")
    client.create_topic("jobs", segment_bytes=64 << 10)
    with client.producer("jobs") as producer:
        producer.send_many([b"leased", b"ready"])
    client.set_queue("jobs", "work", lease_s=30)
    client.worker("jobs", group="work").fetch(max_records=1, wait=1.0)
    os._exit(0)  # as if it had been killed


if __name__ == "__main__":
    main(Path(sys.argv[1]))
