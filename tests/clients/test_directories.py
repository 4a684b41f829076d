"""`file://`: reading without the lock, also beside a writer, and becoming the writer at the first change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from penstock.broker import ServeConfig
from penstock.clients import TimedOut, connect
from penstock.clients.embedded.peek import Peek
from penstock.clients.embedded.store import LocalStore
from penstock.clients.errors import InvalidArgument
from penstock.storage import Files, LogWriter
from penstock.storage.errors import (
    AlreadyOpen,
    BadChecksum,
    Corrupt,
    ForeignDirectory,
    InvalidTopic,
    NewerFormat,
    OutOfBounds,
    StorageError,
)
from support.processes import Serving

MANY = [b"%06d" % number for number in range(2000)]


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def filled(data):
    """A directory with a topic of two partitions that no process has open."""
    with connect(f"file://{data}") as client:
        client.create_topic("t", partitions=2)
        client.producer("t").send_many(MANY, partition=0)
        client.producer("t").send_many(MANY[:10], partition=1)
    return data


def values(client, topic="t"):
    with client.consumer(topic) as consumer:
        return sorted(record.value for batch in consumer.batches(wait=0) for record in batch)


def test_what_was_written_is_there_in_the_next_life(filled):
    with connect(f"file://{filled}") as client:
        assert values(client) == sorted(MANY + MANY[:10])
        with client.producer("t") as producer:
            assert producer.send(b"more", partition=1) == 10
        assert values(client) == sorted([*MANY, *MANY[:10], b"more"])


def test_reading_locks_writes_and_creates_nothing(filled):
    before = {path: path.stat().st_mtime_ns for path in filled.rglob("*")}
    os.chmod(filled, 0o500)
    try:
        with connect(f"file://{filled}") as client:
            assert [topic.name for topic in client.topics()] == ["t"]
            assert values(client) == sorted(MANY + MANY[:10])
            assert client.offsets("t", "latest") == {0: 2000, 1: 10}
            with client.consumer("t", positions={0: 1990}) as consumer:
                assert consumer.delivery == "mapped"
                assert consumer.lag() == 20
                consumer.seek(1995, partition=0)
                assert consumer.position == {0: 1995, 1: 0}
            with pytest.raises(OutOfBounds, match="0 to 2000"):
                client.consumer("t", positions={0: 5000})
    finally:
        os.chmod(filled, 0o700)
    assert {path: path.stat().st_mtime_ns for path in filled.rglob("*")} == before


def test_mapping_what_this_process_changes_is_refused_with_the_way_out(filled):
    with connect(f"file://{filled}") as client:
        client.consumer("t", delivery="mapped").close()
        with pytest.raises(InvalidArgument, match=r"cannot read /.*, which group='g' has .*or run penstock"):
            client.consumer("t", group="g", delivery="mapped")
        client.producer("t").send(b"more")
        for group in (None, "g"):
            with pytest.raises(InvalidArgument, match=r"cannot read /.*, which this process changes: leave delivery"):
                client.consumer("t", group=group, delivery="mapped")


@pytest.mark.parametrize("ended", [True, False])
def test_a_topic_that_was_trimmed_begins_where_it_was_trimmed(filled, tmp_path, ended):
    """Also where its node had no time to write a snapshot, and beside the other partition, which was not trimmed."""
    copy = tmp_path / "copy"
    with connect(f"file://{filled}") as client:
        client.trim("t", 0, before=1500)
        if not ended:
            shutil.copytree(filled, copy)
    if ended:
        shutil.copytree(filled, copy)
    with connect(f"file://{copy}") as client:
        assert [each.first for each in client.topic("t").partitions] == [1500, 0]
        assert client.offsets("t", "earliest") == {0: 1500, 1: 0}
        assert client.topic("t").records == 510
        assert values(client) == sorted(MANY[1500:] + MANY[:10])
        with pytest.raises(OutOfBounds, match="1500 to 2000"):
            client.read("t", 0, 1499)
        assert [record.value for record in client.read("t", 0, 1500, max_records=1)] == [MANY[1500]]


def test_a_reader_beside_a_broker_learns_where_topics_begin(tmp_path, data):
    with Serving(ServeConfig(data=str(data), listen=(f"ipc://{tmp_path}/b.sock",))) as serving:
        with connect(serving.url, timeout=60) as served, connect(f"file://{data}") as client:
            served.create_topic("t")
            served.producer("t").send_many(MANY)
            for first in (0, 10, 1700):
                served.trim("t", 0, before=first)
                assert client.offsets("t", "earliest") == {0: first}
            assert client.offsets("t", "latest") == {0: 2000}
        assert serving.end() == 0


def test_topics_of_penstocks_own_are_listed_by_name_and_nothing_else(filled):
    with connect(f"file://{filled}") as client:
        with client.transaction() as transaction:
            transaction.producer("t").send(b"one more")
        own = client.topic("__txn").id
    with connect(f"file://{filled}") as client:
        assert [topic.name for topic in client.topics()] == ["t"]
        assert client.topic("__txn").id == own
        with pytest.raises(InvalidTopic, match="topic __txn is penstock's own"):
            client.ends(["__txn"])


def test_a_directory_that_is_not_there_is_empty_until_something_is_made(data):
    with connect(f"file://{data}") as client:
        assert client.topics() == []
        assert not data.exists()
        client.create_topic("t")
        assert data.exists()


def test_groups_work_in_a_directory(filled):
    with connect(f"file://{filled}") as client, client.consumer("t", group="g") as consumer:
        assert len(consumer.fetch(5)) == 5
        consumer.commit()
    with connect(f"file://{filled}") as client:
        assert client.group("t", "g").lag == 2005


def test_clients_of_one_process_share_the_directory(data):
    with connect(f"file://{data}") as writer, connect(f"file://{data}") as reader:
        writer.create_topic("t")
        with writer.producer("t") as producer, reader.consumer("t") as consumer:
            for value in MANY[:20]:
                producer.send(value)
                assert [record.value for record in consumer.fetch(wait=10)] == [value]


def test_a_reader_in_another_process_follows_a_writer(data):
    script = (
        "import sys; from penstock.clients import connect\n"
        "with connect(sys.argv[1]) as client, client.consumer('t') as consumer:\n"
        "    print('reading', flush=True)\n"
        "    print(b','.join(record.value for record in consumer.fetch(wait=60)).decode(), flush=True)\n"
    )
    with connect(f"file://{data}") as writer:
        writer.create_topic("t")
        reader = subprocess.Popen([sys.executable, "-c", script, f"file://{data}"], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        writer.producer("t").send(b"hello")
        assert reader.stdout.readline() == "hello\n"
        assert reader.wait(20) == 0
        reader.stdout.close()


def test_a_served_directory_is_read_and_its_broker_named_to_writers(tmp_path, data):
    with Serving(ServeConfig(data=str(data), listen=(f"ipc://{tmp_path}/b.sock",))) as serving:
        with connect(serving.url, timeout=60) as served, connect(f"file://{data}") as client:
            served.create_topic("t", partitions=2)
            served.producer("t").send_many(MANY, partition=0)
            assert values(client) == MANY
            with client.consumer("t", start="latest") as consumer:
                assert consumer.fetch(wait=0) == []
                served.producer("t").send(b"new")
                assert [record.value for record in consumer.fetch(wait=10)] == [b"new"]
            with pytest.raises(AlreadyOpen, match=f"broker at ipc://{tmp_path}/b.sock"):
                client.create_topic("mine")
            with pytest.raises(AlreadyOpen):
                client.producer("t").send(b"x")
            with pytest.raises(AlreadyOpen):
                client.consumer("t", group="g")
        assert serving.end() == 0
    with connect(f"file://{data}") as client:
        client.producer("t").send(b"alone")


def test_what_is_no_data_directory_is_left_alone(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ForeignDirectory, match=r"precious\.txt"):
        connect(f"file://{tmp_path}")
    (tmp_path / "precious.txt").unlink()
    (tmp_path / "node.json").write_text('{"format": 99}')
    with pytest.raises(NewerFormat, match="99"):
        connect(f"file://{tmp_path}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.json"]


@pytest.mark.parametrize("name", ["lock", "promises"])
def test_what_cannot_be_opened_is_named(filled, name):
    (filled / name).unlink()
    (filled / name).mkdir()
    with connect(f"file://{filled}") as client:
        assert values(client) == sorted(MANY + MANY[:10])
        with pytest.raises(StorageError, match=f"cannot be opened.*{name}"):
            client.producer("t").send(b"x")


def test_a_catalogue_that_is_gone_hides_no_topic(filled):
    for path in (filled / "metadata").iterdir():
        path.unlink()
    with connect(f"file://{filled}") as client, pytest.raises(Corrupt, match="metadata is gone"):
        client.topics()


def test_a_damaged_batch_is_named_and_read_around(data):
    with connect(f"file://{data}") as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            for number in range(5):
                producer.send_many([b"%d-%d" % (number, each) for each in range(10)])
    (segment,) = data.glob("topics/*/0/*.segment")
    damaged = bytearray(segment.read_bytes())
    damaged[damaged.index(b"2-0")] ^= 1
    segment.write_bytes(damaged)
    with connect(f"file://{data}") as client:
        with client.consumer("t") as consumer:
            seen = [record.value for record in consumer.fetch(100)]  # up to the damage; then it is said
            with pytest.raises(BadChecksum, match="records 20 to 29 of partition 0 of topic t are damaged") as raised:
                consumer.fetch()
            assert raised.value.next_offset == 30
            seen += [record.value for record in consumer.fetch(100)]
            assert seen == [b"%d-%d" % (number, each) for number in (0, 1, 3, 4) for each in range(10)]
        with client.consumer("t", verify=False) as trusting:
            assert len(trusting.fetch(100)) == 50


def test_a_reader_beside_a_writer_sees_nothing_that_is_not_synced(data, monkeypatch):
    with connect(f"file://{data}") as writer:
        writer.create_topic("t")
        producer = writer.producer("t")
        producer.send(b"synced")
        beside = Peek(str(data), Files())
        assert beside.topics(["t"])[0].partitions[0].end == 1
        sync = LogWriter.sync
        monkeypatch.setattr(LogWriter, "sync", lambda log: log.durable)
        producer.send_nowait(b"only written")
        with pytest.raises(TimedOut):
            producer.flush(timeout=0.05)
        assert beside.topics(["t"])[0].partitions[0].end == 1
        monkeypatch.setattr(LogWriter, "sync", sync)
        producer.send(b"and all is synced")
        assert beside.topics(["t"])[0].partitions[0].end == 3
        beside.close()
    assert not [name for name in os.listdir("/dev/shm") if name == (data / "board").read_text().strip("/")]


def test_what_a_dead_broker_left_in_doubt_is_remembered_until_every_log_is_open(filled):
    """Its board and its list say which syncs never answered: a start that is killed half-way must not wipe them."""
    (filled / "board").write_text("/of-the-dead-broker")
    (filled / "doubts").write_text("[]")
    LocalStore(str(filled), Files(), max_batch_bytes=1 << 20).close()  # dies before it has opened anything
    assert (filled / "board").read_text() == "/of-the-dead-broker"
    assert (filled / "doubts").exists()
    with connect(f"file://{filled}") as client:
        assert client.producer("t").send(b"more", partition=0) == len(MANY)
        assert (filled / "board").read_text() != "/of-the-dead-broker"
        assert not (filled / "doubts").exists()
