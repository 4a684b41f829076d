"""What a client makes of losses: of brokers, connections, answers, deliveries and sessions."""

from __future__ import annotations

import threading

import pytest
from penstock.broker import ServeConfig
from penstock.broker.engine import NodeConfig
from penstock.broker.errors import Fenced, SessionReplaced, Unavailable, UnknownProducer, UnknownTopic
from penstock.clients import TimedOut, connect
from penstock.clients.channels.zmq import ZmqChannel
from penstock.clients.connection import connection, driver
from penstock.clients.connection.steps import FOREVER
from penstock.clients.consuming import session_life
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.errors import StillFull
from penstock.clients.producing import core
from penstock.clients.producing import partition_sender as sender
from penstock.storage.errors import BatchTooLarge, Poisoned, StorageFull
from penstock.transport.errors import CannotListen
from penstock.transport.messages import Deliver, Done, Failure, Joined, Produced, ProducerOpened
from support.processes import Serving

MANY = [b"%06d" % number for number in range(3000)]


@pytest.fixture(params=["unix", "ipc"])
def address(request, tmp_path):
    return f"{request.param}://{tmp_path}/b.sock"


@pytest.fixture
def own(tmp_path, address):
    """A broker of the test's own, to be killed."""
    config = ServeConfig(data=str(tmp_path / "data"), listen=(address,), restart_first_s=0.01)
    with Serving(config) as serving:
        yield serving


# -- batches that no broker takes ---------------------------------------------------------------------------


def test_a_batch_over_the_frame_limit_is_refused_here_and_the_producer_goes_on(tmp_path, address):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(address,), node={"max_frame_bytes": 1 << 20})
    with Serving(config), connect(address) as client:
        client.create_topic("t", max_record_bytes="16MB")
        with client.producer("t") as producer:
            with pytest.raises(BatchTooLarge, match="max_frame_bytes=1048576 of the broker: split the record"):
                producer.send(bytes(3 << 20))
            with pytest.raises(BatchTooLarge, match="with 1 record is over"):
                producer.send_many([bytes(3 << 20)])
            assert producer.send(b"after") == 0
        assert [record.value for record in client.read("t", 0, 0)] == [b"after"]


# -- brokers that go away -----------------------------------------------------------------------------------


def test_a_producer_goes_on_over_the_death_of_its_broker_without_loss_or_repeat(own):
    with connect(own.url, timeout=60) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            futures = [producer.send_nowait(value) for value in MANY[:1000]]
            own.kill_broker()
            futures += [producer.send_nowait(value) for value in MANY[1000:]]
            assert [future.result() for future in futures] == list(range(len(MANY)))
        assert [record.value for record in client.read("t", 0, 0, max_records=10_000)] == MANY


@pytest.mark.parametrize("delivery", ["push", "control", "mapped"])
def test_a_consumer_goes_on_over_the_death_of_its_broker_where_it_was(own, delivery):
    with connect(own.url, timeout=60, delivery=delivery) as client:
        client.create_topic("t", partitions=2)
        with client.producer("t") as producer, client.consumer("t", group="g") as consumer:
            producer.send_many(MANY, partition=0)
            seen = [record.value for record in consumer.fetch(100)]
            consumer.commit()
            seen += [record.value for record in consumer.fetch(100)]
            own.kill_broker()
            producer.send_many(MANY, partition=1)
            while len(seen) < 2 * len(MANY):
                seen += [record.value for record in consumer.fetch(1000)]
            assert sorted(seen) == sorted(2 * MANY)
            consumer.commit()
        assert client.group("t", "g").lag == 0


def test_without_a_broker_verbs_time_out_and_say_so(address):
    with pytest.raises(TimedOut, match=f"no connection to {address}"):
        connect(address, timeout=0.2)


def test_a_client_outlives_a_broker_that_comes_back(tmp_path, address):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(address,))
    with Serving(config) as first:
        client = connect(first.url, timeout=60)
        client.create_topic("t")
        producer = client.producer("t")
        producer.send(b"a")
        assert first.end() == 0
    with pytest.raises(TimedOut, match=r"\(batches: 1\) are on their way and not confirmed.*no connection"):
        producer.send(b"b", timeout=0.2)
    with Serving(config):
        assert producer.send(b"c") == 2
        assert [record.value for record in client.read("t", 0, 0)] == [b"a", b"b", b"c"]
        client.close()


# -- answers that go away -------------------------------------------------------------------------------------


def test_a_batch_whose_answer_was_lost_is_sent_again_and_stands_once(penstock_client, losing, monkeypatch):
    monkeypatch.setattr(sender, "PATIENCE_S", 0.02)
    monkeypatch.setattr(connection, "LOOK_PERIOD_S", 0.01)
    monkeypatch.setattr(driver, "WAIT_MAX_S", 0.01)
    penstock_client.create_topic("t")
    losing(Produced, 1, 3)
    with penstock_client.producer("t") as producer:
        assert [producer.send(value) for value in MANY[:5]] == [0, 1, 2, 3, 4]
    assert [record.value for record in penstock_client.read("t", 0, 0)] == MANY[:5]


@pytest.mark.parametrize("what", ["topic", "group", "queue", "schedule"])
def test_what_was_deleted_before_the_answer_was_lost_counts_as_deleted(penstock_client, monkeypatch, what):
    client, put, lost = penstock_client, LocalChannel.put, []
    client.create_topic("t")
    client.begin_group("t", "group", {0: 0})
    client.set_queue("t", "queue")
    client.schedule("t", "schedule", "every 1h", b"x")

    def losing_once(channel, message, payload):
        if type(message) is Done and not lost:
            lost.append(message)
            channel.break_off()
            return True
        return put(channel, message, payload)

    monkeypatch.setattr(LocalChannel, "put", losing_once)
    {
        "topic": lambda: client.delete_topic("t"),
        "group": lambda: client.delete_group("t", "group"),
        "queue": lambda: client.delete_queue("t", "queue"),
        "schedule": lambda: client.delete_schedule("t", "schedule"),
    }[what]()
    assert lost
    kept = {"topic": client.topics, "group": client.groups, "queue": client.queues, "schedule": client.schedules}[what]
    assert kept() == []


def full(request: int) -> Failure:
    return Failure(request, StorageFull.code, "cannot reserve 9 bytes for /a/b: the disk is full", True)


def test_what_is_refused_for_now_is_tried_until_it_passes(penstock_client, losing):
    penstock_client.create_topic("t")
    losing(Produced, 1, 2, instead=lambda answer: full(answer.request))
    with penstock_client.producer("t") as producer:
        assert producer.send(b"x") == 0
    assert len(penstock_client.read("t", 0, 0)) == 1


def test_a_claim_that_is_refused_for_now_is_made_again(penstock_client, losing):
    """As a batch is: a named producer has nothing to send before its name is claimed."""
    penstock_client.create_topic("t")
    losing(ProducerOpened, 1, 2, instead=lambda answer: full(answer.request))
    with penstock_client.producer("t", name="feed") as producer:
        assert producer.send(b"x", partition=0) == 0
    losing(ProducerOpened, 1, instead=lambda answer: full(answer.request))
    with penstock_client.producer("t", name="feed") as producer:
        assert producer.next_sequence() == 1


def test_a_claim_that_is_refused_for_now_is_made_again_while_the_application_is_away(penstock_client, losing):
    penstock_client.create_topic("t")
    losing(ProducerOpened, 1, 2, instead=lambda answer: full(answer.request))
    sent = threading.Event()
    producer = penstock_client.producer("t", name="feed")
    producer.send_nowait(b"x").add_done_callback(lambda _: sent.set())
    assert sent.wait(10)
    assert len(penstock_client.read("t", 0, 0)) == 1


def test_a_claim_that_is_refused_for_good_ends_what_waits_for_it(penstock_client, losing):
    penstock_client.create_topic("t")
    losing(ProducerOpened, instead=lambda answer: Failure(answer.request, "poisoned", "its disk failed"))
    producer = penstock_client.producer("t", name="feed")
    waiting = producer.send_nowait(b"x")
    for ask in (waiting.result, producer.next_sequence, lambda: producer.send(b"y")):
        with pytest.raises(Poisoned, match="its disk failed"):
            ask()


def test_a_claim_that_is_refused_for_now_is_not_made_all_the_time(penstock_broker, losing):
    with penstock_broker.connect(timeout=0.4) as client:
        client.create_topic("t")
        seen = []
        losing(ProducerOpened, instead=lambda answer: seen.append(answer) or full(answer.request))
        producer = client.producer("t", name="feed")
        with pytest.raises(StillFull, match="the disk is full"):
            producer.next_sequence()
        with pytest.raises(StillFull, match="the disk is full"):
            producer.send(b"x")
        assert 2 < len(seen) < 12
        with pytest.raises(StillFull):
            producer.close()


def test_a_full_window_blocks_and_then_says_on_what(penstock_broker, losing):
    with penstock_broker.connect(timeout=0.2) as client:
        client.create_topic("t")
        producer = client.producer("t", window_bytes="1MB")
        losing(Produced)
        taken = []

        def fill():
            for number in range(100):
                producer.send_nowait(bytes(100_000))
                taken.append(number)

        with pytest.raises(TimedOut, match=r"partition 0 of topic t: \d+ bytes \(batches: \d+\) .*window is 1048576"):
            fill()
        assert 10 <= len(taken) <= 30
        with pytest.raises(TimedOut, match="partition 0"):
            producer.close()


def test_the_reason_of_a_refusal_is_named_when_patience_ends(penstock_broker, losing):
    with penstock_broker.connect(timeout=0.2) as client:
        client.create_topic("t")
        losing(Produced, instead=lambda answer: full(answer.request))
        producer = client.producer("t")
        with pytest.raises(StillFull, match=r"^the broker has no room .* t: the disk is full; \d") as raised:
            producer.send(b"x")
        assert isinstance(raised.value, TimedOut)
        assert (raised.value.code, raised.value.retry) == ("still_full", True)
        with pytest.raises(StillFull):
            producer.close()


@pytest.mark.parametrize("told", [True, False])
def test_a_close_after_still_full_waits_for_one_more_try(penstock_broker, losing, monkeypatch, told):
    monkeypatch.setattr(core, "CLOSE_FULL_S", 0.1)
    with penstock_broker.connect(timeout=0.2) as client:
        client.create_topic("t")
        losing(Produced, instead=lambda answer: full(answer.request))
        producer, connection = client.producer("t"), client._connection
        producer.send_nowait(b"x")
        if told:
            with pytest.raises(StillFull):
                producer.flush()
        connection.timeout = 3.0
        began = connection.clock()
        with pytest.raises(StillFull):
            producer.close()
        assert (connection.clock() - began < 3.0) is told


def test_another_reason_of_a_refusal_is_a_time_out(penstock_broker, losing):
    with penstock_broker.connect(timeout=0.2) as client:
        client.create_topic("t")
        losing(Produced, instead=lambda answer: Failure(answer.request, Unavailable.code, "not now", True))
        producer = client.producer("t")
        for waiting in (lambda: producer.send(b"x"), producer.close):
            with pytest.raises(TimedOut, match="the broker said: not now") as refused:
                waiting()
            assert refused.value.code == "timed_out"


def test_after_a_failure_that_broke_the_sequence_a_producer_goes_on(penstock_client, losing):
    penstock_client.create_topic("t")
    losing(Produced, 2, instead=lambda answer: Failure(answer.request, "poisoned", "the disk is broken"))
    with penstock_client.producer("t") as producer:
        assert producer.send(b"a") == 0
        with pytest.raises(Exception, match="the disk is broken"):
            producer.send(b"b")
        assert producer.send(b"c") == 2


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_producer_that_was_silent_for_longer_than_the_broker_remembers_goes_on(penstock_broker, many):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            assert producer.send(b"before") == 0
            penstock_broker.clock.advance(8 * 86400.0)
            penstock_broker.advance(120)
            (partition,) = penstock_broker._broker._node._registry.topics.by_name["t"].partitions
            assert not partition.committed.producers.by_id
            if many:
                futures = [producer.send_nowait(value) for value in MANY]
                assert [future.result() for future in futures] == [number + 1 for number in range(len(MANY))]
            else:
                assert producer.send(b"after") == 1
        assert len(client.read("t", 0, 1, max_records=10_000)) == (len(MANY) if many else 1)


@pytest.mark.parametrize("how", ["copied", "first"])
def test_what_a_broker_may_have_before_it_forgot_its_producer_is_not_sent_again(penstock_client, losing, how):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t")
    if how == "copied":
        producer.send(b"before")
        session = producer._core.senders[0].session
        to_send = session.to_send

        def copied():
            batch = to_send()
            if batch is not None:
                batch.copied = True
            return batch

        session.to_send = copied
    losing(Produced, instead=lambda answer: Failure(answer.request, UnknownProducer.code, "unknown here"))
    with pytest.raises(UnknownProducer):
        producer.send(b"x")
    assert [record.value for record in penstock_client.read("t", 0, 0)].count(b"x") == 1


# -- deliveries and sessions that go away ---------------------------------------------------------------------


@pytest.mark.parametrize("group", ["g", None])
def test_a_lost_delivery_is_noticed_and_read_again(penstock_client, losing, group):
    penstock_client.create_topic("t")
    losing(Deliver, 2)
    with penstock_client.producer("t") as producer, penstock_client.consumer("t", group=group) as consumer:
        seen = []
        for start in range(0, 30, 10):
            producer.send_many(MANY[start : start + 10])
            seen += [record.value for record in consumer.fetch(100, wait=0.05)]
        while len(seen) < 30:
            seen += [record.value for record in consumer.fetch(100)]
    assert seen == MANY[:30]


def test_a_push_endpoint_that_stays_silent_is_given_up_for_the_control_port(ipc, topic, elsewhere, monkeypatch):
    monkeypatch.setattr(ZmqChannel, "listen", lambda channel, endpoint: None)
    with connect(ipc, timeout=60) as client:
        client.create_topic(topic)
        client.producer(topic).send_many(MANY)
        with client.consumer(topic, group="g") as consumer:
            assert consumer.delivery == "push"
            monkeypatch.setattr(session_life, "SILENCE_S", 0.1)
            seen = [record.value for record in consumer.fetch(len(MANY), wait=60)]
            assert consumer.delivery == "control"
            while len(seen) < len(MANY):
                seen += [record.value for record in consumer.fetch(len(MANY))]
    assert seen == MANY


def test_a_push_endpoint_that_cannot_be_opened_is_given_up_for_the_control_port(ipc, topic, elsewhere, monkeypatch):
    def refuse(channel, endpoint):
        raise CannotListen("no socket left")

    monkeypatch.setattr(ZmqChannel, "listen", refuse)
    with connect(ipc, timeout=60) as client:
        client.create_topic(topic)
        client.producer(topic).send_many(MANY[:10])
        with client.consumer(topic, group="g") as consumer:
            assert consumer.delivery == "control"
            assert [record.value for record in consumer.fetch(wait=60)] == MANY[:10]
        with pytest.raises(CannotListen):
            client.consumer(topic, group="g", delivery="push")


def test_silence_at_the_end_of_the_log_is_no_reason_to_give_up_push(ipc, topic, elsewhere, monkeypatch):
    monkeypatch.setattr(session_life, "SILENCE_S", 0.1)
    with connect(ipc, timeout=60) as client:
        client.create_topic(topic)
        with client.producer(topic) as producer, client.consumer(topic) as consumer:
            for value in MANY[:3]:
                assert consumer.fetch(wait=0.3) == []
                producer.send(value)
                assert consumer.fetch(wait=60)[0].value == value
            assert consumer.delivery == "push"


def test_an_expired_session_is_joined_again_and_goes_on_where_it_was(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        with client.producer("t") as producer, client.consumer("t", group="g", session_timeout=5) as consumer:
            producer.send_many(MANY[:20])
            assert len(consumer.fetch(10)) == 10
            penstock_broker.advance(30)
            assert [record.value for record in consumer.fetch(100)] == MANY[10:20]
            consumer.commit()
        assert client.group("t", "g").lag == 0


def test_an_application_that_hangs_loses_its_partitions_and_learns_it_at_commit(penstock_broker):
    with penstock_broker.connect() as hanging, penstock_broker.connect() as busy:
        hanging.create_topic("t")
        hanging.producer("t").send_many(MANY[:20])
        first = hanging.consumer("t", group="g", max_processing=0.01)
        assert len(first.fetch(10)) == 10
        second = busy.consumer("t", group="g")
        while second.assignment != [0]:
            penstock_broker.advance(15)
            second.fetch(1, wait=0.02)
        second.seek("earliest")
        assert [record.value for record in second.fetch(100)] == MANY[:20]
        second.commit()
        with pytest.raises(Fenced, match="read again"):
            first.commit()
        assert busy.group("t", "g").lag == 0


def test_a_sign_of_life_that_cannot_be_sent_is_not_tried_without_end(penstock_client, monkeypatch):
    penstock_client.create_topic("t")
    with penstock_client.consumer("t", group="g", session_timeout=5) as consumer:
        consumer.fetch(1, wait=0)
        core = consumer._core
        later = core.connection.clock() + 30
        core.life.touched = later
        with monkeypatch.context() as offline:
            offline.setattr(core.connection, "send", lambda *message, **how: False)
            offline.setattr(core.connection, "clock", lambda: later)
            core.turn(later)
            assert core.due() > later


def test_a_long_session_timeout_gives_signs_of_life_as_often_as_brokers_want_them(penstock_client):
    penstock_client.create_topic("t")
    with penstock_client.consumer("t", group="g", session_timeout="1d") as consumer:
        life, driver = consumer._core.life, penstock_client._driver
        before = driver.connection.clock()
        for _ in range(3):
            due = life.due()
            assert 0 < due - before < NodeConfig().session_timeout_max_s / 3
            driver.do(lambda due=due: life.turn(due))
            before = due


def test_a_member_that_is_joined_again_elsewhere_ends(penstock_broker):
    with penstock_broker.connect() as one, penstock_broker.connect() as two:
        one.create_topic("t")
        older = one.consumer("t", group="g", member="m")
        newer = two.consumer("t", group="g", member="m")
        with pytest.raises(SessionReplaced, match="joined again"):
            older.fetch()
        older.close()
        assert newer.assignment == [0]


def test_a_topic_deleted_under_a_consumer_ends_it(penstock_client):
    penstock_client.create_topic("t")
    consumer = penstock_client.consumer("t")
    penstock_client.delete_topic("t")
    with pytest.raises(UnknownTopic):
        consumer.fetch()
    consumer.close()


@pytest.mark.parametrize("more", [False, True])
def test_a_commit_before_its_topic_is_deleted_and_made_again_is_not_fenced(penstock_broker, more):
    with penstock_broker.connect() as one, penstock_broker.connect() as other:
        one.create_topic("t")
        one.producer("t").send_many(MANY[:20])
        consumer = one.consumer("t", group="g")
        assert len(consumer.fetch(10)) == 10
        commit = consumer._core.commit(None, "", FOREVER)
        next(commit)
        if more:
            consumer.fetch(1)
        other.delete_topic("t")
        other.create_topic("t")
        one.ping()  # the answer and the end of the session come together
        if more:
            with pytest.raises(UnknownTopic):
                next(commit)
        else:
            assert next(commit, "committed") == "committed"
        with pytest.raises(UnknownTopic):
            consumer.commit()


def test_a_join_that_is_not_answered_times_out(penstock_broker, losing):
    with penstock_broker.connect(timeout=0.1) as client:
        client.create_topic("t")
        losing(Joined)
        with pytest.raises(TimedOut, match="joining topic t"):
            client.consumer("t", group="g")


def test_closing_from_another_thread_ends_a_wait(penstock_client):
    penstock_client.create_topic("t")
    consumer = penstock_client.consumer("t")
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.extend(consumer))
    reader.start()
    penstock_client.producer("t").send(b"x")
    while not seen:
        penstock_client.ping()
    consumer.close()
    reader.join(10)
    assert not reader.is_alive()
    assert len(seen) == 1
