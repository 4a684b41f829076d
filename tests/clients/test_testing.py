"""What users get for their own tests: fixtures, a broker in memory, a clock that moves when told to."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from penstock.clients import connect
from penstock.clients.memory_broker import START_US, FakeClock, MemoryBroker

USERS_TEST = """
def test_mine(penstock_client, penstock_broker):
    penstock_client.create_topic("t")
    penstock_client.producer("t").send(b"x")
    with penstock_broker.connect() as other:
        assert other.topic("t").records == 1

def test_mine_again(penstock_client):
    assert penstock_client.topics() == []
"""


def test_the_fixtures_work_in_a_users_own_tests(tmp_path):
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "penstock.clients.testing"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # it would be loaded twice where it is installed
    found = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
    assert "2 passed" in found.stdout


def test_programs_that_run_what_is_due_need_no_pytest():
    program = "import sys; sys.modules['pytest'] = None; import penstock.testing as t; t.MemoryBroker().close()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_brokers_in_memory_know_nothing_of_each_other(penstock_broker):
    with MemoryBroker() as other, other.connect() as theirs, penstock_broker.connect() as ours:
        ours.create_topic("mine")
        assert theirs.topics() == []


def test_a_named_broker_in_memory_is_shared_and_a_nameless_one_is_not(penstock_broker):
    with connect(penstock_broker.url) as one, connect(penstock_broker.url) as two:
        one.create_topic("t")
        assert [topic.name for topic in two.topics()] == ["t"]
    with connect("mem://") as one, connect("mem://") as two:
        one.create_topic("t")
        assert two.topics() == []


def test_retention_is_tested_without_sleeping(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t", retention_s=timedelta(days=1), segment_bytes="64KB")
        with client.producer("t") as producer:
            producer.send_many([bytes(30_000)] * 10)
            penstock_broker.advance(60)
            assert client.topic("t").records == 10
            penstock_broker.clock.advance(2 * 86400)
            producer.send(b"today")
            penstock_broker.advance(10)
        (partition,) = client.topic("t").partitions
        assert (partition.first, partition.end) == (10, 11)


def test_retention_works_on_topics_whose_syncs_have_no_waiters(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t", commit="written", segment_bytes="64KB", retention_bytes="128KB")
        with client.producer("t") as producer:
            for _ in range(30):
                producer.send(bytes(30_000))
        penstock_broker.advance(30)
        (partition,) = client.topic("t").partitions
        assert partition.first > 20
        assert partition.segments <= 4


def test_the_broker_stamps_the_time_of_its_clock(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        producer = client.producer("t")
        producer.send(b"x")
        penstock_broker.advance(90)
        producer.send(b"y")
        first, second = client.read("t", 0, 0)
    assert first.timestamp == START_US
    assert second.timestamp == START_US + 90_000_000


def test_delays_pass_with_the_clock_of_the_broker(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        worker = client.worker("t", group="g")
        client.producer("t").send(b"later", delay="10m")
        client.producer("t").send(b"at", at=datetime.fromtimestamp(START_US / 1e6 + 300, UTC))
        penstock_broker.advance(299)
        assert not worker.fetch(2, wait=0)
        penstock_broker.advance(2)
        (task,) = worker.fetch(2, wait=5)
        assert task.value == b"at"
        task.ack()
        worker.flush()
        penstock_broker.advance(300)
        assert [task.value for task in worker.fetch(2, wait=5)] == [b"later"]


def test_a_fake_clock_moves_both_of_its_hands():
    clock = FakeClock(5_000_000)
    before = clock()
    clock.advance(1.5)
    assert clock().wall_us == 6_500_000
    assert clock().monotonic_s - before.monotonic_s == 1.5
