"""kombu's own verbs over penstock: what they promise, on a broker in memory and on a served one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError
from penstock.adapters.celery.channel import KombuChannel
from penstock.adapters.celery.names import GROUP, exchange_topic, queue_topic
from penstock.adapters.celery.transport import address_of
from penstock.clients import connect
from penstock.clients.errors import TimedOut
from penstock.clients.memory_broker import START_US, MemoryBroker

WAIT_S = 10.0

FOREIGN = [
    b"{}", b"no json", b"[]", b"[" * 5000, b'{"__type__": "decimal", "__value__": "x"}',
    b'{"properties": {"delivery_info": {}, "body_encoding": "base64"}, "body": "x"}',
    b'{"properties": {"delivery_info": {"routing_key": ""}}, "headers": [1]}',
    b'{"properties": {"delivery_info": {"routing_key": ""}, "delivery_tag": [1]}, "headers": [1]}',
]  # fmt: skip
"""Records of programs that know nothing of kombu."""


class Taking:
    """A consumer that keeps what it was given."""

    def __init__(self, connection: Connection, *queues: Queue, **options: object) -> None:
        self.messages: list = []
        self.channel = connection.channel()
        self._connection = connection
        self.consumer = Consumer(self.channel, queues, on_message=self.messages.append, **options)
        self.consumer.consume()

    def take(self, count: int = 1) -> list:
        """The next messages."""
        had = len(self.messages)
        while len(self.messages) < had + count:
            self._connection.drain_events(timeout=WAIT_S)
        return self.messages[had:]

    def bodies(self, count: int) -> list:
        return [message.payload for message in self.take(count)]

    def nothing(self, seconds: float = 0.05) -> bool:
        try:
            self._connection.drain_events(timeout=seconds)
        except TimeoutError:
            return True
        return False


def away(channel: KombuChannel) -> None:
    raise TimedOut("the broker is away")


def publish(connection: Connection, queue: str, *bodies: object, **options: object) -> None:
    producer = Producer(connection.channel())
    for body in bodies:
        producer.publish(body, routing_key=queue, **options)


def held(connection: Connection, queue: str) -> tuple[int, int, int]:
    with connect(connection.hostname) as client:
        found = client.queue(queue_topic(queue), GROUP)
        return found.ready, found.in_flight, found.dead_lettered


def test_a_message_arrives_with_its_body_headers_and_properties(connection, name):
    queue = Queue(name, Exchange(name, type="direct"), routing_key="r")
    taking = Taking(connection, queue)
    producer = Producer(connection.channel(), exchange=queue.exchange)
    producer.publish({"text": "é"}, routing_key="r", headers={"a": 1}, correlation_id="c", reply_to="back")
    (message,) = taking.take()
    assert message.payload == {"text": "é"}
    assert message.headers["a"] == 1
    assert (message.properties["correlation_id"], message.properties["reply_to"]) == ("c", "back")
    assert message.delivery_info == {"exchange": name, "routing_key": "r"}
    message.ack()


def test_bytes_arrive_as_they_were(connection, name):
    taking = Taking(connection, Queue(name), accept=["application/octet-stream"])
    publish(connection, name, b"\x00\xff", serializer=None, content_type="application/octet-stream",
            content_encoding="binary")  # fmt: skip
    (message,) = taking.take()
    assert bytes(message.body) == b"\x00\xff"


def test_acked_messages_are_gone_and_others_come_back_when_their_channel_closes(connection, name):
    taking = Taking(connection, Queue(name))
    publish(connection, name, 1, 2, 3)
    first, second, third = taking.take(3)
    first.ack()
    third.ack()
    taking.channel.close()
    again = Taking(connection, Queue(name))
    assert again.bodies(1) == [second.payload] == [2]
    assert again.nothing()
    again.messages[0].ack()
    again.channel.close()
    assert held(connection, name) == (0, 0, 0)


def test_a_requeued_message_comes_again_and_a_rejected_one_is_dead_lettered(connection, name):
    taking = Taking(connection, Queue(name))
    publish(connection, name, "x")
    taking.take()[0].requeue()
    (message,) = taking.take()
    assert message.payload == "x"
    message.reject()
    while held(connection, name)[1]:
        assert taking.nothing()
    assert held(connection, name) == (0, 0, 1)


def test_a_requeued_message_is_redelivered_in_its_place_and_counts_as_an_attempt(connection, name):
    taking = Taking(connection, Queue(name), prefetch_count=1)
    publish(connection, name, *range(3))
    with connect(connection.hostname) as client:
        client.set_queue(queue_topic(name), GROUP, max_attempts=2)
    taking.take()[0].requeue()
    (message,) = taking.take()
    assert (message.payload, message.delivery_info["redelivered"]) == (0, True)
    message.requeue()
    assert taking.bodies(1) == [1]
    assert held(connection, name) == (1, 1, 1)


def test_messages_that_a_closed_channel_gives_back_are_not_redelivered(connection, name):
    taking = Taking(connection, Queue(name))
    publish(connection, name, "x")
    taking.take()
    taking.channel.close()
    (message,) = Taking(connection, Queue(name)).take()
    assert "redelivered" not in message.delivery_info


def test_a_record_that_kombu_did_not_write_is_dead_lettered_and_the_next_one_arrives(connection, name):
    publish(connection, name, 1)
    with connect(connection.hostname) as client, client.producer(queue_topic(name)) as producer:
        producer.send_many(FOREIGN)
    publish(connection, name, 2)
    assert Taking(connection, Queue(name)).bodies(2) == [1, 2]
    assert held(connection, name) == (0, 2, len(FOREIGN))
    with connect(connection.hostname) as client:
        dead = client.dead_letters(queue_topic(name), GROUP)
    assert all(each.reason.startswith("not a message of kombu: ") for each in dead)


def test_a_record_that_kombu_did_not_write_is_passed_over_by_a_temporary_queue(connection, name, caplog):
    exchange = Exchange(name, type="fanout")
    taking = Taking(connection, Queue(f"{name}.t", exchange, auto_delete=True))
    with connect(connection.hostname) as client, client.producer(exchange_topic(name)) as producer:
        producer.send_many(FOREIGN)
    Producer(connection.channel(), exchange=exchange).publish("one")
    assert taking.bodies(1) == ["one"]
    assert "is no message of kombu, and is passed over" in caplog.text


def test_a_consumer_holds_no_more_than_its_prefetch_count(connection, name):
    taking = Taking(connection, Queue(name), prefetch_count=2)
    publish(connection, name, *range(5))
    first, second = taking.take(2)
    assert taking.nothing()
    assert held(connection, name) == (3, 2, 0)
    second.ack()
    assert taking.bodies(1) == [2]
    assert taking.nothing()
    taking.consumer.qos(prefetch_count=0)
    assert taking.bodies(2) == [3, 4]
    assert [message.payload for message in taking.messages] == [0, 1, 2, 3, 4]
    first.ack()


def test_the_prefetch_count_holds_over_several_queues(connection, name):
    taking = Taking(connection, Queue(f"{name}.a"), Queue(f"{name}.b"), prefetch_count=1)
    for body in range(3):
        publish(connection, f"{name}.a", body)
        publish(connection, f"{name}.b", body)
    for _ in range(6):
        (message,) = taking.take()
        assert taking.nothing(0.01)
        message.ack()
    assert sorted(message.payload for message in taking.messages) == [0, 0, 1, 1, 2, 2]


def test_a_cancelled_consumer_keeps_what_it_was_given_and_gives_back_the_rest(connection, name):
    taking = Taking(connection, Queue(name), prefetch_count=3)
    publish(connection, name, *range(3))
    (message,) = taking.take()
    taking.consumer.cancel()
    assert taking.nothing()
    message.ack()
    again = Taking(connection, Queue(name))
    assert sorted(again.bodies(2)) == [1, 2]
    assert not any("redelivered" in each.delivery_info for each in again.messages)


def test_a_consumer_without_acks_leaves_nothing_behind(connection, name):
    taking = Taking(connection, Queue(name), no_ack=True)
    publish(connection, name, 1, 2)
    assert taking.bodies(2) == [1, 2]
    taking.channel.close()
    assert held(connection, name) == (0, 0, 0)


def test_a_queue_tells_its_size_and_is_purged_and_deleted(connection, name):
    queue = Queue(name, channel=connection.channel())
    queue.declare()
    assert queue.queue_declare(passive=True).message_count == 0
    publish(connection, name, *range(4))
    assert queue.queue_declare(passive=True).message_count == 4
    assert queue.get().payload == 0
    assert queue.purge() == 3
    assert queue.get() is None
    assert queue.purge() == 0
    queue.delete()
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        queue.queue_declare(passive=True)
    publish(connection, name, "new")
    assert queue.get(no_ack=True).payload == "new"
    assert queue.get() is None


@pytest.mark.parametrize(("most_urgent", "order"), [(9, [9, 5, 0]), (0, [0, 5, 9])])
def test_the_most_urgent_message_comes_first(url, name, most_urgent, order):
    with Connection(url, transport_options={"most_urgent": most_urgent}) as connection:
        for priority in (5, 0, 9):
            publish(connection, name, priority, priority=priority)
        assert Taking(connection, Queue(name), prefetch_count=1).bodies(1) == order[:1]
        assert Taking(connection, Queue(name)).bodies(2) == order[1:]


def test_a_topic_exchange_routes_by_pattern(connection, name):
    exchange = Exchange(name, type="topic")
    kept = Queue(f"{name}.kept", exchange, routing_key="a.#")
    passing = Queue(f"{name}.passing", exchange, routing_key="*.b", auto_delete=True)
    taking = Taking(connection, kept, passing)
    producer = Producer(connection.channel(), exchange=exchange)
    for key in ("a.b", "a.c", "b.b", "c.c"):
        producer.publish(key, routing_key=key)
    assert sorted(taking.bodies(4)) == ["a.b", "a.b", "a.c", "b.b"]
    assert taking.nothing()


def test_every_queue_of_a_fanout_gets_what_is_published_after_it_was_bound(connection, url, name):
    exchange = Exchange(name, type="fanout")
    publisher = Producer(connection.channel(), exchange=exchange)
    publisher.publish("before anything listens")
    first = Taking(connection, Queue(f"{name}.1", exchange, auto_delete=True))
    publisher.publish("one")
    with Connection(url) as elsewhere:
        second = Taking(elsewhere, Queue(f"{name}.2", exchange, auto_delete=True))
        publisher.publish("two")
        assert second.bodies(1) == ["two"]
        assert second.nothing()
    assert first.bodies(2) == ["one", "two"]


def test_a_reply_finds_the_temporary_queue_that_another_connection_bound(connection, url, name):
    exchange = Exchange(name, type="direct")
    mine = Taking(connection, Queue(f"{name}.mine", exchange, routing_key="mine", auto_delete=True))
    other = Taking(connection, Queue(f"{name}.other", exchange, routing_key="other", auto_delete=True))
    with Connection(url) as elsewhere:
        Producer(elsewhere.channel(), exchange=exchange).publish("pong", routing_key="mine")
    assert mine.bodies(1) == ["pong"]
    assert other.nothing()
    assert other.messages == []


def test_temporary_queues_leave_no_topic_but_that_of_their_exchange(connection, name):
    Taking(connection, Queue(f"{name}.t", Exchange(name, type="fanout"), auto_delete=True))
    with connect(connection.hostname) as client:
        topics = {topic.name for topic in client.topics()}
    assert exchange_topic(name) in topics
    assert queue_topic(f"{name}.t") not in topics


def test_a_task_of_celery_stays_at_the_broker_until_its_eta(name):
    with MemoryBroker() as broker, Connection(f"penstock+{broker.url}") as connection:
        taking = Taking(connection, Queue(name))
        begun = datetime.fromtimestamp(START_US / 1e6, UTC)
        publish(connection, name, "later", headers={"eta": (begun + timedelta(seconds=60)).isoformat()})
        publish(connection, name, "now", headers={"eta": (begun - timedelta(seconds=60)).isoformat()})
        (message,) = taking.take()
        assert message.payload == "now"
        message.ack()
        while held(connection, name)[1]:  # acks are sent together and not waited for, and its lease is over soon
            assert taking.nothing()
        broker.advance(59)
        assert taking.nothing()
        broker.advance(2)
        assert taking.bodies(1) == ["later"]


def test_a_message_that_a_dead_worker_held_comes_back_when_its_lease_ends(name):
    with MemoryBroker() as broker, Connection(f"penstock+{broker.url}") as connection:
        publish(connection, name, "x")
        client = connect(broker.url)
        (task,) = client.worker(name, group=GROUP, prefetch=0, lease=30).fetch(1)
        taking = Taking(connection, Queue(name))
        broker.advance(29)
        assert taking.nothing()
        broker.advance(2)
        (message,) = taking.take()
        assert message.payload == "x"
        assert message.delivery_info["redelivered"] is True
        assert task.attempt == 1


def test_a_connection_whose_channel_cannot_be_closed_holds_nothing(connection, name, monkeypatch):
    publish(connection, name, 1)
    Taking(connection, Queue(name)).take()
    transport = connection.connection
    with monkeypatch.context() as patch:
        patch.setattr(KombuChannel, "close", away)
        with pytest.raises(TimedOut):
            transport.close_connection(transport)
    assert transport.link.client.closed
    assert held(connection, name) == (1, 0, 0)


def test_a_connection_to_no_broker_is_a_connection_error(tmp_path):
    connection = Connection(f"penstock+unix://{tmp_path}/none", transport_options={"timeout": 0.05})
    with pytest.raises(connection.connection_errors, match="none"):
        connection.connect()


def test_a_connection_goes_on_with_the_next_of_its_addresses(served, tmp_path, name):
    addresses = f"penstock+unix://{tmp_path}/none;penstock+{served.url}"
    with Connection(addresses, transport_options={"timeout": 1.0}) as connection:
        connection.ensure_connection(max_retries=2, interval_start=0)
        publish(connection, name, "x")
        assert Taking(connection, Queue(name)).bodies(1) == ["x"]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("penstock+unix:///run/b", "unix:///run/b"),
        ("penstock+tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000"),
        ("penstock+mem://x", "mem://x"),
    ],
)
def test_an_address_is_the_same_whether_kombu_took_it_apart_or_not(url, address):
    assert address_of(Connection(url)) == address
    if "mem" not in url:
        connection = Connection("penstock+unix:///first")
        connection.switch(url)
        assert address_of(connection) == address


@pytest.mark.parametrize(
    ("queue", "topic"),
    [
        ("celery", "celery"),
        ("a.b-c_d", "a.b-c_d"),
        ("w@host.celery.pidbox", "kombu.queue.w-40host.celery.pidbox"),
        ("-é~", "kombu.queue.-2D-C3-A9-7E"),
        ("kombu.queue.x", "kombu.queue.kombu.queue.x"),
        (".hidden", "kombu.queue..hidden"),
    ],
)
def test_a_queue_has_the_topic_of_its_name_or_a_quoted_one(queue, topic):
    assert queue_topic(queue) == topic
