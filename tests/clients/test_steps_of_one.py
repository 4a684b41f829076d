"""What one record and one task cost: Python calls in the client, with a bound on each.

The bounds are what was counted, with a few calls for an interpreter that counts otherwise. A client over a Unix socket
makes the same calls each time, but for those of a turn that found less than all of what it waits for.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pytest
from penstock.clients import Client, connect
from support.processes import Serving

TRIES = 8
"""The fewest calls of so many tries count: an answer in two pieces, or a pump that looks at the time, is no cost."""


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with connect(serving.url, timeout=60.0) as client:
        yield client


def calls(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> int:
    """Python calls of `call` in this thread, the collector at rest."""
    found: list[int] = []
    for _ in range(TRIES):
        before()
        gc.collect()
        gc.disable()
        count = 0

        def counted(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            call()
        finally:
            sys.setprofile(None)
            gc.enable()
        found.append(count)
    return min(found)


def test_a_send_takes_few_calls(client: Client):
    client.create_topic("one-send", commit="written")
    with client.producer("one-send") as producer:
        producer.send(b"first")
        assert calls(lambda: producer.send(b"x" * 100)) <= 48
        assert calls(lambda: producer.send_nowait(b"x" * 100), producer.flush) <= 23


def test_a_mapped_record_takes_few_calls(client: Client):
    client.create_topic("one-record", commit="written")
    with client.producer("one-record") as producer, client.consumer("one-record", delivery="mapped") as consumer:
        producer.send(b"first")
        while not consumer.fetch(1, wait=60.0):
            pass
        assert calls(lambda: consumer.fetch(1, wait=60.0), lambda: producer.send(b"x" * 100)) <= 36
        while consumer.fetch(100, wait=0.0):
            pass
        assert calls(lambda: consumer.fetch(1, wait=0.001)) <= 33  # looks, sleeps and looks again in vain


def test_a_lease_and_the_ack_of_its_task_take_few_calls(client: Client):
    client.create_topic("one-task", commit="written")
    with client.producer("one-task") as producer:
        producer.send_many([b"task"] * 50)
    with client.worker("one-task", group="g") as worker:

        def work_off() -> None:
            (task,) = worker.fetch(1, wait=60.0)
            task.ack()

        work_off()
        assert calls(work_off) <= 140  # 16 of them where the answers to the lease and to the ack come apart
