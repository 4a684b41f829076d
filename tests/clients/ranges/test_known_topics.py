"""What is remembered of topics is true, or it is asked again."""

from __future__ import annotations

import pytest
from penstock.clients import connect
from penstock.clients.ranges import known_topics
from penstock.clients.ranges.known_topics import KnownTopics
from penstock.transport.messages import Partition, Topic, Welcome


class Told:
    """A connection to a broker that may be started again."""

    def __init__(self) -> None:
        self.welcome: Welcome | None = None

    def greeted(self, incarnation: int) -> None:
        self.welcome = Welcome(1, 1, "", "", "", incarnation, 1, 1, "", "", "")


def topic(number: int, partitions: int = 2) -> Topic:
    found = [Partition(each, "", bytes(16), 0, 0, 0, 0, 0, f"/{number}/{each}", each) for each in range(partitions)]
    return Topic(f"t{number}", number.to_bytes(16, "big"), {}, found)


@pytest.fixture
def told():
    found = Told()
    found.greeted(7)
    return found


def test_partitions_are_told_by_the_id_of_their_topic(told):
    known = KnownTopics(told)
    known.remember(topic(1))
    assert known.partition(topic(1).topic, 1).directory == "/1/1"
    assert known.partition(topic(1).topic, 2) is None
    assert known.partition(topic(1).topic, -1) is None
    assert known.partition(topic(2).topic, 0) is None
    known.remember(topic(1, partitions=3))
    assert known.partition(topic(1).topic, 2).directory == "/1/2"


def test_a_broker_that_was_started_again_is_asked_anew(told):
    known = KnownTopics(told)
    known.remember(topic(1))
    told.greeted(8)
    assert known.partition(topic(1).topic, 0) is None


def test_the_longest_unused_is_forgotten(told, monkeypatch):
    monkeypatch.setattr(known_topics, "TOPICS_MAX", 2)
    known = KnownTopics(told)
    known.remember(topic(1))
    known.remember(topic(2))
    known.partition(topic(1).topic, 0)
    known.remember(topic(3))
    assert [known.partition(topic(number).topic, 0) is None for number in (1, 2, 3)] == [False, True, False]


def test_a_client_without_a_broker_yet_knows_nothing():
    assert KnownTopics(Told()).partition(bytes(16), 0) is None


def test_ranges_of_a_known_topic_go_on_over_a_new_broker(tmp_path):
    url = f"file://{tmp_path}/data"
    with connect(url) as client:
        client.create_topic("t")
        client.producer("t").send(b"x")
        id_ = client.topic("t").id
        for _ in range(2):
            assert [batch.values() for batch in client.range("t", 0, 0, 1, id=id_)] == [[b"x"]]
    with connect(url) as client:
        assert [batch.values() for batch in client.range("t", 0, 0, 1, id=id_)] == [[b"x"]]
        client.producer("t").send(b"y")
        assert [batch.values() for batch in client.range("t", 0, 0, 2, id=id_)] == [[b"x"], [b"y"]]
