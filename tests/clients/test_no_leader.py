"""`no_leader` of a broker without an office: producers send again, verbs raise an error that may be retried."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from penstock.broker.errors import NoLeader
from penstock.clients import connect
from penstock.clients.testing import MemoryBroker
from penstock.transport.messages import Failure, Produced, Topics


def refused(answer: Produced | Topics) -> Failure:
    return Failure(answer.request, "no_leader", "an office opens soon", True)


def test_a_producer_sends_again_until_there_is_a_leader(losing: Callable[..., None]) -> None:
    with MemoryBroker() as broker, connect(broker.url) as client:
        client.create_topic("t")
        producer = client.producer("t")
        losing(Produced, 1, 2, instead=refused)
        assert [producer.send(b"one"), producer.send(b"two")] == [0, 1]
        assert [record.value for record in client.read("t", 0, 0)] == [b"one", b"two"]


def test_a_verb_that_is_refused_raises_what_may_be_retried(losing: Callable[..., None]) -> None:
    with MemoryBroker() as broker, connect(broker.url) as client:
        losing(Topics, 1, instead=refused)
        with pytest.raises(NoLeader, match="an office opens soon") as raised:
            client.create_topic("t")
        assert raised.value.retry
