"""dramatiq's own worker over a broker of penstock: delays, retries, dead letters, and what is given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from penstock.broker import ServeConfig
from penstock.clients.errors import TimedOut
from support.processes import Serving

dramatiq = pytest.importorskip("dramatiq", reason="the extra dramatiq is not installed")

from penstock.adapters import dramatiq as adapter  # noqa: E402
from penstock.adapters.dramatiq import GIVEN_UP, GROUP, PenstockBroker, topic_of  # noqa: E402

WAIT_MS = 30_000

NO_OPTIONS = b'{"queue_name": "q", "actor_name": "a", "args": [], "kwargs": {}, "options": []}'


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("served")
    with Serving(ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=64)) as serving:
        yield serving.url


@pytest.fixture
def broker(url) -> Iterator[PenstockBroker]:
    made = PenstockBroker(url)
    yield made
    made.close()


@pytest.fixture
def queue(request) -> str:
    return request.node.name[:60].replace("[", "-").replace("]", "")


def actor(broker: PenstockBroker, queue: str, function, **options):
    return dramatiq.actor(function, broker=broker, queue_name=queue, **options)


def work_off(broker: PenstockBroker, queue: str) -> None:
    worker = dramatiq.Worker(broker, queues={queue}, worker_threads=3, worker_timeout=100)
    worker.start()
    try:
        broker.join(queue, timeout=WAIT_MS)
        worker.join()
    finally:
        worker.stop()


def test_messages_are_worked_off_at_their_time(broker, queue):
    done: list[int] = []
    add = actor(broker, queue, lambda a, b=0: done.append(a + b), actor_name="add")
    for number in range(30):
        add.send(number, b=100)
    add.send_with_options(args=(7,), delay=300)
    work_off(broker, queue)
    assert sorted(done) == [7, *range(100, 130)]
    assert broker.client.dead_letters(topic_of(queue), GROUP) == []


def test_a_failure_is_tried_again_and_then_a_dead_letter(broker, queue):
    tries: list[str] = []

    def flaky(name: str, times: int) -> None:
        tries.append(name)
        if tries.count(name) <= times:
            raise ValueError(name)

    sent = actor(broker, queue, flaky, max_retries=2, min_backoff=20, max_backoff=40, actor_name="flaky")
    sent.send("good", 2)
    sent.send("bad", 9)
    work_off(broker, queue)
    assert (tries.count("good"), tries.count("bad")) == (3, 3)
    (dead,) = broker.client.dead_letters(topic_of(queue), GROUP)
    assert dead.reason == GIVEN_UP


def test_a_redriven_message_has_all_its_retries_again(broker, queue):
    tries: list[int] = []

    def failing() -> None:
        tries.append(1)
        raise ValueError

    actor(broker, queue, failing, max_retries=2, min_backoff=20, max_backoff=40, actor_name="failing").send()
    for tried in (3, 6, 9):
        work_off(broker, queue)
        assert len(tries) == tried
        (dead,) = broker.client.dead_letters(topic_of(queue), GROUP)
        assert dead.reason == GIVEN_UP
        assert broker.client.redrive(topic_of(queue), GROUP, [dead.id]) == 1


@pytest.mark.parametrize("value", [b"?", NO_OPTIONS], ids=["text", "options-no-map"])
def test_a_record_of_another_program_is_a_dead_letter(broker, queue, value):
    broker.declare_queue(queue)
    consumer = broker.consume(queue, timeout=1000)
    broker.client.producer(topic_of(queue)).send(value)
    assert next(consumer) is None
    (dead,) = broker.client.dead_letters(topic_of(queue), GROUP)
    assert dead.reason.startswith("not a message of dramatiq")
    consumer.close()


def test_a_consumer_holds_no_more_than_it_may_and_gives_the_rest_back(broker, queue):
    nothing = actor(broker, queue, lambda: None, actor_name="nothing")
    for _ in range(5):
        nothing.send()
    first, second = broker.consume(queue, prefetch=2, timeout=50), broker.consume(queue, prefetch=9, timeout=50)
    one, other = next(first), next(first)
    assert next(first) is None
    assert len(list(iter(second.__next__, None))) == 3
    first.ack(one)
    first.requeue([other])
    assert next(first).message_id == other.message_id
    first.close()
    second.close()
    assert broker.client.queue(topic_of(queue), GROUP).ready == 4


def test_a_consumer_without_room_waits_for_an_ack(broker, queue):
    nothing = actor(broker, queue, lambda: None, actor_name="nothing")
    sent = [nothing.send().message_id for _ in range(2)]
    consumer = broker.consume(queue, prefetch=1, timeout=WAIT_MS)
    first, found = next(consumer), []
    waiting = threading.Thread(target=lambda: found.append(next(consumer)))
    waiting.start()
    consumer.ack(first)
    waiting.join(WAIT_MS / 1000)
    assert [first.message_id, found[0].message_id] == sent
    consumer.close()


def test_what_is_left_is_waited_for_so_long(broker, queue):
    actor(broker, queue, lambda: None, actor_name="nothing").send()
    with pytest.raises(dramatiq.QueueJoinTimeout):
        broker.join(queue, timeout=0)
    broker.flush_all()
    broker.join(queue, timeout=0)


def test_a_delayed_message_is_held_back_by_the_broker(broker, queue):
    actor(broker, queue, lambda: None, actor_name="nothing").send_with_options(delay=3_600_000)
    task = broker.client.task(f"{topic_of(queue)}-0-0", group=GROUP)
    assert task.state == "delayed"
    assert abs((task.time - datetime.now(UTC)).total_seconds() - 3600) < 60


def test_a_queue_that_was_deleted_is_made_again_by_the_next_message(broker, queue):
    nothing = actor(broker, queue, lambda: None, actor_name="nothing")
    nothing.send()
    broker.client.delete_topic(topic_of(queue))
    nothing.send()
    assert broker.client.queue(topic_of(queue), GROUP).ready == 1


def test_a_queue_that_was_not_declared_is_none(broker):
    for verb in (broker.consume, broker.flush, broker.join):
        with pytest.raises(dramatiq.QueueNotFound):
            verb("unknown")
    message = dramatiq.Message(queue_name="unknown", actor_name="a", args=(), kwargs={}, options={})
    with pytest.raises(dramatiq.QueueNotFound):
        broker.enqueue(message)


def test_actors_are_declared_without_a_broker_and_its_absence_is_a_lost_connection(tmp_path):
    lonely = PenstockBroker(f"unix://{tmp_path}/none", timeout=0.05)
    nothing = actor(lonely, "default", lambda: None, actor_name="nothing")
    with pytest.raises(dramatiq.errors.ConnectionClosed) as caught:
        nothing.send()
    assert isinstance(caught.value.__cause__, TimedOut)
    lonely.close()


def test_a_forked_child_connects_anew(broker, monkeypatch):
    ours = broker.client
    monkeypatch.setattr(adapter.os, "getpid", lambda: -1)
    assert broker.client is not ours
    monkeypatch.undo()
    ours.close()
