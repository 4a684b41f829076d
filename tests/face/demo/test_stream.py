"""The demo waits for its group, however late that comes."""

from __future__ import annotations

from penstock.clients.testing import penstock_broker, penstock_client
from penstock.demo.stream import GROUP, is_consumed

__all__ = ["penstock_broker", "penstock_client"]


def test_what_was_produced_before_the_group_was_there_is_not_consumed_until_it_has_committed(penstock_client):
    client = penstock_client
    client.create_topic("flights")
    with client.producer("flights") as producer:
        producer.send_many([b"one", b"two"])
    assert not is_consumed(client, "flights", 2)
    with client.consumer("flights", group=GROUP, start="earliest") as consumer:
        assert not is_consumed(client, "flights", 2)
        assert len(consumer.fetch(10, 10.0)) == 2
        assert not is_consumed(client, "flights", 2)
        consumer.commit()
        assert not is_consumed(client, "flights", 3)
        assert is_consumed(client, "flights", 2)
