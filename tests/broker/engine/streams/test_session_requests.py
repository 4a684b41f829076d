"""Joining many partitions: in portions, told of once, and nothing stays of a session that ended meanwhile."""

from __future__ import annotations

from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.streams.coordinator import CLAIMS
from penstock.broker.engine.streams.session_requests import GIVEN, LOOKS
from penstock.broker.engine.turns.portions import STEPS
from penstock.storage.errors import Poisoned
from penstock.transport import messages as m
from support.engine import Rig

MANY = 4 * LOOKS * STEPS


def asked(rig: Rig, topic: bytes, positions: list[tuple[int, int]] | None = None) -> int:
    """A session of its own that begins to join. Returns the request."""
    request = rig.next_request()
    rig.send(m.Join(request, topic, "", "", "control", m.EARLIEST, positions or [], 10_000, 1 << 20, 1 << 20))
    return request


def readable(rig: Rig, topic: bytes) -> list[Partition]:
    return list(rig.node._registry.topics.get(topic).readable)


def reading(rig: Rig, topic: bytes) -> int:
    """How many partitions of a topic have a reader."""
    return sum(bool(rig.node._office.sessions.readers.of(partition)) for partition in readable(rig, topic))


def begun(rig: Rig, topic: bytes) -> int:
    """Let a session join until it is given partitions. Returns the request."""
    request = asked(rig, topic)
    while not reading(rig, topic):
        assert not rig.answers(request)
        rig.turn(1)
    return request


def test_a_session_of_its_own_is_given_partitions_in_portions_and_told_once_of_all():
    rig = Rig()
    topic = rig.topic(partitions=MANY)
    request, found = asked(rig, topic), list[int]()
    while not rig.answers(request):
        found.append(reading(rig, topic))
        rig.turn(1)
    steps = [after - before for before, after in zip([0, *found], [*found, MANY], strict=True)]
    assert max(steps) <= GIVEN * STEPS
    (joined,) = rig.answers(request)
    assert [each.partition for each in joined.assignments] == list(range(MANY))
    rig.produce(topic, [b"v"], MANY - 1)
    assert [each.partition for each in rig.told(joined.session)[1:]] == [MANY - 1]


def test_one_whose_topic_is_deleted_while_it_joins_is_told_once_and_leaves_no_reader():
    rig = Rig()
    topic = rig.topic(partitions=MANY)
    partitions = readable(rig, topic)
    request = begun(rig, topic)
    rig.send(m.DeleteTopic(rig.next_request(), topic), peer="other")
    rig.turn(MANY)
    (failure,) = rig.answers(request)
    assert isinstance(failure, m.Failure)
    assert failure.code == "unknown_topic"
    assert not any(rig.node._office.sessions.readers.of(partition) for partition in partitions)


def test_one_whose_connection_closes_while_it_joins_reads_nothing_until_it_is_named_again():
    rig = Rig()
    topic = rig.topic(partitions=MANY)
    request = begun(rig, topic)
    rig.node.disconnect("c")
    rig.turn(MANY)
    assert reading(rig, topic) == 0
    (joined,) = rig.answers(request)
    rig.send(m.Ping(rig.next_request(), joined.session), peer="new")
    assert reading(rig, topic) == MANY


def test_partitions_that_come_while_it_joins_are_given_to_it_too():
    rig = Rig()
    topic = rig.topic(partitions=MANY)
    request = begun(rig, topic)
    rig.send(m.AlterTopic(rig.next_request(), topic, {}, MANY + 1), peer="other")
    rig.turn(MANY)
    (joined,) = rig.answers(request)
    given = [*joined.assignments, *(each for told in rig.told(joined.session)[1:] for each in told.given)]
    assert sorted(each.partition for each in given) == list(range(MANY + 1))


def test_positions_are_looked_at_in_portions():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"v"] * 3)
    request = asked(rig, topic, [(0, 2), *((number, 0) for number in range(1, MANY))])
    rig.turn()
    (failure,) = rig.answers(request)
    assert failure.code == "unknown_partition"
    joined = rig.join(topic, delivery="control", positions=[(0, 1), (0, 2)])
    assert [(each.partition, each.offset) for each in joined.assignments] == [(0, 2)]


def test_partitions_that_take_no_writes_keep_no_member_of_a_group_from_the_others(monkeypatch):
    """A disk that fails poisons many at once. The first that cannot be claimed were all that was ever tried."""
    rig, healthy, broken = Rig(), Partition.set_owner, 2 * CLAIMS + 1
    topic = rig.topic(partitions=4 * CLAIMS)

    def set_owner(partition: Partition, *how):
        if partition.number < broken:
            raise Poisoned("its disk has failed")
        return healthy(partition, *how)

    monkeypatch.setattr(Partition, "set_owner", set_owner)
    request = rig.next_request()
    rig.send(m.Join(request, topic, "g", "a", "control", m.EARLIEST, [], 10_000, 1 << 20, 1 << 20))
    rig.turn(20)
    (joined,) = rig.answers(request)
    assert sorted(rig.assigned(joined)) == list(range(broken, 4 * CLAIMS))
    assert rig.node.tick(rig.now) > 0.0, "it rests until it tries again"
    monkeypatch.undo()
    rig.pass_time(1)
    assert sorted(rig.assigned(joined)) == list(range(4 * CLAIMS))
