"""Batches of many partitions in one request, as they are stored, through clients of every kind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from penstock import aio
from penstock.broker.errors import InvalidRequest, UnknownPartition, UnknownTopic
from penstock.clients import FetchedBatches, InvalidArgument, connect
from penstock.clients.batches import verbs
from penstock.storage.batch import Batch, encode
from penstock.storage.errors import BadChecksum, OutOfBounds


def append(client: Any, topic: str, partition: int, *values: bytes, sequence: int = 0) -> bytes:
    """A batch that was appended as it is."""
    batch = bytes(encode(values, producer_id=7 + partition, first_sequence=sequence))
    client.append_batch(topic, partition, batch)
    return batch


def values(found: FetchedBatches) -> list[list[bytes]]:
    return [batch.values() for batch in found.batches]


@pytest.fixture
def filled(client, topic):
    """The id of a topic: partition n has n batches of two records."""
    id_ = client.create_topic(topic, partitions=4).id
    for partition in range(4):
        for number in range(partition):
            append(client, topic, partition, b"%d" % number, b"x" * 100, sequence=2 * number)
    return id_


def test_each_partition_comes_from_its_offset_on_with_its_bounds(client, filled):
    found = client.fetch_batches([(filled, 3, 2), (filled, 0, 0), (filled, 1, 1)])
    assert [values(each) for each in found] == [[[b"1", b"x" * 100], [b"2", b"x" * 100]], [], [[b"0", b"x" * 100]]]
    assert [(each.next_offset, each.first, each.end, each.error) for each in found] == [
        (6, 0, 6, None), (0, 0, 0, None), (2, 0, 2, None),
    ]  # fmt: skip
    assert [batch.base_offset for batch in found[0].batches] == [2, 4]


def test_a_batch_comes_as_it_is_stored(client, topic):
    id_ = client.create_topic(topic).id
    sent = append(client, topic, 0, b"a", b"b")
    (found,) = client.fetch_batches([(id_, 0, 0)])
    (batch,) = found.batches
    assert isinstance(batch, Batch)
    assert (batch.producer_id, batch.first_sequence, batch.batch_bytes) == (7, 0, len(sent))
    assert bytes(batch.buffer)[batch.header_bytes :] == sent[batch.header_bytes :]


def test_an_error_stands_with_its_partition_and_the_others_are_answered(client, topic, filled):
    gone = client.create_topic(topic + "-gone").id
    client.delete_topic(topic + "-gone")
    places = [(filled, 9, 0), (filled, 1, 0), (gone, 0, 0), (filled, 2, 99)]
    found = client.fetch_batches(places, wait=60, min_bytes="1MB")
    assert [type(each.error) for each in found] == [UnknownPartition, type(None), UnknownTopic, OutOfBounds]
    assert (found[3].error.offset, found[3].next_offset, found[3].end) == (4, 99, 4)
    assert values(found[1]) == [[b"0", b"x" * 100]]


def test_what_is_full_leaves_the_rest_for_the_next_call(client, filled):
    places = [(filled, 1, 0), (filled, 2, 0), (filled, 3, 0)]
    one = client.fetch_batches(places, max_bytes=1)
    assert [len(each.batches) for each in one] == [1, 0, 0]
    assert [(each.next_offset, each.end) for each in one] == [(2, 2), (0, 4), (0, 6)]
    size = one[0].batches[0].batch_bytes
    three = client.fetch_batches(places, max_bytes=3 * size)
    assert [len(each.batches) for each in three] == [1, 2, 0]
    each = client.fetch_batches(places, partition_max_bytes=1)
    assert [len(found.batches) for found in each] == [1, 1, 1]


def test_all_of_a_topic_is_read_with_small_answers(client, filled):
    offsets, found = dict.fromkeys(range(4), 0), dict[int, list[bytes]]()
    while True:
        order = sorted(offsets, key=lambda partition: len(found.get(partition, ())))
        answer = client.fetch_batches([(filled, number, offsets[number]) for number in order], max_bytes=1)
        if not any(each.batches for each in answer):
            break
        for number, each in zip(order, answer, strict=True):
            offsets[number] = each.next_offset
            found.setdefault(number, []).extend(value for batch in each.batches for value in batch.values())
    assert offsets == {0: 0, 1: 2, 2: 4, 3: 6}
    assert found[3] == [b"0", b"x" * 100, b"1", b"x" * 100, b"2", b"x" * 100]


def test_nothing_there_is_answered_at_once_or_when_the_wait_is_over(client, url, filled):
    if url.startswith("mem"):  # where a test lets time pass
        assert client.fetch_batches([(filled, 0, 0)])[0].batches == []
        return
    for wait in (0, 0.05):
        (found,) = client.fetch_batches([(filled, 0, 0)], wait=wait)
        assert (found.batches, found.next_offset, found.error) == ([], 0, None)
    (found,) = client.fetch_batches([(filled, 1, 0)], wait=0.05, min_bytes="1MB")
    assert len(found.batches) == 1


def test_a_wait_ends_with_the_first_record_of_any_partition(url, topic):
    async def run() -> list[FetchedBatches]:
        async with aio.connect(url, timeout=60) as client:
            id_ = (await client.create_topic(topic, partitions=3)).id
            places = [(id_, partition, 0) for partition in range(3)]
            waiting = asyncio.create_task(client.fetch_batches(places, wait=60))
            await client.ping()
            batch = bytes(encode([b"late"], producer_id=1))
            await client.append_batch(topic, 1, batch)
            return await waiting

    found = asyncio.run(run())
    assert [values(each) for each in found] == [[], [[b"late"]], []]


def test_a_wait_goes_on_until_there_is_enough(url, topic):
    async def run() -> list[FetchedBatches]:
        async with aio.connect(url, timeout=60) as client:
            id_ = (await client.create_topic(topic, partitions=2)).id
            batches = [bytes(encode([b"x" * 100], producer_id=1, first_sequence=n)) for n in range(4)]
            places = [(id_, partition, 0) for partition in range(2)]
            least = 3 * len(batches[0])
            waiting = asyncio.create_task(client.fetch_batches(places, wait=60, min_bytes=least))
            await client.ping()
            for number in range(3):
                assert not waiting.done()
                await client.append_batch(topic, number % 2, encode([b"x" * 100], producer_id=number + 1))
                await client.ping()
            return await waiting

    found = asyncio.run(run())
    assert [len(each.batches) for each in found] == [2, 1]


def test_a_topic_that_is_deleted_ends_the_wait(client, url, topic):
    id_ = client.create_topic(topic).id
    with connect(url, timeout=60) as other:
        deleting = threading.Timer(0.05, lambda: other.delete_topic(topic))
        deleting.start()
        (found,) = client.fetch_batches([(id_, 0, 0)], wait=60)
        deleting.join()
    assert isinstance(found.error, UnknownTopic)


def test_a_column_that_does_not_match_its_checksum_is_an_error_behind_good_batches(penstock_client, monkeypatch):
    id_ = penstock_client.create_topic("t").id
    for number, value in enumerate([b"good", b"damaged", b"behind"]):
        append(penstock_client, "t", 0, value, sequence=number)
    answered = verbs.FetchManyQuestion.answered

    def damaging(question: Any, answer: Any) -> None:
        answered(question, answer)
        question.batches = question.batches.replace(b"damaged", b"DAMAGED")

    monkeypatch.setattr(verbs.FetchManyQuestion, "answered", damaging)
    (found,) = penstock_client.fetch_batches([(id_, 0, 0)])
    assert (values(found), found.next_offset, type(found.error)) == ([[b"good"]], 1, BadChecksum)
    assert found.error.next_offset == 2
    (found,) = penstock_client.fetch_batches([(id_, 0, 1)])
    assert (found.batches, found.next_offset) == ([], 1)
    (found,) = penstock_client.fetch_batches([(id_, 0, 0)], verify=False)
    assert (len(found.batches), found.next_offset, found.error) == (3, 3, None)


def test_what_cannot_be_asked_is_refused(penstock_client):
    id_ = penstock_client.create_topic("t").id
    with pytest.raises(InvalidRequest, match="name each partition once"):
        penstock_client.fetch_batches([(id_, 0, 0), (id_, 0, 1)])
    with pytest.raises(InvalidArgument, match="places: over 4096 entries"):
        penstock_client.fetch_batches([(id_, partition, 0) for partition in range(4097)])
    with pytest.raises(InvalidArgument, match="no id of a topic"):
        penstock_client.fetch_batches([("t", 0, 0)])
    assert penstock_client.fetch_batches([]) == []
