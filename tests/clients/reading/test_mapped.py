"""Mapped delivery: the same records, read from the broker's own files."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
import threading

import pytest
from penstock.clients import InvalidArgument, MappedUnavailable, connect
from penstock.clients.aio import client as aio
from penstock.clients.consuming import session_life
from penstock.clients.reading import mapped
from penstock.storage.files import File
from penstock.transport.messages import Welcome
from support.reading import rows, until

MANY = [b"%06d" % number for number in range(10_000)]
PATIENCE_S = 60.0


@pytest.fixture
def local(unix):
    with connect(unix, timeout=PATIENCE_S, delivery="mapped") as client:
        yield client


@pytest.fixture
def filled(local, topic):
    local.create_topic(topic, partitions=2)
    with local.producer(topic) as producer:
        producer.send_many(MANY, partition=0)
        producer.send_many(MANY, partition=1)
    return topic


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("format", ["records", "arrow", "numpy"])
def test_all_records_come_in_order(local, filled, group, format):
    found: dict[int, list[bytes]] = {0: [], 1: []}
    with local.consumer(filled, group=group) as consumer:
        assert consumer.delivery == "mapped"
        columns = ["value", "partition"] if format == "arrow" else None
        for batch in until(2 * len(MANY), consumer.batches(format, columns=columns)):
            if format == "records":
                found[batch[0].partition] += [record.value for record in batch]
            elif format == "arrow":
                found[batch.column("partition")[0].as_py()] += batch.column("value").to_pylist()
            else:
                found[batch.partition] += batch.values()
    assert found == {0: MANY, 1: MANY}


def test_batches_stay_good_when_the_consumer_is_gone(local, filled):
    with local.consumer(filled) as consumer:
        batches = list(until(2 * len(MANY), consumer.batches("arrow")))
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert sorted(values) == sorted(2 * MANY)


def test_a_reader_at_the_end_is_woken(local, topic):
    local.create_topic(topic)
    with local.consumer(topic) as consumer, local.producer(topic) as producer:
        assert consumer.fetch(wait=0) == []
        for number in range(20):
            sender = threading.Thread(target=producer.send, args=(b"%d" % number,))
            sender.start()
            assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"%d" % number]
            sender.join()


def test_a_fetch_takes_what_was_there_when_it_began_however_fast_more_comes(local, topic, monkeypatch):
    local.create_topic(topic, commit="written")
    with local.consumer(topic) as consumer, local.producer(topic) as producer:
        assert consumer.fetch(wait=0) == []
        producer.send(b"0")
        take = consumer._core._hand_out

        def send_another_and_take(delivery, batch):
            producer.send(b"another")
            return take(delivery, batch)

        monkeypatch.setattr(consumer._core, "_hand_out", send_another_and_take)
        assert [len(consumer.fetch(50, wait=PATIENCE_S)) for _ in range(3)] == [1, 1, 1]
        monkeypatch.undo()
        assert consumer.fetch(50, wait=PATIENCE_S)[-1].offset == 3


def test_a_fetch_takes_what_came_behind_a_run_it_had_begun(local, topic):
    local.create_topic(topic, commit="written")
    with local.consumer(topic) as consumer, local.producer(topic) as producer:
        producer.send_many([b"1", b"2", b"3"])
        assert len(consumer.fetch(2, wait=PATIENCE_S)) == 2
        producer.send(b"4")
        assert [record.value for record in consumer.fetch(10, wait=PATIENCE_S)] == [b"3", b"4"]


def test_a_signal_that_the_program_handles_does_not_end_a_wait(local, topic):
    handled = []
    before = signal.signal(signal.SIGALRM, lambda *_: handled.append(True))
    local.create_topic(topic)
    try:
        with local.consumer(topic) as consumer, local.producer(topic) as producer:
            assert consumer.fetch(wait=0) == []

            def disturb_then_send() -> None:
                while not handled:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
                producer.send(b"after")

            sender = threading.Thread(target=disturb_then_send)
            sender.start()
            assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"after"]
            sender.join()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_reader_on_an_event_loop_is_woken(unix, topic):
    async def follow():
        async with await aio.connect(unix, timeout=PATIENCE_S) as client:
            await client.create_topic(topic)
            producer = await client.producer(topic)
            async with await client.consumer(topic, delivery="mapped") as consumer:
                for number in range(20):
                    later = asyncio.create_task(producer.send(b"%d" % number))
                    (record,) = await consumer.fetch(wait=PATIENCE_S)
                    assert record.value == b"%d" % number
                    await later

    asyncio.run(follow())


def test_cursors_are_committed_to_the_record(local, filled):
    with local.consumer(filled, group="g") as consumer:
        for record in itertools.islice(consumer, 777):
            last = record
        consumer.commit()
    cursors = {part.partition: part.cursor for part in local.group(filled, "g").partitions}
    assert cursors[last.partition] == last.offset + 1
    assert sum(cursor for cursor in cursors.values() if cursor > 0) == 777


def test_seeking_works_in_mapped_files(local, filled):
    with local.consumer(filled, group="g") as consumer:
        consumer.fetch(10)
        consumer.seek(9_999, partition=1)
        consumer.seek("latest", partition=0)
        assert [(record.partition, record.offset) for record in consumer.fetch(10)] == [(1, 9_999)]
        assert consumer.lag() == 0


def test_mapped_and_pushed_members_share_a_group(local, ipc, filled):
    with connect(ipc, timeout=PATIENCE_S) as other:
        mapped = local.consumer(filled, group="g", auto_commit=3600)
        pushed = other.consumer(filled, group="g", auto_commit=3600, delivery="push")
        seen = []
        while len(seen) < 2 * len(MANY):
            seen += mapped.fetch(500, wait=0.01) + pushed.fetch(500, wait=0.01)
        assert (len(mapped.assignment), len(pushed.assignment)) == (1, 1)
        places = [(record.partition, record.offset) for record in seen]
        assert sorted(places) == [(partition, offset) for partition in (0, 1) for offset in range(len(MANY))]


def test_a_new_partition_of_a_growing_topic_is_found(local, topic):
    local.create_topic(topic)
    with local.consumer(topic, group="g") as consumer, local.producer(topic) as producer:
        producer.send(b"old")
        assert len(consumer.fetch(wait=PATIENCE_S)) == 1
        local.alter_topic(topic, partitions=2)
        local.producer(topic).send(b"new", partition=1)
        seen = []
        while not seen:
            seen = consumer.fetch(wait=1)
        assert (seen[0].partition, seen[0].value) == (1, b"new")


def test_a_broker_of_another_machine_cannot_be_mapped(local, filled):
    welcome = local._connection.welcome
    local._connection.welcome = Welcome(
        *[getattr(welcome, name) if name != "boot_id" else "0" * 32 for name in Welcome.__struct_fields__]
    )
    with pytest.raises(MappedUnavailable, match="another"):
        local.consumer(filled)


def test_a_local_client_maps_unless_told_otherwise(ipc, filled):
    with connect(ipc, timeout=PATIENCE_S) as client, client.consumer(filled) as consumer:
        assert consumer.delivery == "mapped"
        assert sum(map(rows, until(2 * len(MANY), consumer.batches("arrow")))) == 2 * len(MANY)


def test_an_event_loop_has_no_thread_to_sleep_with_and_is_pushed_to(ipc, filled):
    async def delivery():
        async with await aio.connect(ipc, timeout=PATIENCE_S) as client, await client.consumer(filled) as consumer:
            return consumer.delivery

    assert asyncio.run(delivery()) == "push"


def test_a_client_elsewhere_is_pushed_to(ipc, filled, elsewhere):
    with connect(ipc, timeout=PATIENCE_S) as client, client.consumer(filled) as consumer:
        assert consumer.delivery == "push"


def test_files_that_may_not_be_read_are_left_to_the_broker(ipc, topic, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("not yours")

    with connect(ipc, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        client.producer(topic).send_many(MANY[:10])
        monkeypatch.setattr(mapped, "LogReader", refuse)
        with client.consumer(topic, group="g") as consumer:
            assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == MANY[:10]
            assert consumer.delivery == "push"
        with client.consumer(topic, delivery="mapped") as consumer, pytest.raises(MappedUnavailable, match="not yours"):
            consumer.fetch(wait=PATIENCE_S)


def test_a_board_that_may_not_be_written_is_left_to_the_broker(ipc, topic, monkeypatch):
    def refuse(name, slot):
        raise PermissionError("not yours")

    monkeypatch.setattr(mapped.Board, "attach_slot", refuse)
    with connect(ipc, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        with client.consumer(topic) as consumer:
            assert consumer.delivery == "push"
        with pytest.raises(MappedUnavailable, match="not yours"):
            client.consumer(topic, delivery="mapped")


def test_a_consumer_of_very_many_partitions_leaves_the_files_to_the_broker(ipc, topic, monkeypatch):
    monkeypatch.setattr(session_life, "MAPPED_PARTITIONS", 2)
    with connect(ipc, timeout=PATIENCE_S) as client:
        client.create_topic(topic, partitions=3)
        with client.consumer(topic) as consumer, client.consumer(topic, delivery="mapped") as told:
            assert (consumer.delivery, told.delivery) == ("push", "mapped")


def test_without_descriptors_left_a_consumer_goes_on_over_the_broker(ipc, topic, monkeypatch):
    def refuse(file):
        raise OSError(errno.EMFILE, "too many open files")

    with connect(ipc, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        client.producer(topic).send_many(MANY[:10])
        with client.consumer(topic, group="g") as consumer, client.consumer(topic, delivery="mapped") as told:
            monkeypatch.setattr(File, "map", refuse)
            assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == MANY[:10]
            assert consumer.delivery == "push"
            for _ in range(2):  # what is wrong is said as long as it is
                with pytest.raises(MappedUnavailable, match="too many open files"):
                    told.fetch(wait=PATIENCE_S)


def test_many_partitions_cost_a_descriptor_each_and_a_bounded_number_beside(local, topic):
    partitions = 2 * mapped.OPEN_SEGMENTS
    local.create_topic(topic, partitions=partitions, commit="written")
    with local.consumer(topic) as consumer, local.producer(topic) as producer:
        before = len(os.listdir("/proc/self/fd"))
        for turn in range(2):
            for partition in range(partitions):
                producer.send_nowait(b"%d" % turn, partition=partition)
            producer.flush()
            seen = []
            while len(seen) < partitions:
                seen += consumer.fetch(wait=PATIENCE_S)
            assert sorted(record.partition for record in seen) == list(range(partitions))
            assert {record.value for record in seen} == {b"%d" % turn}
        assert len(os.listdir("/proc/self/fd")) - before <= partitions + 2 * mapped.OPEN_SEGMENTS


def test_memory_cannot_be_mapped(penstock_client):
    penstock_client.create_topic("t")
    with pytest.raises(InvalidArgument, match="mapped"):
        penstock_client.consumer("t", delivery="mapped")
