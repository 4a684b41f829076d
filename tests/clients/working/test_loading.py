"""Values of tasks: workers with a serializer hand out what it makes of bytes, and dead-letter what it cannot read."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading

import pytest
from penstock import aio
from penstock.clients import Client, InvalidArgument, connect
from penstock.clients.aio.client import AsyncClient
from penstock.clients.errors import CannotDeserialize
from penstock.clients.working.options import WorkerSettings

NUMBERS = (lambda number: b"%d" % number, int)
WAIT = 20.0


@pytest.fixture
def spoiled(client, topic):
    """A topic with the numbers from 0 to 9, of which 0, 3 and 4 are none."""
    client.create_topic(topic)
    client.set_queue(topic, "jobs")
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % each if each not in (0, 3, 4) else b"x" for each in range(10)])
    return topic


def taken(worker, count: int) -> list:
    found = []
    while len(found) < count:
        found += worker.fetch(count - len(found), wait=WAIT)
    return found


def dead(client, topic: str) -> list[int]:
    return sorted(int(each.id.rpartition("-")[2]) for each in client.dead_letters(topic, "jobs"))


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_task_has_what_was_sent(client, topic, serializer):
    client.create_topic(topic)
    values = [{"a": [1, None]}, "text", None]
    with client.producer(topic, value=serializer) as producer:
        producer.send_many(values, keys=[b"k"] * 3)
    with client.worker(topic, group="jobs", value=serializer) as worker:
        tasks = taken(worker, 3)
        assert [(task.value, task.key, task.offset, task.attempt) for task in tasks] == [
            (value, b"k", offset, 1) for offset, value in enumerate(values)
        ]
        for task in tasks:
            task.ack()
        assert worker.fetch(wait=0) == []
    assert client.task(f"{topic}-0-2", group="jobs").state == "completed"


def test_what_cannot_be_read_is_dead_lettered_and_the_others_go_on(client, spoiled, caplog):
    caplog.set_level(logging.WARNING, "penstock.clients.workers")
    with client.worker(spoiled, group="jobs", value=NUMBERS, lease_records=2) as worker:
        tasks = taken(worker, 7)
        assert [task.value for task in tasks] == [1, 2, 5, 6, 7, 8, 9]
        worker.ack(tasks)
        assert worker.fetch(wait=0) == []
    assert dead(client, spoiled) == [0, 3, 4]
    (first, *_) = client.dead_letters(spoiled, "jobs")
    assert first.reason.startswith("cannot be read by <lambda> and int: ValueError: invalid literal for int()")
    assert f"task {spoiled}-0-0 is dead-lettered: cannot be read by" in caplog.text
    assert [task.value for task in redriven(client, spoiled)] == [b"x"] * 3


def test_what_a_serializer_says_makes_no_line_of_the_log(client, topic, caplog):
    def forge(content: bytes) -> None:
        raise ValueError(f"bad\nforged {content.decode()}")

    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send(b"\x1b[2J")
    with client.worker(topic, group="jobs", value=(bytes, forge)) as worker:
        assert worker.fetch(wait=0) == []
    (said,) = [record.getMessage() for record in caplog.records if "is dead-lettered" in record.getMessage()]
    assert said.isprintable()
    assert said.endswith("bad\\nforged \\x1b[2J")


def redriven(client, topic: str) -> list:
    client.redrive(topic, "jobs")
    with client.worker(topic, group="jobs") as worker:
        return taken(worker, 3)


def test_a_call_goes_on_while_nothing_of_what_came_can_be_read(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many([b"x", b"y", b"3"])
    with client.worker(topic, group="jobs", value=NUMBERS) as worker:
        (task,) = worker.fetch(1, wait=WAIT)
        assert task.value == 3
        assert [each.value for each in worker.ack_and_fetch([task], wait=0)] == []
    assert dead(client, topic) == [0, 1]
    assert client.task(f"{topic}-0-2", group="jobs").state == "completed"


def test_acks_go_once_where_nothing_that_comes_with_them_can_be_read(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many([b"1", b"x", b"2"])
    with client.worker(topic, group="jobs", value=NUMBERS, prefetch=0) as worker:
        tasks = worker.fetch(1, wait=WAIT)
        assert [each.value for each in worker.ack_and_fetch(tasks, 1, wait=WAIT)] == [2]
        worker.flush()
    assert dead(client, topic) == [1]


def test_a_loop_gets_what_can_be_read(client, spoiled):
    found = []
    with client.worker(spoiled, group="jobs", value=NUMBERS, lease_records=4) as worker:
        for task in worker:
            found.append(task.value)
            task.ack()
            if len(found) == 7:
                break
    assert found == [1, 2, 5, 6, 7, 8, 9]
    assert dead(client, spoiled) == [0, 3, 4]


def test_a_claim_gets_what_can_be_read(client, spoiled):
    with client.worker(spoiled, group="jobs", name="ann", prefetch=0) as ann:
        ids = [task.id for task in taken(ann, 3)]
        with client.worker(spoiled, group="jobs", value=NUMBERS) as bob:
            assert [task.value for task in bob.claim(ids, force=True)] == [1, 2]
    assert dead(client, spoiled) == [0]


def test_a_task_that_another_worker_has_by_now_is_left_to_it(topic):
    """Its lease was lost while the function ran."""
    with connect(f"mem://{topic}") as client:
        client.create_topic(topic)
        client.producer(topic).send(b"x")

        def loads(value: bytes) -> int:
            client.claim(topic, "jobs", "bob", [f"{topic}-0-0"], force=True)
            ann._core.lose(next(iter(ann._core.held.values())))
            return int(value)

        client.set_queue(topic, "jobs")
        ann = client.worker(topic, group="jobs", value=(str, loads), prefetch=0)
        assert ann.fetch(wait=0) == []
        assert client.task(f"{topic}-0-0", group="jobs").worker == "bob"


def test_what_was_taken_without_a_lease_is_raised_once(client, spoiled):
    """It is done, so there is nothing to dead-letter."""
    with client.worker(spoiled, group="jobs", value=NUMBERS, at_most_once=True) as worker:
        found, bad = [], []
        while len(found) + len(bad) < 10:
            try:
                found += [task.value for task in worker.fetch(10, wait=WAIT)]
            except CannotDeserialize as error:
                bad.append((error.record.offset, error.record.value))
    assert (found, bad) == ([1, 2, 5, 6, 7, 8, 9], [(0, b"x"), (3, b"x"), (4, b"x")])


@pytest.mark.parametrize("when", range(3))
def test_tasks_of_a_call_that_is_interrupted_come_again(topic, when):
    calls = iter(range(100))

    def loads(value: bytes) -> int:
        if next(calls) == when:
            raise KeyboardInterrupt
        return int(value)

    with connect(f"mem://{topic}") as client:
        client.create_topic(topic)
        client.producer(topic).send_many([b"0", b"1", b"2"])
        with client.worker(topic, group="jobs", value=(str, loads)) as worker:
            with pytest.raises(KeyboardInterrupt):
                worker.fetch(wait=0)
            assert [(task.value, task.attempt) for task in worker.fetch(wait=0)] == [(0, 1), (1, 1), (2, 1)]


def test_a_slow_function_keeps_no_other_thread_of_the_client_waiting():
    with connect("mem://slow-tasks") as client:
        client.create_topic("t")
        client.create_topic("other")
        client.producer("t").send_many([b"1", b"2"])
        other = client.producer("other")

        def loads(value: bytes) -> int:
            sending = threading.Thread(target=other.send, args=(value,), daemon=True)
            sending.start()
            sending.join(20)
            assert not sending.is_alive(), "it waits for the lock"
            return int(value)

        with client.worker("t", group="jobs", value=(str, loads)) as worker:
            assert [task.value for task in worker.fetch(wait=20)] == [1, 2]
            client.producer("t").send(b"3")
            assert next(iter(worker)).value == 3


def test_an_asyncio_worker_waits_on_where_nothing_can_be_read():
    async def body() -> list[int]:
        async with aio.connect("mem://values") as client:
            await client.create_topic("t")
            async with client.producer("t") as producer:
                await producer.send_many([b"x", b"7"])
            async with client.worker("t", group="jobs", value=NUMBERS) as worker:
                (first,) = await worker.fetch(1, wait=WAIT)
                return [first.value]

    assert asyncio.run(body()) == [7]


def test_what_is_no_serializer_is_refused(client, topic):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument, match="value='yaml' is none of"):
        client.worker(topic, group="jobs", value="yaml")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_typed_options_are_the_arguments(kind):
    found = inspect.signature(kind.worker).parameters
    assert set(found) - {"self", "topic", "group", "value"} == set(WorkerSettings.__annotations__)
