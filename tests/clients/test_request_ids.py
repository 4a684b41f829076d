"""The id of a request goes ahead of what verbs ask, with the number of the message behind it, and of nothing else."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import suppress
from typing import Any, cast

import penstock
import pytest
from penstock.clients.connection.request_ids import context_of, current_ids
from penstock.clients.producing.pending import Pending
from penstock.errors import InvalidArgument, UnknownTopic
from penstock.transport.messages import NameRequest
from penstock.transport.naming_messages import REQUEST_IDS_MAX


def watched(client: Any) -> list[Any]:
    """What the client sends from here on."""
    channel, sent = client._driver.connection.channel, []
    send = channel.send

    def watch(message: Any, payload: Any = b"") -> bool:
        sent.append(message)
        return send(message, payload)

    channel.send = watch
    return sent


def named(sent: list[Any]) -> list[tuple[str, list[str]]]:
    """The kinds of the messages that were named, and their ids: each follows its name."""
    found = []
    for number, message in enumerate(sent):
        if isinstance(message, NameRequest):
            assert sent[number + 1].request == message.number
            found.append((type(sent[number + 1]).__name__, message.ids))
    return found


def test_verbs_carry_it_over_every_channel(url):
    with penstock.connect(url) as client:
        sent = watched(client)
        with penstock.request_id("order-17"):
            client.create_topic(f"ids-{id(client)}")
            with pytest.raises(UnknownTopic):
                client.topic("nowhere")
            with client.producer(f"ids-{id(client)}") as producer:
                producer.send(b"one")
                with penstock.request_id("inner"):
                    producer.send_many([b"two", b"three"], partition=0)
        client.topics()
    assert named(sent) == [
        ("CreateTopic", ["order-17"]), ("ListTopics", ["order-17"]), ("ListTopics", ["order-17"]),
        ("Produce", ["order-17"]), ("Produce", ["inner"]),
    ]  # fmt: skip


def test_records_that_are_not_waited_for_carry_none(penstock_client):
    penstock_client.create_topic("t")
    sent = watched(penstock_client)
    with penstock_client.producer("t") as producer, penstock.request_id("order-17"):
        producer.send_nowait(b"one").result()
        producer.post(b"two", on_done=lambda _: None)
        producer.flush()
    assert named(sent[1:]) == []


def test_a_loop_has_one_for_each_task(penstock_broker):
    async def ask(client: Any, name: str) -> None:
        with penstock.request_id(name):
            await asyncio.sleep(0)
            await client.create_topic(name)

    async def main() -> list[Any]:
        async with penstock.aio.connect(penstock_broker.url) as client:
            sent = watched(client)
            await asyncio.gather(*(ask(client, f"task-{number}") for number in range(3)))
            return sent

    sent = asyncio.run(main())
    assert sorted(ids[0] for _, ids in named(sent)) == ["task-0", "task-1", "task-2"]
    names = [(one.ids[0], two.name) for one, two in itertools.pairwise(sent) if hasattr(two, "name")]
    assert all(given == topic for given, topic in names)


def test_another_thread_has_its_own_and_a_block_gives_back_the_one_before():
    seen: list[tuple[str, ...]] = []
    with penstock.request_id("a"):
        with suppress(ValueError), penstock.request_id("b"):
            seen.append(current_ids())
            raise ValueError
        thread = threading.Thread(target=lambda: seen.append(current_ids()))
        thread.start()
        thread.join()
        seen.append(current_ids())
        seen.append(context_of("c").run(current_ids))
    assert [*seen, current_ids()] == [("b",), (), ("a",), ("c",), ()]


@pytest.mark.parametrize("wrong", ["", "a b", "a\n", "\na", "é", "x" * 129, 5, None, b"x"])
def test_what_cannot_be_an_id_is_refused_at_once(wrong):
    with pytest.raises(InvalidArgument, match="1 to 128 visible ASCII characters"):
        penstock.request_id(wrong)
    penstock.request_id("!~" * 64)


def test_a_batch_has_the_ids_of_all_its_records_each_once_and_so_many():
    pending = Pending(cast("Any", None), 0, values=[b"1", b"2"])
    pending.name(())
    assert pending.ids == ()
    for number in (1, 2, 1):
        pending.name((f"id-{number}",))
    assert pending.ids == ("id-1", "id-2")
    assert [part.ids for part in pending.halve()] == [pending.ids, pending.ids]
    for number in range(REQUEST_IDS_MAX + 1):
        pending.name((f"id-{number}",))
    assert len(pending.ids) == REQUEST_IDS_MAX
