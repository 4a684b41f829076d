"""Barriers as clients list and delete them."""

from __future__ import annotations

import asyncio
from typing import Any

import penstock
import pytest
from penstock import Callback, GroupTask
from penstock.errors import InvalidArgument, UnknownBarrier, UnknownGroup, UnknownTopic


@pytest.fixture
def client(penstock_client: Any) -> Any:
    penstock_client.create_topic("t", partitions=3)
    penstock_client.create_topic("then", partitions=3)
    penstock_client.set_queue("t", "g")
    return penstock_client


def send(client: penstock.Client) -> str:
    """Send a group; returns the id of its barrier."""
    before = {each.id for each in client.barriers()}
    client.send_group([GroupTask("t", "g", b"v")], then=Callback("then"))
    (made,) = {each.id for each in client.barriers()} - before
    return made


def test_a_deleted_callback_never_comes_and_its_tasks_go_on(client: penstock.Client):
    gone, stays = send(client), send(client)
    client.delete_barrier("then", gone)
    assert [each.id for each in client.barriers()] == [stays]
    with client.worker("t", group="g") as worker:
        for _ in range(2):
            worker.fetch(1, wait=60)[0].ack()
    with client.consumer("then", start="earliest") as consumer:
        assert len(consumer.fetch(wait=60)) == 1
        assert consumer.fetch(wait=0) == []
    assert client.stats()["barriers.deleted"] == 1


def test_a_callback_that_is_not_there_is_not_deleted(client: penstock.Client):
    id_ = send(client)
    client.delete_barrier("then", id_)
    with pytest.raises(UnknownBarrier, match=id_):
        client.delete_barrier("then", id_)
    with pytest.raises(UnknownBarrier, match="topic t "):
        client.delete_barrier("t", id_)
    with pytest.raises(UnknownTopic):
        client.delete_barrier("other", id_)


@pytest.mark.parametrize("id_", ["", "x" * 32, "0" * 31, "0" * 33, "A" * 32, "é" * 32])
def test_what_is_no_id_of_a_callback_is_refused(client: penstock.Client, id_: str):
    with pytest.raises(InvalidArgument, match="32 hexadecimal digits"):
        client.delete_barrier("then", id_)


def test_nothing_is_sent_where_a_queue_is_missing(client: penstock.Client):
    client.create_topic("bare")
    good = GroupTask("t", "g", b"v")
    with pytest.raises(UnknownGroup, match="topic bare has no queue group 'g'"):
        client.send_group([good, GroupTask("bare", "g", b"v"), good], then=Callback("then"))
    with pytest.raises(UnknownGroup, match="topic t has no queue group 'h'"):
        client.send_group([good, GroupTask("t", "h", b"v"), good], then=Callback("then"))
    with pytest.raises(UnknownTopic):
        client.send_group([good, GroupTask("nosuch", "g", b"v")], then=Callback("then"))
    assert client.barriers() == []
    assert client.topic("t").records == client.topic("bare").records == 0


def test_on_an_event_loop(penstock_broker: Any):
    async def main() -> None:
        async with await penstock.aio.connect(penstock_broker.url) as client:
            await client.create_topic("t")
            await client.set_queue("t", "g")
            await client.send_group([GroupTask("t", "g", b"v")], then=Callback("t"))
            (found,) = await client.barriers()
            await client.delete_barrier("t", found.id)
            assert await client.barriers() == []

    asyncio.run(main())
