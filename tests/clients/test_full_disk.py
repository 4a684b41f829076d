"""A backlog fills the disk: records are refused, and all that works it off goes on."""

from __future__ import annotations

import penstock
import pytest
from penstock.broker.engine.reserve import RESERVE_BYTES
from penstock.clients.embedded import local
from penstock.errors import StillFull
from support.small_disk import SmallDisk

URL = "mem://full-disk"


@pytest.fixture
def disk():
    files = SmallDisk(RESERVE_BYTES + (4 << 20))
    files.mkdir("/data")
    local._brokers[URL] = local.LocalBroker("/data", files)
    yield files
    local.forget("full-disk")


def fill(producer: penstock.Producer, size: int) -> None:
    while True:
        producer.send(b"x" * size)


def test_a_backlog_that_filled_the_disk_is_worked_off(disk: SmallDisk) -> None:
    with penstock.connect(URL, timeout=0.2) as client:
        client.create_topic("work")
        client.create_topic("fill")
        client.set_queue("work", "tasks", lease_s=3600)
        with client.producer("work") as producer:
            producer.send_many([b"task"] * 20)
        worker = client.worker("work", group="tasks", prefetch=0)
        held = worker.fetch(max_records=5, wait=0)
        for size in (500_000, 20_000, 500, 1):
            producer = client.producer("work")
            with pytest.raises(StillFull, match="for acks, commits and deletions"):
                fill(producer, size)
            producer._core.abandon()
        assert abs(disk.free() - RESERVE_BYTES) < 64 << 10  # index rows are beside records
        for task in held:
            task.ack()
        assert len(worker.fetch(max_records=5, wait=0)) == 5
        client.begin_group("work", "report", {0: 0})
        client.commit_group("work", "report", {0: 1})
        client.reset_queue("work", "tasks", "latest")
        assert client.trim("work", before="latest")[0].first > 20
        client.delete_topic("fill")
        disk.size += 1 << 20
        with client.producer("work") as producer:
            assert producer.send(b"again") > 20


def test_a_transaction_that_does_not_fit_leaves_what_records_leave(disk: SmallDisk) -> None:
    with penstock.connect(URL, timeout=0.2) as client:
        client.create_topic("work")
        client.create_topic("fill")
        with client.staging() as staging:
            staging.producer("work").send_many([b"x" * 200_000] * 12)
        stages = staging.stages()
        with pytest.raises(StillFull, match="is decided"):
            client.commit_stages("etl", 1, stages)
        assert disk.free() > RESERVE_BYTES - (64 << 10)  # decisions are no records
        assert client.read("work", 0, 0) == []
        client.delete_topic("fill")
        disk.size += 4 << 20
        assert client.commit_stages("etl", 1, stages, timeout=30)
        assert len(client.read("work", 0, 0)) == 12
