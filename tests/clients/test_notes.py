"""Notes beside the cursors of a group, through clients of every kind."""

from __future__ import annotations

import pytest
from penstock.broker.errors import InvalidRequest, UnknownTopic
from penstock.clients import Committed, InvalidArgument

WAIT = 30.0


def test_a_note_goes_with_a_commit_and_comes_back(client, topic):
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        producer.send_many([b"x"] * 3, partition=0)
    assert client.committed(topic, "g") == {}
    with client.consumer(topic, group="g", start="earliest") as consumer:
        assert consumer.fetch(2, wait=WAIT)
        consumer.commit(note="näher")
        assert client.committed(topic, "g") == {0: Committed(2, "näher")}
        consumer.commit({0: 1, 1: 0}, note="explicit")
        assert client.committed(topic, "g") == {0: Committed(1, "explicit"), 1: Committed(0, "explicit")}
        consumer.commit({0: 2})
        with pytest.raises(InvalidRequest, match="over 4096"):
            consumer.commit({0: 3}, note="x" * 4097)
        with pytest.raises(InvalidArgument):
            consumer.commit({0: 3}, note=5)
    assert client.committed(topic, "g") == {0: Committed(2, ""), 1: Committed(0, "explicit")}


def test_an_administrator_leaves_notes_too(client, topic):
    client.create_topic(topic)
    client.commit_group(topic, "g", {0: 0}, note="by hand")
    assert client.committed(topic, "g") == {0: Committed(0, "by hand")}
    client.reset_group(topic, "g", "latest")
    assert client.committed(topic, "g") == {0: Committed(0, "")}
    with pytest.raises(UnknownTopic):
        client.committed(f"{topic}-absent", "g")
