"""What is asked about whole topics, through clients of every kind: ends, positions, sizes, first cursors."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest
from penstock.broker.errors import GroupActive, InvalidRequest, LimitReached, UnknownTopic
from penstock.clients import End, InvalidArgument, TopicEnds, connect
from penstock.clients.embedded import peeked_ends
from penstock.storage.errors import OutOfBounds

MANY = [b"%06d" % number for number in range(2000)]


@pytest.fixture
def filled(client, topic):
    """A topic of two partitions, with 2000 records and none."""
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        producer.send_many(MANY, partition=0)
    return topic


# -- ends -----------------------------------------------------------------------------------------------


def test_ends_of_several_topics_come_in_one_call(client, filled):
    client.create_topic(filled + "-b")
    found = client.ends([filled, filled + "-b"])
    assert list(found) == [filled, filled + "-b"]
    assert found[filled].id == client.topic(filled).id
    ends = found[filled].partitions
    assert [(end.first, end.end) for end in ends] == [(0, 2000), (0, 0)]
    assert (ends[0].term > 0, ends[1].term) == (True, 0)
    assert client.ends([]) == {}


@pytest.mark.parametrize("url", ["file", "unix", "ipc", "tcp"], indirect=True)  # not mem: there the test tells the time
def test_what_is_known_is_waited_on_as_long_as_told(client, filled):
    known = client.ends([filled])
    begun = time.monotonic()
    assert client.ends([filled], known=known, wait=0.05) == known
    assert time.monotonic() - begun >= 0.05


def test_news_end_a_wait(client, filled):
    known = client.ends([filled])
    client.producer(filled).send(b"more", partition=1)
    moved = client.ends([filled], known=known, wait=60)
    assert [end.end for end in moved[filled].partitions] == [2000, 1]
    client.alter_topic(filled, partitions=3)
    assert len(client.ends([filled], known=moved, wait=60)[filled].partitions) == 3


def test_who_waits_is_told_when_another_client_sends(dial, url, topic):
    client, other = dial(url), connect(url, timeout=60)
    with other:
        other.create_topic(topic)
        known = client.ends([topic])
        sender = threading.Thread(target=other.producer(topic).send, args=(b"x",))
        sender.start()
        moved = client.ends([topic], known=known, wait=60)
        sender.join()
    assert [end.end for end in moved[topic].partitions] == [1]


def test_ends_known_from_elsewhere_are_as_good(client, filled):
    (end,) = client.ends([filled])[filled].partitions[:1]
    told = TopicEnds(client.topic(filled).id, [End(0, end.end - 1, 0), End(0, 0, 0)])
    assert client.ends([filled], known={filled: told}, wait=60)[filled].partitions[0] == end


def test_a_topic_made_again_is_another_one(client, filled):
    known = client.ends([filled])
    client.delete_topic(filled)
    with pytest.raises(UnknownTopic, match=filled):
        client.ends([filled], known=known, wait=60)
    client.create_topic(filled)
    found = client.ends([filled], known=known, wait=60)[filled]
    assert found.id == client.topic(filled).id != known[filled].id
    assert [end.end for end in found.partitions] == [0]


def test_topics_that_are_none_are_refused(client, topic):
    with pytest.raises(UnknownTopic, match="never-created"):
        client.ends(["never-created"])
    with pytest.raises(InvalidArgument, match="not a list in which each is a str"):
        client.ends("text")
    with pytest.raises(InvalidArgument, match="32 hexadecimal"):
        client.ends([topic], known={topic: TopicEnds("xyz", [])})


# -- positions and sizes ----------------------------------------------------------------------------------


def test_positions_are_offsets_with_the_term_before_them(client, filled):
    end = client.ends([filled])[filled].partitions[0]
    assert client.positions(filled, "earliest") == {0: (0, 0), 1: (0, 0)}
    assert client.positions(filled, "latest") == {0: (2000, end.term), 1: (0, 0)}
    later = datetime(2200, 1, 1, tzinfo=UTC)
    assert client.positions(filled, later, id=client.topic(filled).id) == {0: (2000, end.term), 1: (0, 0)}


def test_spans_are_cut_into_pieces(client, filled):
    with client.producer(filled) as producer:
        for _ in range(20):
            producer.send_many([bytes(1000)] * 10, partition=1)
    (pieces, none, all_of_it) = client.measure(filled, [(1, 5, 195), (0, 7, 7), (0, 0, 2000)], "25KB")
    ends = [end for end, _ in pieces]
    assert ends == sorted(set(ends))
    assert ends[-1] == 195
    assert len(ends) > 2
    assert all(size >= 25_000 for _, size in pieces[:-1])
    assert none == []
    assert all_of_it[-1][0] == 2000


def test_spans_that_are_not_there_are_refused(client, filled):
    with pytest.raises(OutOfBounds):
        client.measure(filled, [(0, 0, 2001)], 1)
    with pytest.raises(InvalidRequest):
        client.measure(filled, [(0, 2, 1)], 1)
    with pytest.raises(UnknownTopic):
        client.measure(filled, [(0, 0, 1)], 1, id="0" * 32)
    with pytest.raises(InvalidArgument, match="piece_bytes"):
        client.measure(filled, [(0, 0, 1)], "much")


def test_too_many_pieces_are_too_many_without_a_node_too(tmp_path, monkeypatch):
    with connect(f"file://{tmp_path}/data") as client:
        client.create_topic("t")
        for _ in range(3):
            client.producer("t").send(b"x")
    monkeypatch.setattr(peeked_ends, "PIECES_MAX", 2)
    with connect(f"file://{tmp_path}/data") as client:
        assert len(client.measure("t", [(0, 0, 2)], 0)[0]) == 2
        with pytest.raises(LimitReached, match="larger"):
            client.measure("t", [(0, 0, 3)], 0)


# -- groups -----------------------------------------------------------------------------------------------


def test_a_group_is_begun_once(client, filled):
    term = client.ends([filled])[filled].partitions[0].term
    assert client.begin_group(filled, "g", {0: 1500, 1: 0}) == {0: (1500, term), 1: (0, 0)}
    assert client.begin_group(filled, "g", {0: 1, 1: 0}) == {0: (1500, term), 1: (0, 0)}
    assert client.group(filled, "g").lag == 500
    with client.consumer(filled, group="g") as consumer:
        assert [record.value for record in consumer.fetch(2, wait=60)] == MANY[1500:1502]
        with pytest.raises(GroupActive):
            client.commit_group(filled, "g", {0: 3})


def test_cursors_are_committed_without_being_a_member(client, filled):
    client.commit_group(filled, "fresh", {0: 700})
    assert [part.cursor for part in client.group(filled, "fresh").partitions] == [700, -1]
    client.commit_group(filled, "fresh", {0: 2000, 1: 0}, id=client.topic(filled).id)
    assert client.group(filled, "fresh").lag == 0
    with pytest.raises(OutOfBounds):
        client.commit_group(filled, "fresh", {0: 2001})


# -- a directory without its lock ---------------------------------------------------------------------------


def test_planning_in_a_directory_locks_and_writes_nothing(tmp_path):
    data = tmp_path / "data"
    with connect(f"file://{data}") as client:
        client.create_topic("t")
        client.producer("t").send_many(MANY)
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    with connect(f"file://{data}") as client:
        known = client.ends(["t"])
        assert client.ends(["t"], known=known, wait=0.05) == known
        assert client.measure("t", [(0, 0, 2000)], 1)[0][-1][0] == 2000
        assert client.positions("t", "latest")[0][0] == 2000
        assert sum(batch.record_count for batch in client.range("t", 0, 0, 2000)) == 2000
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_a_reader_beside_a_writer_hears_of_news_by_looking(tmp_path):
    data = tmp_path / "data"
    with connect(f"file://{data}") as writer:
        writer.create_topic("t", partitions=2)
        producer = writer.producer("t")
        producer.send(b"x", partition=0)
        code = f"""if True:
            import penstock
            with penstock.connect("file://{data}") as client:
                known = client.ends(["t"])
                print("known", flush=True)
                ends = client.ends(["t"], known=known, wait=60)["t"].partitions
                print([end.end for end in ends])
            """
        reader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "known\n"
        producer.send(b"y", partition=1)
        assert reader.communicate(timeout=60)[0] == "[1, 1]\n"
