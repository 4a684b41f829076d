"""Ctrl-C at any moment of a verb: nothing acknowledged is lost, nothing is doubled, no wait is left without an end.

Python looks for signals where a function begins and where a call returns: these are the moments that are tried, each
with a client of its own. `make soak` tries all of them, else each of a stride.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.memory_broker import MemoryBroker
from support.interrupts import ExpectedInterrupt, interrupts

CLIENTS = tuple(
    f"clients/{place}"
    for place in ("client.py", "consumer.py", "producer.py", "task.py", "worker.py", "connection/", "consuming/",
                  "producing/", "working/", "verbs.py")
)  # fmt: skip
INSIDE = (*CLIENTS, "transport/producer_session.py", "transport/consumer_session.py")

BEFORE = [b"before %d" % number for number in range(3)]
MORE = [b"more %d" % number for number in range(2)]
ALL = [*BEFORE, *MORE]
STRIDE = 7
"""Moments from one that is tried to the next; a prime, so that repeated steps are met in different places."""


class Life:
    """A client with a producer and a reader of each kind, and what it was told."""

    def __init__(self, url: str) -> None:
        self.client = connect(url, timeout=20.0)
        self.client.create_topic("t")
        self.producer = self.client.producer("t")
        self.sure: list[bytes] = [*BEFORE]
        self.tried: list[bytes] = []
        self.futures: list[Any] = []
        self.producer.send_many(BEFORE)

    def send(self) -> None:
        self.tried.append(b"sent")
        self.producer.send(b"sent")
        self.sure.append(self.tried.pop())

    def send_many(self) -> None:
        self.tried += [b"one", b"two"]
        self.producer.send_many([b"one", b"two"])
        self.sure += self.tried
        self.tried = []

    def gather_and_flush(self) -> None:
        for value in (b"first", b"second", b"third"):
            self.tried.append(value)
            self.futures.append((value, self.producer.send_nowait(value, key=b"k")))
        self.producer.flush()

    def result(self) -> None:
        self.tried.append(b"asked")
        self.futures.append((b"asked", self.producer.send_nowait(b"asked")))
        self.futures[-1][1].result()

    def check_log(self) -> None:
        """Every record that is known to stand is there once, in its place, and no other twice."""
        self.producer.flush()
        for value, future in self.futures:
            assert future.done(), f"{value} is not known after a flush"
            assert self.client.read("t", 0, future.result(), max_records=1)[0].value == value
            self.sure.append(value)
            self.tried.remove(value)
        last = self.producer.send(b"after", timeout=5)
        found = [record.value for record in self.client.read("t", 0, 0)]
        assert found[last] == b"after"
        there = Counter(found) - Counter([*self.sure, b"after"])
        assert not Counter([*self.sure, b"after"]) - Counter(found), "a record that was acknowledged is lost"
        assert there <= Counter(self.tried), "a record stands twice"


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    return 1 if request.config.getoption("--soak") else STRIDE


@pytest.mark.parametrize("verb", ["send", "send_many", "gather_and_flush", "result"])
def test_sending(verb: str, stride: int) -> None:
    for interrupt in interrupts(INSIDE, stride=stride, above=30):
        with MemoryBroker() as broker:
            life = Life(broker.url)
            with interrupt:
                getattr(life, verb)()
            try:
                life.check_log()
                life.client.close()
            except BaseException as error:
                error.add_note(f"{verb} was interrupted at moment {interrupt.nth}")
                raise


@pytest.mark.parametrize("again", [0, 3, 11])
@pytest.mark.parametrize("way", ["fetch", "batches"])
@pytest.mark.parametrize("group", [None, "g"])
def test_fetching_and_committing(group: str | None, way: str, again: int, stride: int) -> None:
    """`again`: so many moments after the first interrupt comes another."""
    for interrupt in interrupts(INSIDE, stride=stride, above=30):
        with MemoryBroker() as broker:
            life = Life(broker.url)
            life.producer.send_many(MORE)
            life.sure += MORE
            consumer = life.client.consumer("t", group=group)
            taken: list[bytes] = []

            def verb(consumer: Any = consumer, taken: list[bytes] = taken) -> None:
                found = consumer.fetch(2, wait=5) if way == "fetch" else next(consumer.batches(wait=5))
                taken += [record.value for record in found]
                if group:
                    consumer.commit()

            try:
                with interrupt:
                    verb()
                if again and interrupt.came:
                    with ExpectedInterrupt(again, INSIDE):
                        verb()
                while len(found := consumer.fetch(10, wait=2.0 if len(taken) < len(ALL) else 0)):
                    taken += [record.value for record in found]
                if group:
                    consumer.commit()
                    assert life.client.group("t", group).partitions[0].cursor == len(ALL)
                assert taken == ALL
                life.check_log()
                consumer.close()
                life.client.close()
            except BaseException as error:
                error.add_note(f"interrupted at moment {interrupt.nth}; taken: {taken}")
                raise


def test_working(stride: int) -> None:
    for interrupt in interrupts(INSIDE, stride=stride, above=30):
        with MemoryBroker() as broker:
            life = Life(broker.url)
            worker = life.client.worker("t", group="g")
            acked: list[bytes] = []

            def verb(worker: Any = worker, acked: list[bytes] = acked) -> None:
                for task in worker.fetch(2, wait=5):
                    task.ack()
                    acked.append(task.value)

            try:
                with interrupt:
                    verb()
                worker.flush()
                worker.close()
                left = life.client.worker("t", group="g")
                again = left.fetch(10, wait=0.2)
                assert not {task.value for task in again} & set(acked), "an acked task came back"
                left.ack(again)
                life.check_log()
                life.client.close()
            except BaseException as error:
                error.add_note(f"interrupted at moment {interrupt.nth}; acked: {acked}")
                raise
