"""One client, several threads: none waits for another's answer, and work goes on when all are away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from penstock.clients import connect
from penstock.clients.connection.steps import Once
from penstock.storage.errors import Closed
from support.reading import until

PATIENCE_S = 60.0


@pytest.fixture(params=["mem", "unix", "ipc"])
def shared(request, penstock_broker, topic):
    """A client over memory and over a socket, with a topic."""
    url = penstock_broker.url if request.param == "mem" else request.getfixturevalue(request.param)
    with connect(url, timeout=PATIENCE_S) as client:
        client.create_topic(topic, partitions=2)
        yield client


@pytest.fixture(params=["unix", "ipc"])
def address(request):
    """Of the real broker."""
    return request.getfixturevalue(request.param)


def run_all(*targets):
    """Run all in threads; raise what they raised."""
    errors: list[BaseException] = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert errors == []


def test_a_thread_that_waits_for_records_keeps_no_other_from_sending(shared, topic):
    seen: list[bytes] = []
    with shared.consumer(topic) as consumer, shared.producer(topic) as producer:

        def read():
            while len(seen) < 200:
                seen.extend(record.value for record in consumer.fetch(wait=PATIENCE_S))

        def write():
            for number in range(200):
                producer.send(b"%d" % number)

        run_all(read, write)
    assert sorted(seen) == sorted(b"%d" % number for number in range(200))


def test_threads_that_share_a_producer_get_offsets_of_their_own(shared, topic):
    offsets: list[int] = []
    with shared.producer(topic) as producer:

        def write():
            for _ in range(50):
                offsets.append(producer.send(b"x", partition=1))

        run_all(write, write, write, write)
    assert sorted(offsets) == list(range(200))


def test_threads_ask_for_different_things_at_once(shared, topic):
    def ask():
        for _ in range(20):
            assert shared.topic(topic).name == topic
            assert shared.ping() < PATIENCE_S

    run_all(ask, ask, ask)


def test_records_of_an_application_that_went_away_are_sent_all_the_same(shared, topic):
    with shared.producer(topic) as producer:
        futures = [producer.send_nowait(b"%d" % number, partition=0) for number in range(100)]
        arrived = threading.Event()
        futures[-1].add_done_callback(lambda future: arrived.set())
        assert arrived.wait(PATIENCE_S)
        assert futures[-1].done()
        assert futures[-1].result() == 99


def test_callbacks_may_use_the_client(shared, topic):
    found: list[object] = []
    called = threading.Event()
    with shared.producer(topic) as producer:

        def callback(future):
            found.append(future.result())
            found.append(shared.topic(topic).name)
            found.append(producer.send(b"answer", partition=1))
            called.set()

        producer.send_nowait(b"question", partition=0).add_done_callback(callback)
        assert called.wait(PATIENCE_S)
    assert found == [0, topic, 0]


def test_a_callback_that_raises_is_reported_and_keeps_nothing_from_going_on(shared, topic, monkeypatch):
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append((args.exc_type, args.thread)))
    called = threading.Event()
    with shared.producer(topic) as producer:
        for number in range(2):
            future = producer.send_nowait(b"%d" % number, partition=0)
            future.add_done_callback(lambda future: 1 / 0)
            future.add_done_callback(lambda future: called.set())
            assert called.wait(PATIENCE_S)
            called.clear()
    assert [kind for kind, _ in told] == [ZeroDivisionError] * 2


def test_callbacks_behind_one_that_was_interrupted_are_called_by_the_next_verb(shared, topic):
    driver, called = shared._driver, []

    def note(name):
        called.append(name)
        if name == "interrupted":
            raise KeyboardInterrupt

    with driver.lock:  # the pump waits for it
        driver.connection.finished += [Once(note, name) for name in ("interrupted", "one", "two")]
        with pytest.raises(KeyboardInterrupt):
            driver._run_callbacks()
        assert called == ["interrupted"]
        driver._run_callbacks()
    assert called == ["interrupted", "one", "two"]


def test_a_callback_on_what_is_done_is_called_at_once(shared, topic):
    with shared.producer(topic) as producer:
        future = producer.send_nowait(b"x")
        future.result()
        called = threading.Event()
        future.add_done_callback(lambda done: called.set())
        assert called.wait(PATIENCE_S)
        assert future.exception() is None


def test_a_consumer_may_feed_a_producer_of_the_same_client(shared, topic):
    shared.create_topic(topic + "-out")
    with shared.producer(topic) as producer, shared.producer(topic + "-out") as copier:
        producer.send_many([b"%d" % number for number in range(1000)], partition=0)
        with shared.consumer(topic) as consumer:
            batches = until(1000, consumer.batches())
            copied = copier.send_many(record.value for batch in batches for record in batch)
    assert copied == 1000
    assert shared.topic(topic + "-out").records == 1000


def test_closing_ends_every_wait_and_every_thread(address, topic):
    before = set(threading.enumerate())  # clients that other tests share have pumps of their own
    client = connect(address, timeout=PATIENCE_S)
    client.create_topic(topic)
    waiting = threading.Barrier(3)
    ended: list[str] = []

    def read(name):
        consumer = client.consumer(topic)
        waiting.wait(PATIENCE_S)
        try:
            consumer.fetch(wait=PATIENCE_S)
        except Closed:
            ended.append(name)

    threads = [threading.Thread(target=read, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    waiting.wait(PATIENCE_S)
    client.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(ended) == ["one", "two"]
    assert [thread.name for thread in threading.enumerate() if thread not in before] == []


def test_a_closed_client_leaves_no_descriptor_behind(address, topic):
    def use():
        with connect(address, timeout=PATIENCE_S) as client:
            with client.producer(topic) as producer, client.consumer(topic) as consumer:
                producer.send(b"x")
                consumer.fetch()
            with client.consumer(topic, delivery="mapped") as consumer:
                consumer.fetch()

    with connect(address, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
    use()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        use()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_forked_child_is_told_to_connect_anew_and_ends_in_peace(address, topic):
    with connect(address, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        producer = client.producer(topic)
        producer.send(b"parent")
        child = os.fork()
        if not child:
            code = 1
            try:
                client.topics()
            except Closed as error:
                code = 0 if "forked" in str(error) else 2
            finally:
                client.close()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(b"parent still") == 1


@pytest.mark.parametrize("tidy", [True, False])
def test_a_program_that_forgets_to_close_ends_all_the_same(address, topic, tidy):
    script = (
        "import sys\nfrom penstock.clients import connect\n"
        "client = connect(sys.argv[1])\nclient.create_topic(sys.argv[2])\n"
        "producer, consumer = client.producer(sys.argv[2]), client.consumer(sys.argv[2], group='g')\n"
        "producer.send(b'x')\nassert consumer.fetch()\n" + ("client.close()\n" if tidy else "")
    )
    command = [sys.executable, "-c", script, address, topic]
    assert subprocess.run(command, timeout=PATIENCE_S, capture_output=True).returncode == 0


class Interrupted:
    """A client's lock; Ctrl-C comes right after it was let go for a wait, once."""

    def __init__(self, real):
        self.acquire, self.__real, self.came = real.acquire, real, False

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.__real.release()

    def release(self):
        self.__real.release()
        if not self.came:
            self.came = True
            raise KeyboardInterrupt


@pytest.mark.parametrize("delivery", ["control", "mapped"])
def test_an_interrupt_right_before_a_wait_leaves_a_client_that_works(unix, topic, delivery):
    with connect(unix, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        with client.consumer(topic, delivery=delivery) as consumer, client.producer(topic) as producer:
            client._driver.lock = Interrupted(client._driver.lock)
            with pytest.raises(KeyboardInterrupt):
                consumer.fetch(wait=PATIENCE_S)
            assert producer.send(b"after", timeout=5) == 0
            assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"after"]
