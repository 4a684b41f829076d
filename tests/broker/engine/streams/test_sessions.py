"""Sessions in great numbers, and sessions whose connection has closed."""

from __future__ import annotations

import pytest
from penstock.broker.engine.streams.sessions import CROWD, PORTION
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig

CREDIT = 1 << 20


def crowd(rig: Rig, topic: bytes, count: int, *, peer: str = "crowd", delivery: str = "control") -> list[int]:
    """Sessions that read the whole topic from its end."""
    return [
        rig.join(topic, delivery=delivery, start=m.LATEST, timeout_ms=60_000, peer=peer).session for _ in range(count)
    ]


def delivered(rig: Rig) -> list[tuple[int, int]]:
    """Session and offset of every delivery over a connection."""
    return [(message.session, message.offset) for _, message, _ in rig.port.sent if isinstance(message, m.Deliver)]


def turn(rig: Rig) -> None:
    """One turn of the loop, and no more."""
    for log in rig.node.flush(rig.now):
        log.sync()
    rig.node.advance(rig.now)
    rig.node.tick(rig.now)


def test_nothing_is_read_or_tried_for_sessions_of_a_closed_connection_until_each_is_named_again():
    rig = Rig()
    topic = rig.topic(partitions=2)
    sessions = crowd(rig, topic, 3)
    rig.port.gone.add("crowd")
    rig.node.disconnect("crowd")
    tried: list[m.Message] = []
    reply = rig.port.reply
    rig.port.reply = lambda peer, message, payload=b"": tried.append(message) or reply(peer, message, payload)
    reads = rig.port.reads
    for number in range(4):
        rig.produce(topic, [b"v"], number % 2)
    assert (rig.port.reads, [message for message in tried if isinstance(message, m.Deliver)]) == (reads, [])
    readers = rig.node._office.sessions.readers
    assert not any(readers.of(partition) for partition in rig.node._registry.topics.get(topic).readable)
    rig.node.disconnect("crowd")
    rig.send(m.Ping(rig.next_request(), sessions[1]), peer="new")
    rig.turn()
    found = [message for peer, message, _ in rig.port.sent if isinstance(message, m.Deliver) and peer == "new"]
    assert {(each.session, each.partition, each.next_offset) for each in found} == {
        (sessions[1], 0, 2), (sessions[1], 1, 2),
    }  # fmt: skip
    rig.produce(topic, [b"v"])
    assert delivered(rig)[len(found) :] == [(sessions[1], 2)]


def test_a_session_that_was_named_over_another_connection_stays_when_the_old_one_closes():
    rig = Rig()
    topic = rig.topic()
    (session,) = crowd(rig, topic, 1, peer="old")
    rig.send(m.Ping(rig.next_request(), session), peer="new")
    rig.node.disconnect("old")
    rig.produce(topic, [b"v"])
    assert delivered(rig) == [(session, 0)]
    rig.node.disconnect("new")
    rig.produce(topic, [b"v"])
    assert delivered(rig) == [(session, 0)]


@pytest.mark.parametrize("delivery", ["push", "mapped"])
def test_what_does_not_go_through_the_connection_outlives_it(delivery: str):
    rig = Rig()
    topic = rig.topic()
    (session,) = crowd(rig, topic, 1, delivery=delivery)
    rig.node.disconnect("crowd")
    rig.produce(topic, [b"v"])
    assert rig.port.wakes + [session for session, _, _ in rig.port.delivered] == [session]


def test_a_stray_session_ends_in_time_and_leaves_nothing():
    rig = Rig()
    topic = rig.topic()
    one, other = crowd(rig, topic, 2)
    rig.node.disconnect("crowd")
    rig.ask(m.Leave, one)
    rig.pass_time(61.0)
    sessions = rig.node._office.sessions
    assert (sessions.by_id, sessions._by_peer, sessions._stuck, rig.node._office.agenda.ready) == ({}, {}, {}, {})
    assert isinstance(rig.ask(m.Ping, other), m.Failure)


def test_a_crowd_is_delivered_to_in_portions_and_each_gets_every_record_once():
    rig = Rig()
    topic = rig.topic()
    sessions = crowd(rig, topic, 4 * PORTION)
    request = rig.next_request()
    rig.send(m.Produce(request, topic, 0), bytes(encode([b"v"])))
    turn(rig)
    assert len(rig.answers(request)) == 1
    assert 0 < len(delivered(rig)) <= PORTION, "a session and its chunk count"
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"v"])))
    turns = 1
    while rig.node.tick(rig.now) == 0.0:
        before = len(delivered(rig))
        turn(rig)
        turns += 1
        assert len(delivered(rig)) - before <= PORTION
    assert turns < 40
    for session in sessions:
        offsets = [message.next_offset for _, message, _ in rig.port.sent
                   if isinstance(message, m.Deliver) and message.session == session]  # fmt: skip
        assert offsets in ([1, 2], [2])


def test_of_a_crowd_only_the_mapped_readers_that_sleep_are_woken_and_at_once():
    rig = Rig()
    topic = rig.topic()
    sessions = crowd(rig, topic, 20 * CROWD, delivery="mapped")
    (pushed,) = crowd(rig, topic, 1, delivery="push")
    rig.port.awake = set(sessions[:-2])
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"v"])))
    turn(rig)
    assert rig.port.wakes == sessions[-2:]
    rig.turn()
    assert [session for session, _, _ in rig.port.delivered] == [pushed]


def test_a_reader_of_a_crowd_that_fell_asleep_meanwhile_is_woken_for_what_came_then():
    rig = Rig()
    topic = rig.topic()
    *others, late = crowd(rig, topic, 20 * CROWD, delivery="mapped")
    rig.port.awake = {late}
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"v"])))
    turn(rig)
    assert CROWD <= len(rig.port.wakes) < len(others)
    rig.port.awake = set(others)
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"v"])))
    rig.turn(20)
    assert rig.port.wakes == [*others, late]


def test_a_crowd_is_told_in_portions_and_those_who_left_meanwhile_are_passed_by():
    rig = Rig()
    topic = rig.topic()
    sessions = crowd(rig, topic, 20 * CROWD, delivery="mapped")
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"v"])))
    turn(rig)
    told = len(rig.port.wakes)
    assert CROWD <= told < len(sessions)
    rig.send(m.Leave(rig.next_request(), sessions[-1]))
    rig.turn(20)
    assert rig.port.wakes == sessions[:-1]
    assert not rig.node._office.sessions._telling


def test_a_member_that_waits_for_the_disk_to_be_told_of_its_session_is_not_silent():
    """It has no name to say: its consumer ended for good as the disk, or a majority, was away for 10 s."""
    rig = Rig()
    topic = rig.topic()
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Join(request, topic, "g", "a", "control", m.EARLIEST, [], 10_000, CREDIT, CREDIT))
    rig.pass_time(60)
    assert rig.answers(request) == []
    rig.store.hold = False
    rig.sync()
    (joined,) = rig.answers(request)
    assert isinstance(joined, m.Joined)
    rig.pass_time(9)
    assert rig.ask(m.Ping, joined.session) == m.Done(rig._request)
    rig.pass_time(11)
    assert rig.ask(m.Ping, joined.session).code == "unknown_session"
