"""Ready batches, appended under a producer of the caller's own, through clients of every kind."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from penstock import aio
from penstock.broker.errors import Fenced, SequenceGap, UnknownPartition, UnknownProducer, UnknownTopic
from penstock.clients import Appended, OpenedProducer, connect
from penstock.clients.embedded.local import LocalChannel
from penstock.storage.batch import Codec, Kind, encode, encode_state
from penstock.storage.errors import BadChecksum, BatchTooLarge, Error, InvalidBatch, RecordTooLarge
from penstock.transport.messages import Produced

ID = 2**63 + 7


def ready(*values: bytes, sequence: int = 0, **header: Any) -> bytes:
    """A batch under an id of our own."""
    return bytes(encode(values, **{"producer_id": ID, "first_sequence": sequence, **header}))


def values(client: Any, topic: str) -> list[bytes]:
    return [record.value for record in client.read(topic, 0, 0)]


def test_a_batch_is_appended_as_it_is_and_its_place_said(client, topic):
    made = client.create_topic(topic)
    first = client.append_batch(topic, 0, ready(b"a", b"b", keys=[b"k", None], event_times=[5, 6]))
    second = client.append_batch(topic, 0, bytearray(ready(b"c", sequence=2)), id=made.id)
    assert (first.offset, second.offset) == (0, 2)
    assert 0 < first.time_us <= second.time_us
    assert (first.term, second.term) == (client.topic(topic).partitions[0].term,) * 2
    records = client.read(topic, 0, 0)
    assert [(record.value, record.key, record.offset) for record in records] == [
        (b"a", b"k", 0), (b"b", None, 1), (b"c", None, 2),
    ]  # fmt: skip


def test_a_batch_that_is_appended_again_is_there_once_and_has_the_same_place(client, topic):
    client.create_topic(topic)
    batches = [ready(b"%d" % n, b"%d" % n, sequence=2 * n) for n in range(64)]
    places = [client.append_batch(topic, 0, batch) for batch in batches]
    assert [place.offset for place in places] == list(range(0, 128, 2))
    assert [client.append_batch(topic, 0, batch) for batch in batches] == places
    inner = client.append_batch(topic, 0, ready(b"7", sequence=15))
    assert inner == Appended(15, places[7].term, places[7].time_us)
    assert len(values(client, topic)) == 128
    client.append_batch(topic, 0, ready(b"x", sequence=128))
    with pytest.raises(SequenceGap, match="last 64"):
        client.append_batch(topic, 0, batches[0])


def test_a_gap_is_refused_and_nothing_appended(client, topic):
    client.create_topic(topic)
    with pytest.raises(UnknownProducer, match="starts at sequence 1"):
        client.append_batch(topic, 0, ready(b"b", sequence=1))
    client.append_batch(topic, 0, ready(b"a"))
    with pytest.raises(SequenceGap, match="expected 1"):
        client.append_batch(topic, 0, ready(b"c", sequence=2))
    client.append_batch(topic, 0, ready(b"b", sequence=1))
    assert values(client, topic) == [b"a", b"b"]


def test_a_producer_that_is_opened_again_keeps_its_id_and_fences_the_one_before(client, topic):
    made = client.create_topic(topic, partitions=2)
    first = client.open_producer(topic, 1, "p")
    assert isinstance(first, OpenedProducer)
    assert (first.producer_id > 0, first.epoch, first.next_sequence) == (True, 1, 0)

    def batch(opened: OpenedProducer, *values: bytes) -> bytes:
        header = {"producer_id": opened.producer_id, "producer_epoch": opened.epoch}
        return ready(*values, sequence=opened.next_sequence, **header)

    assert client.append_batch(topic, 1, batch(first, b"a", b"b")).offset == 0
    second = client.open_producer(topic, 1, "p", id=made.id)
    assert second == OpenedProducer(first.producer_id, 2, 2)
    with pytest.raises(Fenced, match="epoch 1 is over"):
        client.append_batch(topic, 1, batch(msgspec.structs.replace(first, next_sequence=2), b"late"))
    assert client.append_batch(topic, 1, batch(second, b"c")).offset == 2
    assert client.open_producer(topic, 1, "other").producer_id != first.producer_id


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        (b"", InvalidBatch, "too few for a batch"),
        (bytes(256), InvalidBatch, "no batch at 0"),
        (ready(b"x")[:-8], InvalidBatch, "bytes, "),
        (ready(b"x") + ready(b"y", sequence=1), InvalidBatch, "append one per call"),
        (ready(b"x", producer_id=0), InvalidBatch, "give it one"),
        (ready(b"x", kind=Kind.STAGED), InvalidBatch, "only records"),
        (bytes(encode_state(b"")), InvalidBatch, "only records"),
        (ready(b"x")[:60] + b"\xff" + ready(b"x")[61:], BadChecksum, "header at 0"),
        (ready(b"damage").replace(b"damage", b"DAMAGE"), BadChecksum, "checksum"),
        (ready(b"x" * 70_000), RecordTooLarge, "max_record_bytes=65536"),
        (ready(b"x" * 70_000, codec=Codec.ZSTD), RecordTooLarge, "max_record_bytes=65536"),
    ],
    ids=list(map(str, range(11))),
)
def test_a_batch_that_cannot_be_appended_is_refused_with_one_error_and_the_client_goes_on(
    client, topic, batch: bytes, error: type[Error], says: str
):
    client.create_topic(topic, max_record_bytes=65536)
    with pytest.raises(error, match=says):
        client.append_batch(topic, 0, batch)
    assert client.append_batch(topic, 0, ready(b"good")).offset == 0
    assert client.topic(topic).records == 1


def test_a_batch_over_the_frame_limit_is_refused_before_it_is_sent(client, topic):
    client.create_topic(topic)
    at_most = ready(b"x" * 1000)
    connection = client._connection
    connection.welcome = msgspec.structs.replace(connection.welcome, max_frame_bytes=len(at_most))
    with pytest.raises(BatchTooLarge, match=f"1 record is over max_frame_bytes={len(at_most)}"):
        client.append_batch(topic, 0, ready(b"x" * 2000))
    assert client.append_batch(topic, 0, at_most).offset == 0


def test_places_that_are_not_there_are_named(client, topic):
    made = client.create_topic(topic)
    with pytest.raises(UnknownPartition):
        client.append_batch(topic, 1, ready(b"x"))
    with pytest.raises(UnknownPartition):
        client.open_producer(topic, 1, "p")
    client.delete_topic(topic)
    for given in ({}, {"id": made.id}):
        with pytest.raises(UnknownTopic):
            client.append_batch(topic, 0, ready(b"x"), **given)


def test_appends_that_are_begun_together_are_appended_in_that_order(url, topic):
    async def run() -> list[Appended]:
        async with aio.connect(url, timeout=60) as client:
            id_ = (await client.create_topic(topic)).id
            begun = [client.append_batch(topic, 0, ready(b"x", sequence=n), id=id_) for n in range(200)]
            return await asyncio.gather(*begun)

    assert [place.offset for place in asyncio.run(run())] == list(range(200))


def test_a_batch_whose_answer_was_lost_is_sent_again_and_there_once(penstock_client, monkeypatch):
    put, lost = LocalChannel.put, []

    def losing(channel: LocalChannel, message: Any, payload: Any) -> bool:
        if isinstance(message, Produced) and not lost:
            lost.append(message)
            channel.break_off()
            return True
        return put(channel, message, payload)

    penstock_client.create_topic("t")
    monkeypatch.setattr(LocalChannel, "put", losing)
    assert penstock_client.append_batch("t", 0, ready(b"a", b"b")).offset == 0
    assert len(lost) == 1
    assert values(penstock_client, "t") == [b"a", b"b"]


def test_a_batch_is_known_after_a_restart(tmp_path):
    with connect(f"file://{tmp_path}/d") as client:
        client.create_topic("t")
        place = client.append_batch("t", 0, ready(b"a"))
    with connect(f"file://{tmp_path}/d") as client:
        assert client.append_batch("t", 0, ready(b"a")) == place
