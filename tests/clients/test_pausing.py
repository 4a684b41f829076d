"""Pausing partitions of a consumer, and what it is told of its assignment."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from penstock.broker.errors import Fenced
from penstock.clients import AssignmentChange, NoGroup, NotAssigned
from penstock.clients.aio.client import connect as aio_connect
from penstock.storage.errors import OutOfBounds
from penstock.transport import messages as m
from penstock.transport.messages import Done, Failure
from support.reading import fetched, until


@pytest.fixture
def two(client, topic):
    """A topic of two partitions with ten records in each."""
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        for partition in range(2):
            producer.send_many([b"%d-%d" % (partition, number) for number in range(10)], partition=partition)
    return topic


def places(records):
    return sorted((record.partition, record.offset) for record in records)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_paused_partition_stays_ours_and_goes_on_where_it_stopped(client, two, group):
    with client.consumer(two, group=group) as consumer:
        consumer.seek(0, partition=0)
        begun = fetched(consumer, 3)
        consumer.pause(0)
        consumer.pause(0)
        before = dict(consumer.position)
        rest = fetched(consumer, 10 - before[1])
        assert {record.partition for record in rest} == ({1} if rest else set())
        with client.producer(two) as producer:
            producer.send(b"later", partition=0)
            producer.send(b"later", partition=1)
        assert places(fetched(consumer, 1)) == [(1, 10)]
        assert consumer.fetch(wait=0) == []
        assert (consumer.paused, consumer.assignment) == ([0], [0, 1])
        assert consumer.position == {0: before[0], 1: 11}
        consumer.resume()
        assert consumer.paused == []
        assert places(fetched(consumer, 11 - before[0])) == [(0, offset) for offset in range(before[0], 11)]
        assert len(begun) == 3


def test_a_pause_ends_the_run_that_a_loop_is_in(client, two):
    with client.consumer(two) as consumer:
        taken = list(itertools.islice(consumer, 3))
        ours = taken[-1].partition
        consumer.pause(ours)
        taken += itertools.islice(consumer, 10 - (consumer.position[1 - ours]))
        assert consumer.position == {ours: 3, 1 - ours: 10}
        consumer.resume(ours)
        for batch in until(7, consumer.batches("records")):
            taken += batch
    assert places(taken) == [(partition, offset) for partition in range(2) for offset in range(10)]


def test_all_partitions_pause_at_once_and_those_that_are_not_read_cannot(client, two):
    with client.consumer(two, group="g") as consumer:
        consumer.pause()
        assert (consumer.paused, consumer.fetch(wait=0)) == ([0, 1], [])
        consumer.seek(4, partition=1)
        assert consumer.fetch(wait=0) == []
        consumer.resume(1)
        assert places(fetched(consumer, 6)) == [(1, offset) for offset in range(4, 10)]
        for use in (consumer.pause, consumer.resume):
            with pytest.raises(NotAssigned, match="7"):
                use(7)
        consumer.commit()
        assert {partition: each.offset for partition, each in consumer.committed().items()} == {1: 10}


def test_a_pause_keeps_the_cursor_that_was_committed(client, two):
    with client.consumer(two, group="g") as consumer:
        consumer.seek(2, partition=1)
        consumer.commit()
        consumer.pause(1)
        assert client.group(two, "g").partitions[1].cursor == 2
        consumer.commit({1: 1})
        assert consumer.committed()[1].offset == 1


def test_records_that_retention_took_during_a_pause_are_told_of(client, two):
    with client.consumer(two) as consumer:
        consumer.pause()
        client.trim(two, 0, before=6)
        consumer.resume(0)
        with pytest.raises(OutOfBounds):
            consumer.fetch(wait=60)
        assert places(fetched(consumer, 4)) == [(0, offset) for offset in range(6, 10)]


def test_only_a_group_has_cursors(client, two):
    with client.consumer(two) as consumer, pytest.raises(NoGroup):
        consumer.committed()


@pytest.mark.parametrize("group", [None, "g"])
def test_a_pause_outlives_a_lost_session(penstock_client, losing, group):
    client = penstock_client
    client.create_topic("t", partitions=2)
    client.producer("t").send_many([b"x"] * 10, partition=0)
    with client.consumer("t", group=group) as consumer:
        taken = fetched(consumer, 4)
        consumer.pause(0)
        core = consumer._core
        client._driver.do(core.life.rejoin)
        client.producer("t").send(b"y", partition=1)
        assert places(fetched(consumer, 1)) == [(1, 0)]
        assert (consumer.paused, consumer.position) == ([0], {0: 4, 1: 1})
        consumer.resume()
        taken += fetched(consumer, 6)
    assert places(taken) == [(0, offset) for offset in range(10)]


def test_the_broker_sends_nothing_of_a_paused_partition(penstock_client, monkeypatch):
    client, told = penstock_client, []
    client.create_topic("t")
    with client.consumer("t", delivery="control") as consumer:
        consumer.pause()
        life = consumer._core.life
        tell = life.told
        monkeypatch.setattr(life, "told", lambda message, payload: (told.append(message), tell(message, payload)))
        client.producer("t").send_many([b"x"] * 10)
        assert consumer.fetch(wait=0.01) == []
        assert [message for message in told if isinstance(message, m.Deliver)] == []
        consumer.resume()
        assert len(fetched(consumer, 10)) == 10


# -- changes of the assignment ------------------------------------------------------------------------------


def test_a_consumer_is_told_what_it_was_given_before_it_gets_a_record(client, two):
    told = []
    with client.consumer(two, on_assignment=told.append) as consumer:
        assert told == []
        assert len(fetched(consumer, 20)) == 20
        assert told == [AssignmentChange(two, [0, 1], [])]
        assert consumer.fetch(wait=0) == []
        assert len(told) == 1
    assert told[1:] == [AssignmentChange(two, [], [0, 1])]


def test_what_goes_to_another_member_and_comes_back_is_told(url, two, dial):
    here, there, told = dial(url), dial(url), []
    first = here.consumer(two, group="g", on_assignment=told.append)
    taken = fetched(first, 20)
    first.commit()
    second = there.consumer(two, group="g")
    while len(told) < 2:
        taken += first.fetch(wait=0.05)
    assert told[1].given == []
    (gone,) = told[1].taken
    read = []
    while second.assignment != [gone]:
        first.fetch(wait=0.01)
        read += second.fetch(wait=0.05)
    assert read == []
    second.close()
    while len(told) < 3:
        taken += first.fetch(wait=0.05)
    assert told[2] == AssignmentChange(two, [gone], [])
    assert len(taken) == 20


def test_a_function_may_commit_what_is_taken_and_seek_in_what_is_given(penstock_client):
    client, told = penstock_client, []
    client.create_topic("t", partitions=2)
    client.producer("t").send_many([b"x"] * 10, partition=0)
    client.producer("t").send_many([b"x"] * 10, partition=1)

    def changed(change):
        told.append(change)
        for partition in change.given:
            first.seek(7, partition=partition)
        if change.taken:
            first.commit()

    first = client.consumer("t", group="g", on_assignment=changed)
    assert places(fetched(first, 6)) == [(partition, offset) for partition in range(2) for offset in range(7, 10)]
    second = client.consumer("t", group="g")
    for consumer in itertools.islice(itertools.cycle([first, second]), 20):
        assert consumer.fetch(wait=0.01) == []
    (gone,) = second.assignment
    assert told[1].taken == [gone]
    first.close()
    assert told[2:] == [AssignmentChange("t", [], [1 - gone])]
    assert {place: each.offset for place, each in client.committed("t", "g").items()} == {0: 10, 1: 10}


def test_a_function_that_ctrl_c_ended_is_called_again(penstock_client):
    client, told = penstock_client, []
    client.create_topic("t")
    client.producer("t").send(b"x")

    def changed(change):
        told.append(change)
        if len(told) == 1:
            raise KeyboardInterrupt

    with client.consumer("t", on_assignment=changed) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.fetch()
        assert len(consumer.fetch()) == 1
        assert told == [AssignmentChange("t", [0], [])] * 2


def test_a_function_whose_call_was_cancelled_is_called_again(penstock_broker):
    async def main():
        told, goes_on = [], asyncio.Event()

        async def changed(change):
            told.append(change)
            await goes_on.wait()

        async with aio_connect(penstock_broker.url) as client:
            await client.create_topic("t")
            await (await client.producer("t")).send(b"x")
            async with client.consumer("t", on_assignment=changed) as consumer:
                reading = asyncio.ensure_future(consumer.fetch())
                while not told:
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait([reading])
                goes_on.set()
                assert len(await consumer.fetch()) == 1
                assert told == [AssignmentChange("t", [0], [])] * 2

    asyncio.run(main())


def test_what_a_function_raises_is_raised_by_the_call_and_told_once(penstock_client):
    client = penstock_client
    client.create_topic("t")
    client.producer("t").send(b"x")

    def fails(change):
        raise ArithmeticError(str(change.given))

    for way in ("fetch", "__iter__", "batches"):
        consumer = client.consumer("t", on_assignment=fails)
        with pytest.raises(ArithmeticError, match=r"\[0\]"):
            next(iter(getattr(consumer, way)()))
        assert len(consumer.fetch()) == 1
        with pytest.raises(ArithmeticError, match=r"\[\]"):
            consumer.close()
        assert consumer.closed


def test_a_commit_as_a_session_is_joined_again_is_not_fenced_by_what_stays_paused(penstock_client):
    client = penstock_client
    client.create_topic("t")
    client.producer("t").send_many([b"x"] * 10)
    with client.consumer("t", group="g") as consumer:
        assert len(fetched(consumer, 4)) == 4
        consumer.pause()
        client._driver.do(consumer._core.life.rejoin)
        consumer.commit()
        assert (consumer.committed()[0].offset, consumer.paused) == (4, [0])


def test_a_seek_in_a_partition_that_is_asked_back_does_nothing(penstock_broker, monkeypatch):
    with penstock_broker.connect() as mine, penstock_broker.connect() as other:
        monkeypatch.setattr(mine._driver, "need_pump", lambda: None)  # it hears of it in the middle of the seek
        mine.create_topic("t", partitions=2)
        for partition in range(2):
            mine.producer("t").send_many([b"x"] * 10, partition=partition)
        consumer = mine.consumer("t", group="g")
        assert len(fetched(consumer, 20)) == 20
        second = other.consumer("t", group="g")
        consumer.seek("earliest")
        (gone,) = [partition for partition in consumer.position if consumer._core.session.partitions[partition].revoked]
        assert consumer.position == {gone: 10, 1 - gone: 0}
        assert places(fetched(consumer, 10)) == [(1 - gone, offset) for offset in range(10)]
        assert len(second.fetch(wait=60)) == 10
        consumer.close()
        second.close()


def test_a_seek_that_is_fenced_by_another_owner_says_so(penstock_client, losing):
    client = penstock_client
    client.create_topic("t")
    with client.consumer("t", group="g") as consumer:
        losing(Done, 1, instead=lambda answer: Failure(answer.request, Fenced.code, "another owns it"))
        with pytest.raises(Fenced, match="another owns it"):
            consumer.seek(0)


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("group", [None, "g"])
def test_a_move_that_is_answered_in_a_lost_session_is_made_again_in_the_next(penstock_client, losing, group, fenced):
    """It was asked again over another connection, ahead of the join that takes the partition from the old session."""
    client = penstock_client
    client.create_topic("t")
    client.producer("t").send_many([b"x"] * 10)
    channel = client._driver.connection.channel

    def lose_it_and_answer_the_next(*which):
        answers = [lambda answer: channel.break_off() or Failure(0, "", "")]
        if fenced:
            answers.append(lambda answer: Failure(answer.request, Fenced.code, "another session has it"))
        losing(Done, *which[: len(answers)], instead=lambda answer: answers.pop(0)(answer))

    with client.consumer("t", group=group, start="earliest") as consumer:
        assert len(fetched(consumer, 10)) == 10
        lose_it_and_answer_the_next(1, 2)
        consumer.seek(3)
        assert consumer.position == {0: 3}
        consumer.pause()
        lose_it_and_answer_the_next(1, 2)
        consumer.resume()
        assert consumer.paused == []
        assert [record.offset for record in fetched(consumer, 7)] == list(range(3, 10))
