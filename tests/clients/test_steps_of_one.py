"""What one record and one task cost: Python calls in the client, with a bound on each.

The bounds are what was counted, with a few calls for an interpreter that counts otherwise and four for a turn that
finds nothing yet, which on a busy machine each try may have. Otherwise a client over a Unix socket makes the same calls
each time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from penstock.clients import Client, connect
from support.calls import calls
from support.processes import Serving

TRIES = 100
"""The fewest calls of so many tries count: an answer that is not there yet, or a pump that looks at the time, is no
cost. A busy machine needs many tries until one answer is there at the first look."""


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with connect(serving.url, timeout=60.0) as client:
        yield client


def fewest(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> int:
    """Python calls of `call` in this thread, the fewest of some tries."""
    found: list[int] = []
    gc.collect()
    for _ in range(TRIES):
        before()
        found.append(calls(call))
    return min(found)


def test_a_send_takes_few_calls(client: Client):
    client.create_topic("one-send", commit="written")
    with client.producer("one-send") as producer:
        producer.send(b"first")
        assert fewest(lambda: producer.send(b"x" * 100)) <= 52
        assert fewest(lambda: producer.send_nowait(b"x" * 100), producer.flush) <= 25


def test_a_mapped_record_takes_few_calls(client: Client):
    client.create_topic("one-record", commit="written")
    with client.producer("one-record") as producer, client.consumer("one-record", delivery="mapped") as consumer:
        producer.send(b"first")
        while not consumer.fetch(1, wait=60.0):
            pass
        assert fewest(lambda: consumer.fetch(1, wait=60.0), lambda: producer.send(b"x" * 100)) <= 38
        while consumer.fetch(100, wait=0.0):
            pass
        assert fewest(lambda: consumer.fetch(1, wait=0.001)) <= 36  # looks, sleeps and looks again in vain


def test_a_lease_and_the_ack_of_its_task_take_few_calls(client: Client):
    client.create_topic("one-task", commit="written")
    with client.producer("one-task") as producer:
        producer.send_many([b"task"] * (2 * TRIES))
    with client.worker("one-task", group="g") as worker:

        def work_off() -> None:
            (task,) = worker.fetch(1, wait=60.0)
            task.ack()

        work_off()
        assert fewest(work_off) <= 160  # 16 of them where the answers to the lease and to the ack come apart
