"""Topics and groups through clients of every kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from penstock.broker.engine.logs import topic_page
from penstock.broker.errors import GroupActive, InvalidRequest, InvalidSettings, TopicExists, UnknownGroup, UnknownTopic
from penstock.clients import InvalidArgument, connect
from penstock.clients.descriptions import GroupPartition
from penstock.storage.errors import Closed, InvalidTopic


def test_a_topic_is_created_described_and_deleted(client, topic):
    made = client.create_topic(topic, partitions=3, segment_bytes="1MB", retention_s="7d")
    assert (made.name, len(made.partitions), made.records) == (topic, 3, 0)
    assert made.settings["segment_bytes"] == 1 << 20
    assert made.settings["retention_s"] == 7 * 86400
    assert client.topic(topic).id == made.id
    assert topic in [found.name for found in client.topics()]
    client.delete_topic(topic)
    with pytest.raises(UnknownTopic, match=topic):
        client.topic(topic)


def test_a_topic_that_many_make_at_once_is_made_once(url, topic):
    with connect(url) as client, ThreadPoolExecutor(8) as threads:
        for number in range(5):
            name = f"{topic}-{number}"
            made = list(threads.map(lambda name: client.create_topic(name, if_missing=True), [name] * 8))
            assert len({each.id for each in made}) == 1


def test_settings_change_and_topics_grow(client, topic):
    client.create_topic(topic)
    altered = client.alter_topic(topic, partitions=2, retention_bytes="1GB", retention_s=timedelta(hours=1))
    assert (len(altered.partitions), altered.settings["retention_bytes"]) == (2, 1 << 30)
    assert altered.settings["retention_s"] == 3600
    assert client.alter_topic(topic, retention_s=None).settings["retention_s"] is None


def test_what_cannot_be_is_refused_with_a_reason(client, topic):
    client.create_topic(topic)
    with pytest.raises(TopicExists, match=topic):
        client.create_topic(topic)
    with pytest.raises(InvalidTopic, match="not allowed"):
        client.create_topic("a/b")
    with pytest.raises(InvalidSettings, match="did you mean commit"):
        client.create_topic(topic + "-b", comit="durable")
    with pytest.raises(InvalidArgument, match="64MB"):
        client.create_topic(topic + "-c", segment_bytes="64 apples")
    with pytest.raises(UnknownTopic):
        client.producer("never-created")
    with pytest.raises(UnknownTopic):
        client.consumer("never-created")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda client, topic: client.create_topic(7), "name=7 is not a str"),
        (lambda client, topic: client.create_topic("new", partitions=-1), "partitions=-1 is below 0"),
        (lambda client, topic: client.topic(None), "name=None is not a str"),
        (lambda client, topic: client.read(topic, "0", 0), "partition='0' is not an int"),
        (lambda client, topic: client.consumer(topic, group=7), "group=7 is not a str"),
        (lambda client, topic: client.consumer(topic, positions={0: "1"}), "positions[0]='1' is not an int"),
        (lambda client, topic: client.producer(topic, name=7), "name=7 is not a str"),
        (lambda client, topic: client.consumer(topic, group=""), "group='' is not allowed as a name"),
        (lambda client, topic: client.consumer(topic, session_timeout=0), "session_timeout=0"),
        (lambda client, topic: client.alter_topic(topic), "nothing to change of topic "),
        (lambda client, topic: client.producer(topic, codec="gzip"), "codec='gzip' is none of 'none', 'lz4', 'zstd'"),
    ],
)
def test_what_no_broker_would_take_is_refused_before_it_is_sent(client, topic, call, says):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument) as caught:
        call(client, topic)
    assert says in caught.value.message
    assert client.ping() < 30, "the client was not cut off"


def test_a_topic_that_is_there_is_no_error_if_it_is_to_be_made_where_missing(client, topic):
    made = client.create_topic(topic, partitions=2, retention_s="7d", if_missing=True)
    assert client.create_topic(topic, partitions=2, retention_s="7d", if_missing=True).id == made.id
    with pytest.raises(InvalidSettings, match=f"{topic} exists with partitions=2, not 1: use it so, or alter it"):
        client.create_topic(topic, if_missing=True)
    with pytest.raises(InvalidSettings, match=r"retention_s=604800.*, not 86400"):
        client.create_topic(topic, partitions=2, retention_s="1d", if_missing=True)


def test_sizes_that_no_broker_can_keep_name_topic_and_limit(client, topic):
    with pytest.raises(InvalidRequest, match=f"topic {topic} with partitions=2000 is not possible: 1 to 1024"):
        client.create_topic(topic, partitions=2000)
    with pytest.raises(InvalidSettings, match=r"max_record_bytes=1073741824 .* max_frame_bytes="):
        client.create_topic(topic, max_record_bytes="1GB")
    client.create_topic(topic)
    with pytest.raises(InvalidSettings, match="max_frame_bytes="):
        client.alter_topic(topic, max_record_bytes="1GB")


def test_a_group_says_where_its_partitions_begin_and_what_was_removed_before_it_was_read(client, topic):
    client.create_topic(topic)
    client.producer(topic).send(b"x")
    client.commit_group(topic, "g", {0: 0})
    (partition,) = client.group(topic, "g").partitions
    assert (partition.first, partition.removed) == (0, 0)
    assert GroupPartition(0, 3, 310, 10, "", 1, first=300).removed == 297
    assert [GroupPartition(0, cursor, 310, 10, "", 1, first=300).removed for cursor in (-1, 300, 301)] == [0, 0, 0]


def test_a_deleted_topic_that_is_made_again_is_another_one(client, topic):
    first = client.create_topic(topic)
    client.producer(topic).send(b"old")
    client.delete_topic(topic)
    second = client.create_topic(topic)
    assert second.id != first.id
    assert client.topic(topic).records == 0


def test_offsets_are_found_by_time(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send(b"a")
        producer.send(b"b")
    second = client.read(topic, 0, 1)[0]
    at = datetime.fromtimestamp(second.timestamp / 1e6, UTC)
    assert client.offsets(topic, "earliest") == {0: 0}
    assert client.offsets(topic, "latest") == {0: 2}
    assert client.offsets(topic, at)[0] in (0, 1)
    assert client.offsets(topic, at + timedelta(hours=1)) == {0: 2}


def test_groups_tell_members_cursors_and_exact_lag(client, topic):
    client.create_topic(topic, partitions=2)
    client.producer(topic).send_many([b"%d" % number for number in range(10)], partition=0)
    with client.consumer(topic, group="report", member="one") as consumer:
        assert len(consumer.fetch(4)) == 4
        consumer.commit()
        group = client.group(topic, "report")
        assert [member.name for member in group.members] == ["one"]
        assert [(part.cursor, part.end, part.lag) for part in group.partitions] == [(4, 10, 6), (-1, 0, 0)]
        assert group.lag == 6
        with pytest.raises(GroupActive):
            client.reset_group(topic, "report", "earliest")
    assert [found.name for found in client.groups(topic)] == ["report"]


def test_a_group_without_members_is_reset_and_forgotten(client, topic):
    client.create_topic(topic)
    client.producer(topic).send_many([b"%d" % number for number in range(10)])
    with client.consumer(topic, group="g") as consumer:
        consumer.fetch(10)
        consumer.commit()
    client.reset_group(topic, "g", {0: 7})
    assert client.group(topic, "g").lag == 3
    client.reset_group(topic, "g", "earliest")
    with client.consumer(topic, group="g") as consumer:
        assert consumer.fetch(1)[0].offset == 0
    client.delete_group(topic, "g")
    with pytest.raises(UnknownGroup, match="has no group 'g'"):
        client.group(topic, "g")


def test_the_broker_answers_pings_and_tells_numbers(client):
    assert 0 < client.ping() < 20
    assert isinstance(client.stats(), dict)
    assert client.stats()


def test_a_closed_client_says_so(client, topic):
    client.close()
    client.close()
    assert client.closed
    with pytest.raises(Closed, match="closed"):
        client.topics()
    with pytest.raises(Closed):
        client.producer(topic)


def test_all_topics_are_listed_page_by_page(monkeypatch):
    monkeypatch.setattr(topic_page, "PAGE", 2)
    with connect("mem://") as client:
        for name in "bdace":
            client.create_topic(name)
            client.set_queue(name, "q")
            client.commit_group(name, "g", {0: 0})
        assert [each.name for each in client.topics()] == [*"abcde"]
        assert [each.topic for each in client.queues()] == [*"abcde"]
        assert [each.topic for each in client.groups()] == [*"abcde"]
