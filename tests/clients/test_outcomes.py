"""Waiting for many outcomes: each wakes those that wait for it, and no others."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, TypeVar

import pytest
from penstock.clients import connect
from penstock.clients.aio.client import connect as aio_connect
from penstock.clients.connection.steps import Pause, Steps
from penstock.storage.errors import Closed

T = TypeVar("T")
PATIENCE_S = 60.0
MANY = 60


class Counted:
    """Counts how often steps were resumed."""

    def __init__(self) -> None:
        self.pauses = 0

    def steps(self, steps: Steps[T]) -> Steps[T]:
        try:
            while True:
                pause = next(steps)
                assert isinstance(pause, Pause)
                self.pauses += 1
                yield pause
        except StopIteration as done:
            return done.value
        finally:
            steps.close()


@pytest.fixture(params=["mem", "unix", "ipc"])
def url(request, penstock_broker) -> str:
    return penstock_broker.url if request.param == "mem" else request.getfixturevalue(request.param)


def enqueue(url: str, topic: str) -> list[str]:
    with connect(url, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        client.set_queue(topic, "g")
        with client.producer(topic) as producer:
            return [f"{topic}-0-{producer.send(b'%d' % number)}" for number in range(MANY)]


def work_off(url: str, topic: str) -> None:
    """One at a time, so that answers do not come together."""
    with connect(url, timeout=PATIENCE_S) as client, client.worker(topic, group="g") as worker:
        for _ in range(MANY):
            (task,) = worker.fetch(1, wait=PATIENCE_S)
            worker.ack([task])


def test_of_many_tasks_of_a_loop_each_is_woken_by_its_own_answer(url: str, topic: str) -> None:
    ids, counted = enqueue(url, topic), Counted()

    async def wait_for_all() -> list[Any]:
        async with await aio_connect(url, timeout=PATIENCE_S) as client:
            verbs, run = client._queue_verbs, client._driver.run
            waits = [asyncio.create_task(run(counted.steps(verbs.wait_task(id, "g", PATIENCE_S)))) for id in ids]
            worker = asyncio.create_task(asyncio.to_thread(work_off, url, topic))
            found = await asyncio.gather(*waits)
            await worker
            return found

    assert [info.state for info in asyncio.run(wait_for_all())] == ["completed"] * MANY
    assert counted.pauses < 12 * MANY, "each of them looked at most answers of the others"


def test_of_many_threads_each_is_woken_by_its_own_answer(url: str, topic: str) -> None:
    ids, counted, states = enqueue(url, topic), Counted(), list[str]()
    with connect(url, timeout=PATIENCE_S) as client:
        verbs, run = client._queue_verbs, client._driver.run

        def wait(id: str) -> None:
            states.append(run(counted.steps(verbs.wait_task(id, "g", PATIENCE_S))).state)

        threads = [threading.Thread(target=wait, args=(id,)) for id in ids]
        for thread in threads:
            thread.start()
        work_off(url, topic)
        for thread in threads:
            thread.join(PATIENCE_S)
    assert states == ["completed"] * MANY
    assert counted.pauses < 12 * MANY, "each of them looked at most answers of the others"


def test_threads_that_wait_for_outcomes_end_when_the_client_is_closed(url: str, topic: str) -> None:
    ids, errors = enqueue(url, topic), list[BaseException]()
    client, begun = connect(url, timeout=PATIENCE_S), threading.Semaphore(0)

    def wait(id: str) -> None:
        begun.release()
        try:
            client.wait_task(id, "g")
        except Closed as error:
            errors.append(error)

    threads = [threading.Thread(target=wait, args=(id,)) for id in ids[:10]]
    for thread in threads:
        thread.start()
        begun.acquire()
    client.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(errors) == 10


def test_futures_become_those_of_the_standard_library(url: str, topic: str) -> None:
    with connect(url, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        with client.producer(topic) as producer:
            sent = [producer.send_nowait(b"%d" % number) for number in range(100)]
            futures = [each.as_concurrent() for each in sent]
            done, left = concurrent.futures.wait(futures, PATIENCE_S)
            assert (len(done), left) == (100, set())
            assert [each.result() for each in futures] == list(range(100))
            assert not futures[0].cancel()
            late = producer.send_nowait(b"late")
            late.result()
            assert late.as_concurrent().result(0) == 100

            async def awaited() -> int:
                return await asyncio.wrap_future(producer.send_nowait(b"awaited").as_concurrent())

            assert asyncio.run(awaited()) == 101
        abandoned = client.producer(topic)
        future = abandoned.send_nowait(b"x").as_concurrent()
        abandoned.close()
        assert future.result(PATIENCE_S) == 102
