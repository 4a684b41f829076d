"""Clients of a cluster: they find the leader among several addresses, and go on when another node leads."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from penstock.broker.errors import NotLeader, WrongCluster
from penstock.clients import Client, connect
from penstock.clients.channels import zmq as zmq_channel
from penstock.clients.connection import search, seeking
from penstock.clients.errors import TimedOut
from penstock.transport import unix_client
from support.reading import fetched
from support.shard import Shard


@pytest.fixture(params=["unix", "ipc", "tcp"])
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shard]:
    urls = ["tcp://127.0.0.1:0"] * 3
    if request.param != "tcp":
        urls = [f"{request.param}://{tmp_path}/{number}.sock" for number in range(3)]
    with Shard(urls) as made:
        yield made


def test_the_leader_is_found_behind_dead_addresses_and_followers(shard: Shard, dial: Callable[..., Client]) -> None:
    shard.kill(0)
    shard.move(2)
    assert dial(shard.url).create_topic("t").name == "t"


@pytest.mark.parametrize("aloud", [True, False])
def test_producers_and_consumers_go_on_under_the_next_leader(
    shard: Shard, dial: Callable[..., Client], aloud: bool
) -> None:
    client = dial(shard.url)
    client.create_topic("t")
    producer, consumer = client.producer("t"), client.consumer("t", group="g", session_timeout=60)
    futures = [producer.send_nowait(b"%d" % number) for number in range(20)]
    shard.move(1, aloud=aloud)
    futures += [producer.send_nowait(b"%d" % number) for number in range(20, 40)]
    producer.flush()
    shard.move(2, aloud=aloud)
    assert producer.send(b"40") == 40
    assert [future.result() for future in futures] == list(range(40)), "each once, in order"
    found: set[bytes] = set()
    while len(found) < 41:
        found |= {record.value for record in consumer.fetch(wait=5)}
    consumer.commit()
    assert client.group("t", "g").lag == 0


@pytest.mark.parametrize("failed", [False, True])
def test_a_consumer_that_is_closed_as_the_lead_changes_makes_its_last_commit(
    shard: Shard, dial: Callable[..., Client], failed: bool
) -> None:
    client = dial(shard.url)
    client.create_topic("t")
    client.producer("t").send_many([b"%d" % number for number in range(20)])
    consumer = client.consumer("t", group="g", auto_commit=3600, session_timeout=60)
    assert len(fetched(consumer, 20)) == 20
    shard.move(1)
    if failed:
        with suppress(ZeroDivisionError), consumer:
            raise ZeroDivisionError
    consumer.close()
    found = client.group("t", "g")
    assert (found.partitions[0].lag, found.members) == (20 if failed else 0, [])


def test_a_worker_settles_under_the_next_leader_what_it_leased(shard: Shard, dial: Callable[..., Client]) -> None:
    client = dial(shard.url)
    client.create_topic("t")
    client.producer("t").send_many([b"a", b"b"])
    worker = client.worker("t", group="g", lease=60)
    tasks = worker.fetch(2, wait=30)
    shard.move(1)
    assert worker.ack(tasks[:1]) is None
    worker.release(tasks[1:])
    (again,) = worker.fetch(2, wait=30)
    assert (again.value, again.attempt) == (b"b", 1)
    worker.ack([again])


def test_a_dead_leader_is_left_at_once(shard: Shard, dial: Callable[..., Client]) -> None:
    client = dial(shard.url)
    client.create_topic("t")
    producer = client.producer("t")
    assert producer.send(b"0") == 0
    shard.move(-1)
    shard.kill(0)
    shard.move(1)
    assert producer.send(b"1") == 1


def test_a_client_that_has_no_descriptor_left_for_the_next_node_goes_on_when_it_has(
    tmp_path: Path, dial: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb raised OSError, or the client's own thread ended by it."""
    errors = iter([OSError(errno.EMFILE, "too many open files")] * 3)
    front = zmq_channel.Front

    def front_or_none() -> Any:
        for error in errors:
            raise error
        return front()

    with Shard([f"ipc://{tmp_path}/{number}.sock" for number in range(2)]) as shard:
        client = dial(shard.url)
        client.create_topic("t")
        monkeypatch.setattr(zmq_channel, "Front", front_or_none)
        shard.move(1)
        assert [topic.name for topic in client.topics()] == ["t"]
        assert next(errors, None) is None


def test_a_leader_that_is_stopped_is_left_when_a_ping_has_no_answer(
    shard: Shard, dial: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeking, "SILENCE_S", 0.1)
    monkeypatch.setattr(seeking, "PROBE_S", 0.1)
    client = dial(shard.url)
    client.create_topic("t")
    shard.doors[0].stopped = True
    shard.move(2)
    assert [topic.name for topic in client.topics()] == ["t"]


def test_a_leader_that_is_stopped_and_takes_no_more_is_left_too(
    tmp_path: Path, dial: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffers are full of what was sent, so that not even the Ping leaves."""
    monkeypatch.setattr(seeking, "SILENCE_S", 0.1)
    monkeypatch.setattr(seeking, "PROBE_S", 0.1)
    monkeypatch.setattr(unix_client, "UNSENT_BYTES_MAX", 0)
    with Shard([f"unix://{tmp_path}/{number}.sock" for number in range(3)]) as shard:
        client = dial(shard.url)
        client.create_topic("t")
        producer = client.producer("t")
        shard.doors[0].stopped = True
        futures = [producer.send_nowait(bytes(1 << 20)) for _ in range(4)]
        shard.move(2)
        assert [future.result() for future in futures] == list(range(4))


def test_what_every_node_says_is_told_when_none_leads(shard: Shard, dial: Callable[..., Client]) -> None:
    impatient, patient = dial(shard.url, timeout=1.0), dial(shard.url)
    shard.move(-1)
    with pytest.raises(TimedOut, match=r"none of the nodes leads: .*it (follows|does not lead)"):
        impatient.create_topic("t")
    shard.move(1)
    assert patient.create_topic("t").name == "t"


def test_a_client_that_rests_is_told_who_leads(
    shard: Shard, dial: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "REST_MIN_S", 3600.0)
    monkeypatch.setattr(search, "REST_MAX_S", 3600.0)
    client = dial(shard.url, timeout=20.0)
    shard.move(-1)
    shard.elect(2, after=2)  # the leader before says it by its refusal; after the other two have, a client rests
    assert client.create_topic("t").name == "t"


def test_a_client_of_one_follower_is_told_at_once_who_leads(shard: Shard) -> None:
    with connect(shard.doors[0].url) as client:
        client.create_topic("t")
        shard.move(1)
        with pytest.raises(NotLeader) as raised:
            client.topics()
        assert (raised.value.where, raised.value.term, raised.value.retry) == (shard.doors[1].url, 2, True)


def test_a_client_of_one_node_goes_on_when_it_leads_again(shard: Shard) -> None:
    with connect(shard.doors[0].url) as client:
        shard.move(1)
        with pytest.raises(NotLeader):
            client.create_topic("t")
        shard.move(0)
        while not topic_made(client):  # for NEWS_S, the client believes the last news
            pass


def topic_made(client: Client) -> bool:
    with suppress(NotLeader):
        return client.create_topic("t", if_missing=True).name == "t"
    return False


def test_a_node_of_another_cluster_is_not_used(tmp_path: Path) -> None:
    one, other = (Shard([f"unix://{tmp_path}/{name}.sock"]) for name in ("one", "other"))
    with one, other, connect(f"{one.url},{tmp_path}/other.sock", timeout=1.0) as client:
        client.create_topic("t")
        one.kill(0)
        with pytest.raises((TimedOut, WrongCluster), match="another cluster"):
            client.topics()


def test_terms_of_another_cluster_say_nothing_of_ours(tmp_path: Path, dial: Callable[..., Client]) -> None:
    """One address became that of a node elsewhere, which follows in a later term than ours."""
    one = Shard([f"unix://{tmp_path}/{number}.sock" for number in range(2)])
    other = Shard([f"unix://{tmp_path}/other.sock", f"unix://{tmp_path}/another.sock"])
    with one, other:
        for leader in (1, 0, 1):
            other.move(leader)
        client = dial(f"{one.doors[0].url},{tmp_path}/other.sock,{tmp_path}/1.sock")
        client.create_topic("t")
        one.move(-1)
        one.kill(0)
        other.elect(1, after=1)  # it says unasked, too, who leads there
        one.move(1)
        assert [topic.name for topic in client.topics()] == ["t"]


def test_a_cluster_that_was_made_anew_is_used_though_its_terms_are_lower(shard: Shard) -> None:
    with connect(shard.url, timeout=3.0) as client:
        client.create_topic("t")
        for leader in (1, 2):
            shard.move(leader)
            client.topics()  # so it has heard of the term
        shard.term = 0
        shard.move(0)
        assert [topic.name for topic in client.topics()] == ["t"]
