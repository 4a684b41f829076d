"""What producers say about records as tasks: it arrives in its columns, and what cannot be sends nothing."""

from __future__ import annotations

import cProfile
import pstats
from datetime import UTC, datetime, timedelta

import pytest
from penstock.clients import InvalidArgument
from penstock.clients.arguments.quantities import microseconds
from penstock.clients.memory_broker import START_US
from penstock.clients.producing.queued import as_queued
from penstock.storage.batch import batches
from penstock.transport.messages import Produce

SOON = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(hours=1)


@pytest.fixture
def sent(penstock_client, monkeypatch):
    """The batches of a topic's producer, as they leave for the broker."""
    found = []
    channel = penstock_client._connection.channel
    send = channel.send

    def noting(message, payload=b""):
        if type(message) is Produce:
            found.extend(batches(bytes(payload)))
        return send(message, payload)

    monkeypatch.setattr(channel, "send", noting)
    penstock_client.create_topic("t", partitions=3)
    return found


@pytest.fixture
def producer(penstock_client, sent):
    with penstock_client.producer("t") as opened:
        opened._core._now_us = lambda: START_US
        yield opened


def columns(batch):
    times = batch.not_before()
    levels = batch.priorities()
    return [] if levels is None else levels.tolist(), [] if times is None else times.tolist(), batch.dedup() or []


def test_a_record_says_when_how_urgent_and_what_it_repeats(producer, sent):
    producer.send(b"x", delay=5, priority=3, dedup=b"order-17")
    producer.send(b"x", at=SOON)
    producer.send(b"x", delay="2m")
    producer.send(b"plain")
    assert [columns(batch) for batch in sent] == [
        ([3], [START_US + 5_000_000], [b"order-17"]),
        ([], [microseconds(SOON)], []),
        ([], [START_US + 120_000_000], []),
        ([], [], []),
    ]


def test_gathered_records_keep_what_they_say_apart(producer, sent):
    with producer._driver.lock:
        futures = [
            producer.send_nowait(b"first", partition=0),
            producer.send_nowait(b"a", partition=0),
            producer.send_nowait(b"b", partition=0, priority=9),
            producer.send_nowait(b"c", partition=0, key=b"k"),
            producer.send_nowait(b"d", partition=0, dedup=b"d", delay=1),
        ]
    assert [future.result() for future in futures] == [0, 1, 2, 3, 4]
    assert columns(sent[1]) == ([0, 9, 0, 0], [0, 0, 0, START_US + 1_000_000], [b"", b"", b"", b"d"])


def test_a_dedup_key_chooses_the_partition_where_there_is_no_key(producer, sent):
    def partition_of(**how):
        return producer.send_nowait(b"x", **how).partition

    for number in range(20):
        name = b"%d" % number
        assert partition_of(dedup=name) == partition_of(key=name)
        assert partition_of(dedup=b"other", key=name) == partition_of(key=name)
        assert partition_of(dedup=name, partition=2) == 2


@pytest.mark.parametrize("kind", ["list", "keyed", "arrow"])
def test_many_records_say_all_the_same(producer, sent, kind):
    values = [b"%d" % number for number in range(10)]
    keys = None if kind == "list" else [b"k"] * 10
    if kind == "arrow":
        import pyarrow as pa

        values = pa.array(values, pa.binary())
    assert producer.send_many(values, keys=keys, delay=60, priority=7) == 10
    levels, times, _ = columns(sent[-1])
    assert (levels, times) == ([7] * 10, [START_US + 60_000_000] * 10)
    producer.send_many(values, keys=keys)
    assert columns(sent[-1]) == ([], [], [])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"delay": -1}, "delay=-1 is not a time of 0 seconds or more"),
        ({"delay": "soon"}, "'soon' is not a time"),
        ({"delay": 11 * 366 * 86400}, "is too far ahead: 3650 days at most"),
        ({"at": datetime(2999, 1, 1, tzinfo=UTC)}, "is too far ahead: 3650 days at most"),
        ({"at": 17}, "at=17 is not a datetime; for a time from now there is delay="),
        ({"delay": 1, "at": SOON}, "both say when: give one of them"),
        ({"priority": 256}, "priority=256 is not a number from 0 to 255"),
        ({"priority": -1}, "priority=-1 is not a number from 0 to 255"),
        ({"priority": "high"}, "priority='high' is not a number"),
        ({"dedup": bytes(1025)}, "a dedup key of 1025 bytes is over 1024: give a digest of it instead"),
        ({"dedup": "text"}, "dedup='text' is not a key of 1 to 1024 bytes; text needs .encode()"),
        ({"dedup": b""}, "is not a key of 1 to 1024 bytes"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_sent(producer, sent, how, says):
    calls = [lambda: producer.send(b"x", **how), lambda: producer.send_nowait(b"x", **how)]
    if "dedup" not in how:
        calls.append(lambda: producer.send_many([b"x"], **how))
    for call in calls:
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert says in caught.value.message
    producer.flush()
    assert sent == []


def test_nothing_to_wait_for_is_no_delay():
    assert as_queued(0, None, None, None, 5).not_before == 0
    assert as_queued(None, datetime(1960, 1, 1, tzinfo=UTC), None, None, 5).not_before == 0
    assert as_queued(0.5, None, 255, b"k" * 1024, 5).not_before == 500_005


def test_a_plain_record_costs_no_call_more_than_append_and_its_lock(producer):
    """What send_nowait calls for a record that says nothing: the same as before there was anything to say."""
    producer.send(b"x")
    with producer._driver.lock:
        producer.send_nowait(b"in flight", partition=0)
        producer._driver.pump_idle = False
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(100):
            producer.send_nowait(b"x", partition=0)
        profile.disable()
    called = {name: found[0] for (_, _, name), found in pstats.Stats(profile).stats.items()}
    assert called["send_nowait"] == called["append"] == 100
    assert {"as_task", "as_queued", "append_columns"} & set(called) == set()
