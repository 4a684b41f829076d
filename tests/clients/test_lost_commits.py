"""A commit of our own whose answer was lost, or came late: what it moved is no other member's work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec import structs
from penstock.clients.client import Client
from penstock.clients.consumer import Consumer
from penstock.clients.memory_broker import MemoryBroker
from penstock.transport.messages import Commit, Done, Message


@pytest.fixture
def client() -> Client:
    return MemoryBroker().connect()


@pytest.fixture
def consumer(client: Client) -> Iterator[Consumer]:
    """A member that has 10 records behind it, to be committed by itself, and 5 at hand."""
    client.create_topic("t")
    client.producer("t").send_many([b"%d" % number for number in range(28)])
    with client.consumer("t", group="g", auto_commit=3600) as consumer:
        assert len(consumer.fetch(max_records=10)) == 10
        assert len(consumer.fetch(max_records=5)) == 5
        yield consumer


@pytest.mark.parametrize("answered", [True, False])
def test_a_quiet_commit_whose_answer_was_lost_takes_nothing_back(
    client: Client, consumer: Consumer, answered: bool, losing: Callable[..., None]
) -> None:
    core, driver = consumer._core, consumer._driver
    if not answered:
        losing(Done, 1)
    driver.do(lambda: core.turn(core._commit_at))
    assert client.group("t", "g").partitions[0].cursor == 10
    driver.do(core.life.rejoin)
    assert consumer.fetch(max_records=1, wait=20)[0].offset == 15
    consumer.commit()


@pytest.mark.parametrize("lost_first", [False, True])
def test_a_commit_that_is_answered_behind_a_seek_is_known_for_our_own(
    consumer: Consumer, lost_first: bool, losing: Callable[..., None]
) -> None:
    core, driver = consumer._core, consumer._driver
    losing(Done, 1)
    driver.do(lambda: core.turn(core._commit_at))
    commit = core._committing
    assert commit is not None
    consumer.seek(4)
    for step in [core.life.lose, lambda: commit.answered(Done(0))][:: 1 if lost_first else -1]:
        driver.do(step)
    driver.do(core.life.rejoin)
    assert consumer.fetch(max_records=1, wait=20)[0].offset == 4
    consumer.commit()


def test_a_consumer_that_closes_commits_all_where_only_the_commit_before_the_last_was_made(
    client: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, losing: Callable[..., None]
) -> None:
    """As where a leader is killed: the answer to the one is lost with it, and the other as a whole."""
    core, driver = consumer._core, consumer._driver
    losing(Done, 1)
    driver.do(lambda: core.turn(core._commit_at))
    assert client.group("t", "g").partitions[0].cursor == 10
    channel, send, commits = core.connection.channel, core.connection.channel.send, list[Commit]()

    def to_an_ended_session(message: Message, payload: bytes = b"") -> bool:
        if isinstance(message, Commit) and not commits:
            commits.append(message)
            message = structs.replace(message, session=message.session + 1000)
        return send(message, payload)

    monkeypatch.setattr(channel, "send", to_an_ended_session)
    consumer.close()
    assert [position.offset for position in commits[0].positions] == [15]
    assert client.group("t", "g").partitions[0].cursor == 15
