"""Consuming through clients of every kind: what is handed out, in which order, and how far that is known."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from penstock.clients import InvalidArgument, NoGroup, NotAssigned
from penstock.storage.errors import Closed, OutOfBounds
from penstock.transport.messages import Commit
from support.reading import fetched, until

MANY = [b"%06d" % number for number in range(10_000)]


@pytest.fixture
def filled(client, topic):
    """A topic of one partition with MANY in it."""
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many(MANY)
    return topic


def test_iterating_gives_every_record_in_order(client, filled):
    with client.consumer(filled) as consumer:
        read = [record.value for record in itertools.islice(consumer, len(MANY))]
        assert consumer.position == {0: len(MANY)}
    assert read == MANY


def test_iterating_waits_for_records_to_come(client, topic):
    client.create_topic(topic)
    with client.consumer(topic) as consumer, client.producer(topic) as producer:
        records = iter(consumer)
        for number in range(20):
            producer.send(b"%d" % number)
            assert next(records).value == b"%d" % number


def test_fetch_gives_what_is_there_and_an_empty_list_when_nothing_is(client, filled):
    with client.consumer(filled) as consumer:
        assert len(consumer.fetch(max_records=10)) == 10
        rest = fetched(consumer, len(MANY) - 10)
        assert [record.value for record in rest] == MANY[10:]
        assert consumer.fetch(wait=0) == []
        assert consumer.fetch(wait=timedelta(milliseconds=1)) == []


def test_iteration_and_fetch_and_batches_take_turns(client, filled):
    with client.consumer(filled) as consumer:
        taken = [record.value for record in itertools.islice(consumer, 5)]
        taken += [record.value for record in consumer.fetch(7)]
        taken += [record.value for record in itertools.islice(consumer, 5)]
        for batch in until(len(MANY) - len(taken), consumer.batches("records")):
            taken += [record.value for record in batch]
    assert taken == MANY


@pytest.mark.parametrize("format", ["records", "arrow", "numpy"])
def test_batches_hold_the_same_records_in_every_form(client, filled, format):
    with client.consumer(filled) as consumer:
        consumer.seek(1234)
        found, offsets = [], []
        for batch in until(len(MANY) - 1234, consumer.batches(format)):
            if format == "records":
                found += [record.value for record in batch]
                offsets += [record.offset for record in batch]
            elif format == "arrow":
                found += batch.column("value").to_pylist()
                offsets += batch.column("offset").to_pylist()
                assert batch.schema.metadata is None, "it would be said of all batches of a table"
            else:
                found += batch.values()
                offsets += batch.offsets.tolist()
                assert len(batch) == len(batch.timestamps)
        assert consumer.position == {0: len(MANY)}
        assert list(consumer.batches(format, wait=0.01)) == []
    assert found == MANY[1234:]
    assert offsets == list(range(1234, len(MANY)))


def test_starting_places(client, filled):
    times = [record.timestamp for record in client.read(filled, 0, 0, max_records=len(MANY))]
    later = datetime.fromtimestamp(times[-1] / 1e6, UTC) + timedelta(hours=1)
    with client.consumer(filled, start="latest") as consumer:
        assert consumer.position == {0: len(MANY)}
    with client.consumer(filled, start=later) as consumer:
        assert consumer.position == {0: len(MANY)}
    with client.consumer(filled, positions={0: 77}) as consumer:
        assert consumer.fetch(1)[0].offset == 77
    with pytest.raises(OutOfBounds, match="0 to 10000"):
        client.consumer(filled, positions={0: len(MANY) + 1})


def test_seeking_goes_anywhere_and_drops_what_was_begun(client, filled):
    with client.consumer(filled, group="seekers") as consumer:
        records = iter(consumer)
        assert next(records).offset == 0
        consumer.seek(5000)
        assert consumer.position == {0: 5000}
        assert next(records).offset == 5000
        consumer.seek("earliest")
        assert next(records).offset == 0
        consumer.seek("latest", partition=0)
        assert consumer.fetch(wait=0.05) == []
        consumer.seek(datetime(2001, 1, 1, tzinfo=UTC))
        assert consumer.fetch(1)[0].offset == 0
        with pytest.raises(OutOfBounds, match="10000"):
            consumer.seek(len(MANY) + 1)
        with pytest.raises(NotAssigned, match="reads \\[0\\]"):
            consumer.seek(0, partition=9)


def test_an_offset_needs_its_partition(client, topic):
    client.create_topic(topic, partitions=2)
    with client.consumer(topic) as consumer, pytest.raises(InvalidArgument, match="partition="):
        consumer.seek(0)


def test_a_commit_is_exact_to_the_record_that_was_handed_out(client, filled):
    with client.consumer(filled, group="g") as consumer:
        for record in consumer:
            if record.offset == 1233:
                break
        consumer.commit()
    assert client.group(filled, "g").partitions[0].cursor == 1234
    with client.consumer(filled, group="g") as consumer:
        assert [record.offset for record in consumer.fetch(3)] == [1234, 1235, 1236]


def test_explicit_positions_are_committed(client, filled):
    with client.consumer(filled, group="g") as consumer:
        consumer.fetch(100)
        consumer.commit({0: 42})
        assert client.group(filled, "g").partitions[0].cursor == 42
        with pytest.raises(NotAssigned, match="\\[5\\]"):
            consumer.commit({5: 1})
        with pytest.raises(OutOfBounds):
            consumer.commit({0: len(MANY) + 1})


def test_without_commit_everything_is_read_again(client, filled):
    for _ in range(2):
        with client.consumer(filled, group="forgetful") as consumer:
            assert consumer.fetch(10)[0].offset == 0


def test_automatic_commits_follow_what_the_application_is_done_with(client, filled):
    with client.consumer(filled, group="g", auto_commit=3600) as consumer:
        consumer.fetch(100)
    assert client.group(filled, "g").partitions[0].cursor == 100


@pytest.mark.parametrize("at", [4, 9])
def test_a_consumer_that_fails_commits_all_but_its_record(client, topic, at):
    """Also where it is the last of those that came with it."""
    client.create_topic(topic)
    client.producer(topic).send_many(MANY[:10])
    with suppress(ZeroDivisionError), client.consumer(topic, group="g", auto_commit=3600) as consumer:
        for record in consumer:
            if record.offset == at:
                raise ZeroDivisionError
    assert client.group(topic, "g").partitions[0].cursor == at


def test_an_automatic_commit_takes_nothing_back_of_a_commit_under_way(penstock_client):
    """It would leave out the record that the application works on, and which the other one has."""
    client = penstock_client
    client.create_topic("t")
    client.producer("t").send_many(MANY)
    with client.consumer("t", group="g", auto_commit=3600) as consumer:
        core, driver, found = consumer._core, consumer._driver, iter(consumer)
        assert [next(found).offset for _ in range(3)] == [0, 1, 2]
        with driver.lock:
            steps = core.commit(None, "", core.connection.deadline())
            next(steps)  # it is sent
            core.turn(core._commit_at)
        driver.run(steps)
        assert client.group("t", "g").partitions[0].cursor == 3


def test_a_handler_that_fails_reads_its_record_again(client, filled):
    def handle(consumer):
        with consumer:
            for record in consumer:
                if record.offset == 50:
                    raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        handle(client.consumer(filled, group="g", auto_commit=3600))
    assert client.group(filled, "g").partitions[0].cursor == 50


def test_lag_is_exact_and_never_unknown(client, topic):
    client.create_topic(topic, partitions=2)
    with client.consumer(topic) as consumer, client.producer(topic) as producer:
        assert (consumer.lag(), consumer.lags()) == (0, {0: 0, 1: 0})
        producer.send_many(MANY[:100], partition=1)
        assert consumer.lags() == {0: 0, 1: 100}
        assert len(consumer.fetch(30)) == 30
        assert consumer.lag() == 70
        producer.send_many(MANY[:50], partition=0)
        assert consumer.lag() == 120


def test_members_share_partitions_and_hand_them_over_without_loss_or_repeat(dial, url, topic):
    first, second = dial(url), dial(url)
    first.create_topic(topic, partitions=4)
    with first.producer(topic) as producer:
        for partition in range(4):
            producer.send_many(MANY[:500], partition=partition)
    seen = []
    one = first.consumer(topic, group="g", auto_commit=3600)
    seen += one.fetch(300)
    two = second.consumer(topic, group="g", auto_commit=3600)
    while len(seen) < 2000:
        seen += one.fetch(100, wait=0.01)
        seen += two.fetch(100, wait=0.01)
    assert sorted(one.assignment + two.assignment) == [0, 1, 2, 3]
    assert (len(one.assignment), len(two.assignment)) == (2, 2)
    one.close()
    seen += two.fetch(100, wait=0.05)
    places = [(record.partition, record.offset) for record in seen]
    assert sorted(places) == [(partition, offset) for partition in range(4) for offset in range(500)]
    for partition in range(4):
        offsets = [offset for number, offset in places if number == partition]
        assert offsets == sorted(offsets)
    two.close()
    assert first.group(topic, "g").lag == 0


def test_a_member_that_leaves_gives_its_partitions_back(dial, url, topic):
    first, second = dial(url), dial(url)
    first.create_topic(topic, partitions=2)
    one, two = first.consumer(topic, group="g"), second.consumer(topic, group="g")
    while (len(one.assignment), len(two.assignment)) != (1, 1):
        one.fetch(wait=0.01)
        two.fetch(wait=0.01)
    one.close()
    while len(two.assignment) != 2:
        two.fetch(wait=0.01)
    two.close()
    assert client_members(second, topic) == []


def client_members(client, topic):
    return [member for group in client.groups(topic) for member in group.members]


def test_wrong_arguments_are_named(client, topic):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument, match="'push', 'control', 'mapped'"):
        client.consumer(topic, delivery="pigeon")
    with pytest.raises(InvalidArgument, match="auto_commit needs a group"):
        client.consumer(topic, auto_commit=1)
    with pytest.raises(InvalidArgument, match="without a group"):
        client.consumer(topic, group="g", positions={0: 1})
    with pytest.raises(InvalidArgument, match="'latest', or a datetime"):
        client.consumer(topic, start="yesterday")
    with client.consumer(topic) as consumer:
        with pytest.raises(NoGroup, match="group"):
            consumer.commit()
        with pytest.raises(InvalidArgument, match="'records', 'arrow', 'numpy'"):
            consumer.batches("pandas")


@pytest.mark.parametrize("name", ["window_bytes", "window_records"])
def test_a_window_has_room_for_something(client, filled, name):
    with pytest.raises(InvalidArgument, match=f"{name}=0 .*1"):
        client.consumer(filled, **{name: 0})
    with client.consumer(filled, **{name: 1}) as consumer:
        assert len(consumer.fetch(1)) == 1


def test_a_closed_consumer_says_so(client, filled):
    consumer = client.consumer(filled, group="g")
    consumer.fetch(5)
    consumer.close()
    consumer.close()
    for use in (consumer.fetch, consumer.commit, consumer.lag, lambda: consumer.seek(0), lambda: next(iter(consumer))):
        with pytest.raises(Closed, match="closed"):
            use()


def test_a_growing_topic_is_read_whole(client, topic):
    client.create_topic(topic)
    with client.consumer(topic, group="g") as consumer:
        client.alter_topic(topic, partitions=3)
        with client.producer(topic) as producer:
            for partition in range(3):
                producer.send(b"%d" % partition, partition=partition)
        seen = []
        while len(seen) < 3:
            seen += consumer.fetch(wait=0.05)
        assert sorted(record.partition for record in seen) == [0, 1, 2]


def test_a_partition_is_not_released_before_its_commit_has_left(penstock_broker, monkeypatch):
    """The channel was full of other messages, and had room again a moment later."""
    with penstock_broker.connect() as mine, penstock_broker.connect() as other:
        mine.create_topic("t", partitions=2)
        for partition in range(2):
            mine.producer("t").send_many(MANY[:10], partition=partition)
        consumer = mine.consumer("t", group="g", auto_commit=3600)
        assert len(fetched(consumer, 20)) == 20
        send, is_full = mine._connection.send, [True] * 20

        def send_if_there_is_room(message, *how, **more):
            if isinstance(message, Commit) and is_full:
                is_full.pop()
                assert len(mine._connection._unsent) < 3, "each call adds another commit"
                return False
            return send(message, *how, **more)

        monkeypatch.setattr(mine._connection, "send", send_if_there_is_room)
        second, seen = other.consumer("t", group="g"), []
        while len(second.assignment) != 1:
            assert consumer.fetch(wait=0.01) == []
            seen += second.fetch(wait=0.01)
        assert not is_full
        assert [*seen, *second.fetch(wait=0.1)] == []
        monkeypatch.undo()
        consumer.close()
        second.close()
