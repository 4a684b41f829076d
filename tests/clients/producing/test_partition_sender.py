"""PartitionSenders: what waits to be sent is kept going, and what is at rest costs nothing."""

from __future__ import annotations

import pytest
from penstock.broker.errors import Fenced
from penstock.clients.embedded.local import LocalChannel
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
            assert [sender.partition for sender in connection.parts] == [0, 2]
            assert connection.due() <= connection.now + 1  # the driver must not rest
        assert [future.result() for future in futures] == [0, 0]
        assert not connection.parts


def test_records_gathered_behind_a_fenced_batch_are_refused_with_it(penstock_client, monkeypatch):
    penstock_client.create_topic("t")
    put = LocalChannel.put

    def fence(channel, message, payload):
        fenced = Failure(message.request, Fenced.code, "another producer") if type(message) is Produced else message
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


def held_back(penstock_client, monkeypatch) -> list[tuple]:
    """Answers do not arrive: they gather in the list that is returned."""
    held: list[tuple] = []
    monkeypatch.setattr(LocalChannel, "put", lambda channel, *answer: bool(held.append((channel, *answer))) or True)
    return held


def test_who_sends_without_a_pause_takes_the_answers_by_itself(penstock_client, monkeypatch):
    """The pump would have to wait for the interpreter, while what has come back could send what is gathered."""
    penstock_client.create_topic("t")
    put = LocalChannel.put
    monkeypatch.setattr(LocalChannel, "remote", True)
    with penstock_client.producer("t") as producer, producer._driver.lock:  # the pump has no chance
        held = held_back(penstock_client, monkeypatch)
        first = producer.send_nowait(b"first")
        penstock_client._connection.turn()
        gathered = [producer.send_nowait(bytes(1000)) for _ in range(20)]
        assert held, "the first record was answered"
        assert not first.done()
        monkeypatch.setattr(LocalChannel, "put", put)
        for channel, *answer in held:
            put(channel, *answer)
        while not first.done():
            gathered.append(producer.send_nowait(bytes(1000)))
        assert 20 < len(gathered) <= 41, "it looks at each doubling"
        assert not producer._core.senders[0].gather.values, "what was gathered is on its way"
    assert [future.result() for future in gathered] == list(range(1, len(gathered) + 1))


def test_callbacks_of_answers_taken_in_the_middle_of_a_send_run_after_it(penstock_client, monkeypatch):
    penstock_client.create_topic("t")
    put = LocalChannel.put
    monkeypatch.setattr(LocalChannel, "remote", True)
    with penstock_client.producer("t") as producer:
        sent: list[object] = []
        with monkeypatch.context() as holding:
            held = held_back(penstock_client, holding)
            first = producer.send_nowait(b"first")
            penstock_client._connection.turn()
        first.add_done_callback(lambda future: sent.append(producer.send_nowait(b"from a callback")))
        for channel, *answer in held:
            put(channel, *answer)
        while not sent:
            producer.send_nowait(bytes(1000))
        producer.flush()
        assert sent[0].result() > 0
