"""Ranges through clients of every kind: all records from here to there, once, in order, however they travel."""

from __future__ import annotations

import asyncio
import errno
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from penstock.broker.engine.streams import measuring
from penstock.broker.errors import UnknownPartition, UnknownTopic
from penstock.clients import InvalidArgument, MappedUnavailable, connect
from penstock.clients.aio import client as aio
from penstock.clients.connection.connection import Connection
from penstock.clients.ranges import fetched as fetched_range
from penstock.clients.ranges import mapped as mapped_range
from penstock.clients.ranges import range as ranges
from penstock.clients.ranges.range import COLUMNS
from penstock.clients.reading import mapped
from penstock.storage.batch import ColumnId, Kind
from penstock.storage.errors import Closed, Diverged, OutOfBounds
from penstock.storage.files import File
from penstock.storage.record import records

COUNT = 1000
WAYS = ["auto", "control", "push"]


@pytest.fixture(scope="module")
def values():
    """Small ones and some large ones, in batches of every size."""
    rng = random.Random(7)
    return [b"%06d" % number + rng.randbytes(rng.choice([0, 10, 100, 3000])) for number in range(COUNT)]


def fill(client, topic, values):
    """Batches of 1 to 300 records of every codec, with keys, headers and times in some of them."""
    client.create_topic(topic, partitions=2, segment_bytes="256KB", commit="written")
    rng = random.Random(3)
    producers = [client.producer(topic, codec=codec) for codec in ("none", "lz4", "zstd")]
    at = 0
    while at < len(values):
        some = values[at : at + rng.choice([1, 2, 30, 300])]
        producer = rng.choice(producers)
        if rng.random() < 0.5:
            for number, value in enumerate(some, at):
                producer.send_nowait(value, key=b"k%d" % number, headers={"n": b"%d" % number}, partition=0)
        else:
            producer.send_many(some, partition=0)
        producer.flush()
        at += len(some)


def read(batches, start, end):
    """Values from `start` on and below `end`, after a look at what a range promises of its batches."""
    found, position = [], None
    for batch in batches:
        assert batch.kind == Kind.RECORDS
        assert batch.end_offset > start
        assert batch.base_offset < end
        assert position in (None, batch.base_offset), "no record is missing or comes twice"
        position = batch.end_offset
        found += [record.value for record in records(batch) if start <= record.offset < end]
    return found


def test_every_record_of_a_range_comes_once_and_in_order(client, topic, values):
    fill(client, topic, values)
    rng = random.Random(11)
    for delivery in WAYS:
        spans = [(0, COUNT), (0, 1), (COUNT - 1, COUNT), *(sorted(rng.sample(range(COUNT), 2)) for _ in range(3))]
        for start, end in spans:
            assert read(client.range(topic, 0, start, end, delivery=delivery), start, end) == values[start:end]
        assert list(client.range(topic, 0, 5, 5, delivery=delivery)) == []
        assert list(client.range(topic, 1, 0, 0, delivery=delivery)) == []


def test_columns_that_are_asked_for_come(client, topic, values):
    fill(client, topic, values)
    for delivery in ("auto", "control"):
        for columns in (["value"], ["key"], ["headers"], ["offset"], ["key", "timestamp"], ["priority"], list(COLUMNS)):
            keys, headers, found = {}, {}, []
            for batch in client.range(topic, 0, 0, COUNT, columns=columns, delivery=delivery):
                offsets = batch.offsets().tolist()
                found += batch.values() if "value" in columns else []
                keys |= dict(zip(offsets, batch.keys() or [], strict=False)) if "key" in columns else {}
                headers |= dict(zip(offsets, batch.headers() or [], strict=False)) if "headers" in columns else {}
            assert found == (values if "value" in columns else [])
            assert ("key" in columns) == bool(keys)
            assert all(key == b"k%d" % offset for offset, key in keys.items())
            assert ("headers" in columns) == bool(headers)
            assert all(one["n"] == b"%d" % offset for offset, one in headers.items())


def test_what_was_not_asked_for_does_not_travel(unix, topic, values):
    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
        for batch in client.range(topic, 0, 0, COUNT, columns=["key"], delivery="control"):
            assert {column.id for column in batch.directory()} <= {ColumnId.KEY, ColumnId.KEY_VALIDITY}


def test_batches_stay_good_when_the_client_is_gone(dial, url, topic, values):
    client = dial(url)
    fill(client, topic, values)
    held = list(client.range(topic, 0, 0, COUNT))
    client.delete_topic(topic)
    client.close()
    assert read(held, 0, COUNT) == values


def test_what_is_staged_is_in_no_range_before_it_is_published(client, topic, values):
    client.create_topic(topic)
    expected = []
    with client.producer(topic) as producer, client.staging() as staged:
        for at in range(0, 200, 20):
            producer.send_many(values[at : at + 10])
            expected += values[at : at + 10]
            staged.producer(topic).send_many([b"never"] * 7)
            with client.transaction() as transaction:
                transaction.producer(topic).send_many(values[at + 10 : at + 20])
            expected += values[at + 10 : at + 20]
        end = client.ends([topic])[topic].partitions[0].end
        assert end == len(expected) == 200
        for delivery in WAYS:
            for start in (0, 15):
                assert read(client.range(topic, 0, start, end, delivery=delivery), start, end) == expected[start:]
        assert client.measure(topic, [(0, 0, end)], 0)[0][-1][0] == end


def test_ranges_may_be_read_side_by_side_and_left_early(client, topic, values):
    fill(client, topic, values)
    for delivery in ("auto", "control"):
        left, first, second = (client.range(topic, 0, start, COUNT, delivery=delivery) for start in (5, 0, 1000))
        next(left)
        del left
        found: tuple[list, list] = ([], [])
        turns = [(first, found[0]), (second, found[1])]
        while turns:
            turns = [(batches, seen) for batches, seen in turns if _take(batches, seen)]
        assert read(found[0], 0, COUNT) == values
        assert read(found[1], 1000, COUNT) == values[1000:]
    assert client.ping() >= 0


@pytest.mark.parametrize("delivery", ["auto", "control"])
def test_threads_of_one_client_read_ranges_beside_each_other(url, topic, values, delivery):
    with connect(url, timeout=60) as client:
        fill(client, topic, values)
        spans = [(start, COUNT - start) for start in range(0, 400, 50)]
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(lambda span: read(client.range(topic, 0, *span, delivery=delivery), *span), spans)
            assert list(found) == [values[start:end] for start, end in spans]


def _take(batches, seen):
    """One more batch; False at the end."""
    batch = next(batches, None)
    if batch is not None:
        seen.append(batch)
    return batch is not None


def test_ranges_beyond_what_is_there_are_refused_with_what_there_is(client, topic, values):
    fill(client, topic, values[:10])
    with pytest.raises(OutOfBounds, match="it has 0 to 9") as caught:
        client.range(topic, 0, 0, 11)
    assert caught.value.offset == 10
    with pytest.raises(UnknownPartition, match="no partition 2"):
        client.range(topic, 2, 0, 0)
    with pytest.raises(UnknownTopic):
        client.range("never-created", 0, 0, 0)


def test_arguments_that_cannot_be_are_refused(client, topic):
    client.create_topic(topic)
    wrong = [
        ({"columns": ["valve"]}, "columns='valve' is none of 'value', 'key'.*; did you mean 'value'"),
        ({"columns": []}, "reads nothing"),
        ({"id": "xyz"}, "no id of a topic"),
        ({"delivery": "pigeon"}, "pigeon"),
    ]
    for how, says in wrong:
        with pytest.raises(InvalidArgument, match=says):
            client.range(topic, 0, 0, 0, **how)
    with pytest.raises(InvalidArgument, match="no range begins at 2 and ends at 1"):
        client.range(topic, 0, 2, 1)
    with pytest.raises(InvalidArgument, match="start=-1 is below 0"):
        client.range(topic, 0, -1, 0)


def test_the_term_before_the_start_is_checked(client, topic, values):
    fill(client, topic, values[:100])
    term = client.ends([topic])[topic].partitions[0].term
    for delivery in WAYS:
        assert read(client.range(topic, 0, 50, 100, term=term, delivery=delivery), 50, 100) == values[50:100]
        assert read(client.range(topic, 0, 0, 100, term=term + 5, delivery=delivery), 0, 100) == values[:100]
        with pytest.raises(Diverged) as caught:
            read(client.range(topic, 0, 50, 100, term=term + 1, delivery=delivery), 50, 100)
        assert caught.value.offset == 50


def test_another_topic_of_the_same_name_is_not_read(client, topic, values):
    fill(client, topic, values[:10])
    id_ = client.topic(topic).id
    assert read(client.range(topic, 0, 0, 10, id=id_), 0, 10) == values[:10]
    client.delete_topic(topic)
    for delivery in WAYS:
        with pytest.raises(UnknownTopic):
            list(client.range(topic, 0, 0, 10, id=id_, delivery=delivery))
    fill(client, topic, values[:10])
    for delivery in WAYS:
        with pytest.raises(UnknownTopic):
            list(client.range(topic, 0, 0, 10, id=id_, delivery=delivery))
    assert read(client.range(topic, 0, 0, 10), 0, 10) == values[:10]


def test_where_a_topic_is_that_is_named_by_its_id_is_asked_once(client, topic, values, monkeypatch):
    fill(client, topic, values)
    id_, asked = client.topic(topic).id, []
    find = Connection.find_topic
    monkeypatch.setattr(Connection, "find_topic", lambda *how: asked.append(how) or find(*how))
    for start in range(0, 500, 100):
        assert read(client.range(topic, 0, start, COUNT, id=id_), start, COUNT) == values[start:]
    assert len(asked) == 1
    assert list(client.range(topic, 1, 0, 0, id=id_)) == []
    with pytest.raises(OutOfBounds, match=f"it has 0 to {COUNT - 1}"):
        list(client.range(topic, 0, 0, COUNT + 1, id=id_))
    client.alter_topic(topic, partitions=3)
    assert list(client.range(topic, 2, 0, 0, id=id_)) == []


# -- how it travels -------------------------------------------------------------------------------------


@pytest.fixture
def cores(monkeypatch):
    """The ranges that were begun."""
    seen = []
    begin = ranges.RangeCore._begin
    monkeypatch.setattr(ranges.RangeCore, "_begin", lambda core: seen.append(begin(core)) or seen[-1])
    return seen


def ways(cores):
    return [type(reading).__name__ for reading in cores]


def test_a_client_on_the_brokers_machine_maps_unless_told_otherwise(unix, topic, values, cores):
    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
        assert read(client.range(topic, 0, 0, COUNT), 0, COUNT) == values
        assert read(client.range(topic, 0, 0, COUNT, delivery="mapped"), 0, COUNT) == values
        assert read(client.range(topic, 0, 0, COUNT, delivery="control"), 0, COUNT) == values
    assert ways(cores) == ["MappedRange", "MappedRange", "FetchedRange"]


def test_a_client_elsewhere_fetches(unix, topic, values, cores, elsewhere):
    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
        assert read(client.range(topic, 0, 0, COUNT), 0, COUNT) == values
    assert ways(cores) == ["FetchedRange"]


def test_an_event_loop_does_not_wait_for_the_disk(unix, topic, values, cores):
    async def all_of_it():
        async with await aio.connect(unix, timeout=60) as client:
            return [batch async for batch in await client.range(topic, 0, 0, COUNT)]

    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
    assert read(asyncio.run(all_of_it()), 0, COUNT) == values
    assert ways(cores) == ["FetchedRange"]


def test_files_that_cannot_be_read_are_left_to_the_broker(unix, topic, values, cores, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("not yours")

    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
        monkeypatch.setattr(mapped, "LogReader", refuse)
        assert read(client.range(topic, 0, 0, COUNT), 0, COUNT) == values
        with pytest.raises(MappedUnavailable, match="not yours"):
            next(client.range(topic, 0, 0, COUNT, delivery="mapped"))
    assert ways(cores) == ["FetchedRange"]


def test_without_descriptors_left_a_range_goes_on_over_the_broker(unix, topic, values, cores, monkeypatch):
    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
        monkeypatch.setattr(mapped_range, "CHUNK_BYTES", 10_000)
        found = client.range(topic, 0, 0, COUNT)
        seen = [next(found)]
        monkeypatch.setattr(File, "map", _no_descriptor)
        assert read([*seen, *found], 0, COUNT) == values
    assert ways(cores) == ["MappedRange", "FetchedRange"]


def _no_descriptor(file):
    raise OSError(errno.EMFILE, "too many open files")


def test_memory_cannot_be_mapped(penstock_client):
    penstock_client.create_topic("t")
    with pytest.raises(InvalidArgument, match="mapped"):
        penstock_client.range("t", 0, 0, 0, delivery="mapped")


def test_pieces_of_any_size_give_the_same_records(client, topic, values, monkeypatch):
    fill(client, topic, values)
    for size in (1, 5000, 100_000):
        monkeypatch.setattr(fetched_range, "PIECE_BYTES", size)
        assert read(client.range(topic, 0, 10, COUNT, delivery="control"), 10, COUNT) == values[10:]


def test_a_range_of_too_many_pieces_is_read_one_after_the_other(penstock_client, topic, values, monkeypatch):
    monkeypatch.setattr(measuring, "PIECES_MAX", 1)
    monkeypatch.setattr(fetched_range, "PIECE_BYTES", 5000)
    fill(penstock_client, topic, values)
    assert read(penstock_client.range(topic, 0, 10, COUNT), 10, COUNT) == values[10:]


def test_two_questions_are_out_while_the_application_is_busy(unix, topic, values, monkeypatch, cores):
    monkeypatch.setattr(fetched_range, "PIECE_BYTES", 50_000)
    with connect(unix, timeout=60) as client:
        fill(client, topic, values)
        batches = client.range(topic, 0, 0, COUNT, delivery="control")
        next(batches)
        (reading,) = cores
        assert [piece.part.times_sent for piece in reading._pieces] == [1, 1]
        batches.close()
        assert not reading._pieces
        assert not client._connection._asked, "requests ahead are dropped"


def test_a_client_that_was_closed_reads_no_range(client, topic):
    client.create_topic(topic)
    batches = client.range(topic, 0, 0, 0)
    client.close()
    with pytest.raises(Closed):
        client.range(topic, 0, 0, 0)
    with pytest.raises(Closed):
        next(iter(batches))
