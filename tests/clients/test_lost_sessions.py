"""A member of a group whose session ended by its silence, and which comes back: at its own place if no other was
given its partitions, else at the cursors of the group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec import structs
from penstock.broker.errors import Fenced, UnknownSession, UnknownTopic
from penstock.clients import AssignmentChange, Committed
from penstock.clients.memory_broker import MemoryBroker
from penstock.storage.errors import StorageFull
from penstock.transport.messages import Done, Failure
from support.reading import fetched

SILENCE_S = 11.0


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_partitions_that_went_to_another_member_are_read_from_the_cursor(several: bool, commits: bool) -> None:
    """Also when no member commits meanwhile: the application was told that they are taken, and dropped its work."""
    broker, told = MemoryBroker(), list[AssignmentChange]()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"%d" % number for number in range(28)])
    consumer = mine.consumer(["t"] if several else "t", group="g", member="c1", on_assignment=told.append)
    assert len(consumer.fetch(max_records=10)) == 10
    consumer.commit()
    assert len(consumer.fetch()) == 18
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert second.fetch()[0].offset == 10
        if commits:
            with pytest.raises(Fenced, match="is read again"):
                consumer.commit()
        while len(told) < 2:  # until it has joined again
            assert consumer.fetch(wait=0.1) == []
    found = consumer.fetch(wait=20)
    assert found[0].offset == 10
    assert [(each.given, each.taken) for each in told] == [([0], []), ([], [0]), ([0], [])]
    consumer.close()


def test_a_member_that_comes_back_to_its_partitions_goes_on_where_it_was() -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.create_topic("t")
    client.producer("t").send_many([b"%d" % number for number in range(28)])
    with client.consumer("t", group="g", member="c1") as consumer:
        assert len(consumer.fetch(max_records=10)) == 10
        consumer.commit()
        assert len(consumer.fetch(max_records=5)) == 5
        broker.advance(SILENCE_S)
        assert consumer.fetch(wait=20)[0].offset == 15


@pytest.mark.parametrize("to", [3, 25])
@pytest.mark.parametrize("several", [False, True])
def test_a_seek_outlives_a_lost_session(several: bool, to: int) -> None:
    """Before the cursor, or behind it: a program that seeks to the offset of its database commits nothing."""
    broker = MemoryBroker()
    client = broker.connect()
    client.create_topic("t")
    client.producer("t").send_many([b"%d" % number for number in range(28)])
    with client.consumer(["t"] if several else "t", group="g", member="c1") as consumer:
        assert len(consumer.fetch(max_records=10)) == 10
        consumer.commit()
        consumer.seek(to)
        assert [record.offset for record in consumer.fetch(max_records=2)] == [to, to + 1]
        for _ in range(2):  # also over the next loss
            broker.advance(SILENCE_S)
            assert client.ping() > 0
        found = consumer.fetch(max_records=1, wait=20)
        assert [record.offset for record in found] == [to + 2]
        assert client.group("t", "g").partitions[0].cursor == 10
        consumer.commit()
        assert client.group("t", "g").partitions[0].cursor == to + 3


@pytest.mark.parametrize("several", [False, True])
def test_what_is_read_and_how_far_is_known_while_a_session_is_lost(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program keeps its position, finds its notes, and ends where nothing is left to read."""
    broker = MemoryBroker()
    client = broker.connect()
    client.create_topic("t", partitions=2)
    for partition in range(2):
        client.producer("t").send_many([b"x"] * 10, partition=partition)
    consumer = client.consumer(["t"] if several else "t", group="g")
    core = consumer._core.cores["t"] if several else consumer._core

    def of(found: Any) -> Any:
        return found["t"] if several else found

    assert len(fetched(consumer, 20)) == 20
    consumer.commit(note="all")
    consumer.seek(4, partition=1)
    find_topic = core.connection.find_topic

    def lost_meanwhile(*asked: Any) -> Any:
        core.life.lose()
        return find_topic(*asked)

    with monkeypatch.context() as losing:
        losing.setattr(core.connection, "find_topic", lost_meanwhile)
        assert of(consumer.lags()) == {0: 0, 1: 6}
        assert core.session is None
        assert (of(consumer.position), of(consumer.assignment)) == ({0: 10, 1: 4}, [0, 1])
        assert of(consumer.committed()) == {0: Committed(10, "all"), 1: Committed(10, "all")}
        client._driver.do(core.life.rejoin)
        assert consumer.lag() == 6
    client._driver.do(core.life.rejoin)
    assert len(fetched(consumer, 6)) == 6
    consumer.close()
    assert of(consumer.position) == {}


def test_a_partition_of_another_member_is_not_read_while_a_session_is_lost() -> None:
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t", partitions=2)
    for partition in range(2):
        mine.producer("t").send_many([b"x"] * 10, partition=partition)
    consumer = mine.consumer("t", group="g", member="c1")
    assert len(fetched(consumer, 20)) == 20
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        while len(consumer.assignment) != 1 or len(second.assignment) != 1:
            consumer.fetch(wait=0.1)
            second.fetch(wait=0.1)
        mine._driver.do(consumer._core.life.lose)
        assert set(consumer.assignment).isdisjoint(second.assignment)
    mine.delete_topic("t")
    mine._driver.do(consumer._core.life.rejoin)
    with pytest.raises(UnknownTopic):
        consumer.fetch(wait=20)
    assert consumer.position == {}
    consumer.close()


def test_a_place_before_the_cursor_that_was_removed_meanwhile_is_left_for_the_first_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = MemoryBroker()
    client, other = broker.connect(), broker.connect()
    client.create_topic("t")
    client.producer("t").send_many([b"x"] * 10)
    client.producer("t").send_many([b"x"] * 10)
    with client.consumer("t", group="g") as consumer:
        assert len(fetched(consumer, 20)) == 20
        consumer.commit()
        consumer.seek(3)
        broker.advance(SILENCE_S)
        other.trim("t", 0, before=6)
        assert client.ping() > 0
        assert consumer.fetch(wait=20)[0].offset == 6
    assert "partition 0 of topic t goes on elsewhere than at 3" in caplog.text


def test_a_group_that_was_reset_to_an_earlier_commit_of_ours_is_read_from_there() -> None:
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"x"] * 28)
    with mine.consumer("t", group="g") as consumer:
        for _ in range(2):
            assert len(consumer.fetch(max_records=10, wait=20)) == 10
            consumer.commit()
        broker.advance(SILENCE_S)
        other.reset_group("t", "g", {0: 10})
        assert mine.ping() > 0
        assert consumer.fetch(wait=20)[0].offset == 10


@pytest.mark.parametrize("positions", [None, {0: 28}])
def test_a_commit_of_what_another_member_read_meanwhile_is_fenced_once(positions: dict[int, int] | None) -> None:
    """Also where the partition has come back before it: what the application keeps for it is of the past."""
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"%d" % number for number in range(28)])
    consumer = mine.consumer("t", group="g", member="c1")
    assert len(consumer.fetch(wait=20)) == 28
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert len(second.fetch(max_records=5, wait=20)) == 5
        second.commit()
    assert consumer.fetch(max_records=2, wait=20)[0].offset == 5
    with pytest.raises(Fenced, match=r"partitions \[0\] .* is read again"):
        consumer.commit(positions, note="28 records")
    assert consumer.committed()[0] == Committed(5, "")
    consumer.commit(positions)
    assert mine.group("t", "g").partitions[0].cursor == (7 if positions is None else 28)
    consumer.close()


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("positions", [None, {0: 5}])
def test_a_commit_behind_a_seek_is_fenced_where_another_member_has_read_on(
    positions: dict[int, int] | None, count: int
) -> None:
    """Also before the cursor of the group, where a commit would take back what the other one did."""
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"%d" % number for number in range(28)])
    consumer = mine.consumer("t", group="g", member="c1")
    assert len(consumer.fetch(max_records=10, wait=20)) == 10
    consumer.commit()
    consumer.seek(3)
    assert count == 0 or len(consumer.fetch(max_records=count, wait=20)) == count
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert second.fetch(max_records=5, wait=20)[0].offset == 10
        second.commit()
    assert mine.ping() > 0
    with pytest.raises(Fenced, match=r"partitions \[0\] .* is read again"):
        consumer.commit(positions)
    assert consumer.committed()[0].offset == 15
    assert consumer.fetch(max_records=1, wait=20)[0].offset == 15
    consumer.commit()
    assert mine.group("t", "g").partitions[0].cursor == 16
    consumer.close()


def test_a_commit_behind_a_seek_is_fenced_while_another_member_has_the_partition() -> None:
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"x"] * 28)
    consumer = mine.consumer("t", group="g", member="c1")
    assert len(consumer.fetch(max_records=10, wait=20)) == 10
    consumer.commit()
    consumer.seek(3)
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert second.fetch(max_records=5, wait=20)[0].offset == 10
        assert mine.ping() > 0
        with pytest.raises(Fenced, match=r"partitions \[0\] .* is read again"):
            consumer.commit()
        consumer.commit()
    consumer.close()


@pytest.mark.parametrize("to", [3, 25])
def test_a_consumer_that_closes_in_no_session_commits_the_place_of_a_seek(to: int) -> None:
    """As in its session: what lies between it and the cursor is read again."""
    broker = MemoryBroker()
    client = broker.connect()
    client.create_topic("t")
    client.producer("t").send_many([b"%d" % number for number in range(28)])
    with client.consumer("t", group="g", auto_commit=3600) as consumer:
        assert len(consumer.fetch(max_records=10)) == 10
        consumer.commit()
        consumer.seek(to)
        assert len(consumer.fetch(max_records=2)) == 2
        consumer._driver.do(consumer._core.life.rejoin)
        assert consumer._core.session is None
    assert client.group("t", "g").partitions[0].cursor == to + 2


def test_a_commit_is_fenced_where_another_member_has_read_just_as_far() -> None:
    """Nothing is read again, but it was done twice."""
    broker, told = MemoryBroker(), list[AssignmentChange]()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"x"] * 28)
    consumer = mine.consumer("t", group="g", member="c1", on_assignment=told.append)
    assert len(fetched(consumer, 28)) == 28
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert len(fetched(second, 28)) == 28
        second.commit()
    assert mine.ping() > 0
    with pytest.raises(Fenced, match=r"partitions \[0\]"):
        consumer.commit()
    assert consumer.fetch(wait=0) == []
    assert told[-1] == AssignmentChange("t", [0], [])
    assert len(told) > 1
    consumer.commit()
    consumer.close()


@pytest.mark.parametrize("read", [0, 5])
def test_a_commit_is_not_fenced_where_all_was_committed_before_another_member_came(
    monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    broker, told = MemoryBroker(), list[AssignmentChange]()
    mine, other = broker.connect(), broker.connect()
    monkeypatch.setattr(mine._driver, "need_pump", lambda: None)  # it hears of both as it says so here
    mine.create_topic("t")
    mine.producer("t").send_many([b"x"] * 28)
    with mine.consumer("t", group="g", member="c1", on_assignment=told.append) as consumer:
        assert len(fetched(consumer, 10)) == 10
        consumer.commit()
        broker.advance(SILENCE_S)
        with other.consumer("t", group="g", member="c2") as second:
            assert len(second.fetch(max_records=read, wait=20)) == read
            second.commit()
            while consumer._core.session is None or consumer._core.session.partitions:
                assert mine.ping() > 0
        assert mine.ping() > 0
        consumer.commit()
        assert consumer.fetch(max_records=1, wait=20)[0].offset == 10 + read
        assert told == [AssignmentChange("t", [0], [])] * (2 if read else 1)


@pytest.mark.parametrize("seeks", [False, True])
def test_a_commit_is_not_fenced_where_the_cursor_was_at_the_place_or_behind_it(seeks: bool) -> None:
    """A seek to the cursor, and a commit ahead of what was handed out, leave nothing to commit."""
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"x"] * 28)
    with mine.consumer("t", group="g", member="c1") as consumer:
        assert len(consumer.fetch(max_records=10, wait=20)) == 10
        consumer.commit(None if seeks else {0: 12})
        if seeks:
            consumer.seek(10)
        broker.advance(SILENCE_S)
        with other.consumer("t", group="g", member="c2") as second:
            assert len(second.fetch(max_records=5, wait=20)) == 5
            second.commit()
        assert mine.ping() > 0
        consumer.commit()
        assert consumer.fetch(max_records=1, wait=20)[0].offset == (15 if seeks else 17)


@pytest.mark.parametrize(
    "refusal",
    [
        Failure(0, StorageFull.code, "no room", True, after_ms=20),
        Failure(0, UnknownSession.code, "it is over"),
        Failure(0, Fenced.code, "another owns it"),
    ],
)
def test_a_place_before_the_cursor_is_kept_where_the_broker_cannot_go_back_to_it_now(
    refusal: Failure, losing: Callable[..., None]
) -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.create_topic("t")
    client.producer("t").send_many([b"x"] * 28)
    with client.consumer("t", group="g") as consumer:
        assert len(fetched(consumer, 28)) == 28
        consumer.commit()
        consumer.seek(3)
        losing(Done, 1, instead=lambda answer: structs.replace(refusal, request=answer.request))
        client._driver.do(consumer._core.life.rejoin)
        assert consumer.fetch(max_records=1, wait=20)[0].offset == 3


def test_an_application_is_told_of_a_partition_that_was_read_on_meanwhile_and_came_back() -> None:
    broker, told = MemoryBroker(), list[AssignmentChange]()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"%d" % number for number in range(28)])
    consumer = mine.consumer("t", group="g", member="c1", on_assignment=told.append)
    assert len(consumer.fetch(wait=20)) == 28
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert len(second.fetch(max_records=5, wait=20)) == 5
        second.commit()
    assert mine.ping() > 0
    assert consumer.fetch(max_records=2, wait=20)[0].offset == 5
    assert told[-1] == AssignmentChange("t", [0], [])
    assert len(told) > 1
    consumer.commit()
    consumer.close()


def test_a_consumer_that_closes_commits_what_is_left_where_a_partition_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last commit is refused whole where it names a partition that the broker gave away unheard."""
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    monkeypatch.setattr(mine._driver, "need_pump", lambda: None)  # it hears nothing before it closes
    mine.create_topic("t", partitions=2)
    for partition in range(2):
        mine.producer("t").send_many([b"x"] * 10, partition=partition)
    consumer = mine.consumer("t", group="g", auto_commit=3600, session_timeout=300)
    assert len(fetched(consumer, 20)) == 20
    second = other.consumer("t", group="g", session_timeout=300)
    broker.advance(SILENCE_S)
    assert len(fetched(second, 10)) == 10
    (taken,) = second.assignment
    consumer.close()
    cursors = {each.partition: each.cursor for each in other.group("t", "g").partitions}
    assert cursors[1 - taken] == 10
    second.close()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(("first", "count"), [(0, 10), (1, 10), (0, 4), (1, 4)])
def test_a_partition_that_was_taken_from_an_application_at_work_and_came_back_is_another_s_meanwhile(
    monkeypatch: pytest.MonkeyPatch, commits: bool, first: int, count: int
) -> None:
    """Its session lives on all the time."""
    broker = MemoryBroker()
    mine, other = broker.connect(), broker.connect()
    monkeypatch.setattr(mine._driver, "need_pump", lambda: None)  # it hears of both at once
    mine.create_topic("t", partitions=2)
    for partition in range(2):
        mine.producer("t").send_many([b"x"] * 10, partition=partition)
    consumer = mine.consumer("t", group="g", session_timeout=300)
    consumer.pause(1 - first)
    given = Counter(record.partition for record in consumer.fetch(count, wait=20))
    consumer.resume(1 - first)
    records = iter(consumer)
    given += Counter(next(records).partition for _ in range(3))  # it works on the last of them
    with other.consumer("t", group="g", session_timeout=300) as second:
        broker.advance(SILENCE_S)
        assert len(second.fetch(max_records=2, wait=20)) == 2
        (taken,) = second.assignment
        if commits:
            second.commit()
    assert mine.ping() > 0
    expected = 2 if commits else 0
    assert consumer.position[taken] == expected
    left = 20 - expected - given[1 - taken]
    offsets = [record.offset for record in fetched(consumer, left) if record.partition == taken]
    assert offsets == list(range(expected, 10))
    with pytest.raises(Fenced, match="is read again") if given[taken] else nullcontext():
        consumer.commit()
    consumer.commit()
    assert mine.group("t", "g").lag == 0
    consumer.close()
