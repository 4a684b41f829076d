"""What the broker refuses because a quota is used up is asked for again, when the broker says so and not before."""

from __future__ import annotations

import time

import pytest
from penstock.errors import Overloaded, TimedOut, TopicExists, UnknownSchedule
from penstock.transport.messages import Failure, Produced, Topics, Welcome

AFTER_MS = 60


def overloaded(after_ms: int, code: str = "overloaded"):
    return lambda answer: Failure(answer.request, code, "user ann is over its quota", True, after_ms=after_ms)


@pytest.mark.parametrize("code", ["overloaded", "read_failed"])
def test_a_verb_asks_again_after_the_time(penstock_broker, losing, code):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        losing(Topics, 1, 2, instead=overloaded(AFTER_MS, code))
        begun = time.monotonic()
        assert [topic.name for topic in client.topics()] == ["t"]
        assert time.monotonic() - begun >= 2 * AFTER_MS / 1000


def test_a_verb_that_cannot_wait_for_so_long_says_for_how_long(penstock_broker, losing):
    with penstock_broker.connect(timeout=1.0) as client:
        client.create_topic("t")
        losing(Topics, instead=overloaded(99_000))
        with pytest.raises(Overloaded, match="over its quota") as raised:
            client.topics()
        assert (raised.value.retry_after, raised.value.retry) == (99.0, True)


def test_what_was_refused_with_a_time_counts_as_never_sent(penstock_broker, losing):
    """After a lost connection, "it is there" and "it is missing" are the answers of a request that was done before."""
    with penstock_broker.connect() as client:
        client.create_topic("t", partitions=2)
        losing(Failure, 1, 3, instead=overloaded(1))
        with pytest.raises(TopicExists):
            client.create_topic("t")
        with pytest.raises(UnknownSchedule):
            client.delete_schedule("t", "missing")


def test_a_producer_sends_again_after_the_time(penstock_broker, losing):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        losing(Produced, 1, instead=overloaded(AFTER_MS))
        with client.producer("t") as producer:
            begun = time.monotonic()
            assert producer.send(b"x") == 0
            assert time.monotonic() - begun >= AFTER_MS / 1000


def test_a_client_that_is_denied_a_connection_greets_again(penstock_broker, losing):
    losing(Welcome, 1, instead=overloaded(AFTER_MS))
    begun = time.monotonic()
    with penstock_broker.connect() as client:
        assert client.topics() == []
    assert time.monotonic() - begun >= AFTER_MS / 1000


def test_a_client_that_is_denied_for_long_says_why(penstock_broker, losing):
    losing(Welcome, instead=overloaded(10))
    with pytest.raises(TimedOut, match="user ann is over its quota"):
        penstock_broker.connect(timeout=0.2)
