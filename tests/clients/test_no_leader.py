"""`no_leader` of a broker without an office: what was asked counts as lost, and is asked again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from penstock.clients import connect
from penstock.clients.errors import TimedOut
from penstock.clients.memory_broker import MemoryBroker
from penstock.transport.messages import Failure, Produced, Topics, Welcome


def refused(answer: Produced | Topics | Welcome) -> Failure:
    return Failure(answer.request, "no_leader", "an office opens soon", True)


def test_a_producer_sends_again_until_there_is_a_leader(losing: Callable[..., None]) -> None:
    with MemoryBroker() as broker, connect(broker.url) as client:
        client.create_topic("t")
        producer = client.producer("t")
        losing(Produced, 1, 2, instead=refused)
        assert [producer.send(b"one"), producer.send(b"two")] == [0, 1]
        assert [record.value for record in client.read("t", 0, 0)] == [b"one", b"two"]


def test_a_verb_is_asked_again_until_there_is_a_leader(losing: Callable[..., None]) -> None:
    with MemoryBroker() as broker, connect(broker.url) as client:
        client.create_topic("t")
        losing(Topics, 1, 2, instead=refused)
        assert [topic.name for topic in client.topics()] == ["t"]


def test_a_verb_says_what_it_waited_for(losing: Callable[..., None]) -> None:
    with MemoryBroker() as broker, connect(broker.url, timeout=0.3) as client:
        losing(Welcome, instead=refused)
        losing(Topics, instead=refused)
        with pytest.raises(TimedOut, match="an office opens soon"):
            client.topics()
