"""Lanes: what waits to be sent is kept going, and what is at rest costs nothing."""

from __future__ import annotations

import pytest
from penstock.broker.errors import Fenced
from penstock.clients.local import LocalChannel
from penstock.transport.messages import Failure, Produced


def test_lanes_at_rest_are_not_turned(penstock_client):
    penstock_client.create_topic("t", partitions=3)
    with penstock_client.producer("t") as producer:
        for partition in range(3):
            producer.send(b"x", partition=partition)
            producer.send_nowait(b"y", partition=partition)
        assert not penstock_client._connection.parts


def test_what_the_channel_does_not_take_is_tried_until_it_does(penstock_client, monkeypatch):
    penstock_client.create_topic("t", partitions=3)
    connection = penstock_client._connection
    with penstock_client.producer("t") as producer:
        with monkeypatch.context() as full:
            full.setattr(connection.channel, "send", lambda *message: False)
            futures = [producer.send_nowait(b"x", partition=partition) for partition in (0, 2)]
            connection.turn()
            assert [lane.partition for lane in connection.parts] == [0, 2]
            assert connection.due() <= connection.now + 1  # whoever drives must not rest
        assert [future.result() for future in futures] == [0, 0]
        assert not connection.parts


def test_records_gathered_behind_a_fenced_batch_are_refused_with_it(penstock_client, monkeypatch):
    penstock_client.create_topic("t")
    put = LocalChannel.put

    def fence(channel, message, payload):
        fenced = Failure(message.request, Fenced.code, "somebody else") if type(message) is Produced else message
        return put(channel, fenced, payload)

    producer = penstock_client.producer("t", name="p")
    producer.next_sequence()
    with monkeypatch.context() as fencing, producer._driver.lock:
        fencing.setattr(LocalChannel, "put", fence)
        futures = [producer.send_nowait(b"sent"), producer.send_nowait(b"gathered")]
        assert penstock_client._connection.turn()
    for future in futures:
        assert isinstance(future.exception(), Fenced)
    with pytest.raises(Fenced):
        producer.send(b"later")
    producer.close()
