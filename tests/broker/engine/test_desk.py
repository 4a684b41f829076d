"""The reading desk: what it answers without an office, when it is due, and what becomes of reads that wait."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from penstock.broker.engine.turns.portions import STEPS
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.dead import die, set_queue
from support.engine import Rig


def in_flight(rig: Rig, topic: bytes) -> None:
    """Produce a batch that is in the log and not durable, so that no other office can open."""
    rig.store.hold = True
    rig.produce(topic, [b"x"])


def test_without_an_office_the_desk_answers_what_is_committed():
    rig = Rig()
    topic = rig.topic("t")
    rig.produce(topic, [b"1", b"2", b"3"])
    set_queue(rig, topic)
    die(rig, topic, [1])
    rig.ask(m.SetSchedule, topic, "nightly", "0 3 * * *", "UTC", b"go")
    asked = [
        (m.ListTopics, ["t"]), (m.FindOffsets, topic, m.LATEST), (m.ListSchedules, topic),
        (m.ListDead, topic, "g", 0, 0, 9), (m.AskEnds, [m.Known(topic)]),
        (m.Measure, topic, [m.Span(0, 0, 3)], 1 << 20), (m.Fetch, topic, 0, 0, -1, 1 << 20, 0),
    ]  # fmt: skip
    in_flight(rig, topic)
    led = [rig.ask(*each) for each in asked]
    rig.resign()
    alone = [rig.ask(*each) for each in asked]
    refused = rig.produce(topic, [b"4"])
    assert refused.code == "no_leader"
    assert "nodes of a new cluster have not met (penstock cluster status" in refused.message
    assert [replace(each, request=0) for each in alone] == [replace(each, request=0) for each in led]
    assert [type(each) for each in alone] == [
        m.Topics, m.Offsets, m.Schedules, m.DeadTasks, m.Ends, m.Measured, m.Fetched,
    ]  # fmt: skip
    assert ([each.offset for each in alone[3].tasks], [each.name for each in alone[2].schedules]) == ([1], ["nightly"])


def test_dead_letters_on_cold_pages_are_listed_though_the_lead_was_lost_meanwhile():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"1", b"2"])
    set_queue(rig, topic)
    die(rig, topic, [1])
    in_flight(rig, topic)
    rig.port.cold = []
    request = rig.next_request()
    rig.send(m.ListDead(request, topic, "g", 0, 0, 10))
    (token,), rig.port.cold = rig.port.cold, None
    rig.resign()
    assert rig.answers(request) == []
    rig.node.warmed(token)
    assert [task.offset for task in rig.answers(request)[0].tasks] == [1]


def ask_fetch(rig: Rig, topic: bytes, wait_ms: int, peer: str = "c") -> int:
    request = rig.next_request()
    rig.send(m.Fetch(request, topic, 0, 0, -1, 1 << 20, wait_ms), peer=peer)
    return request


@pytest.mark.parametrize(("fetch_ms", "ends_ms"), [(300, 5000), (5000, 300), (300, None), (None, 300)])
def test_the_desk_is_due_with_the_first_of_its_requests(fetch_ms: int | None, ends_ms: int | None):
    rig = Rig()
    topic = rig.topic()
    if fetch_ms is not None:
        ask_fetch(rig, topic, fetch_ms)
    if ends_ms is not None:
        rig.send(m.AskEnds(rig.next_request(), [m.Known(topic, [0])], ends_ms))
    assert rig.node._desk.deadlines.ring(rig.now.monotonic_s) == pytest.approx(rig.now.monotonic_s + 0.3)


def test_a_connection_that_goes_while_its_reads_are_answered_takes_the_rest_along():
    rig = Rig()
    topic = rig.topic()
    for _ in range(3 * STEPS):
        ask_fetch(rig, topic, 5000, peer="gone")
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"x"])))
    for log in rig.node.flush(rig.now):
        log.sync()
    rig.node.advance(rig.now)
    rig.node.disconnect("gone")
    rig.turn()
    assert [peer for peer, _, _ in rig.port.sent].count("gone") == STEPS
    assert rig.node.stats()["fetch.waiting"] == 0


def test_reads_that_wait_are_refused_once_their_topic_is_deleted():
    rig = Rig()
    topic = rig.topic()
    fetch = ask_fetch(rig, topic, 5000)
    rig.ask(m.DeleteTopic, topic)
    assert [answer.code for answer in rig.answers(fetch)] == ["unknown_topic"]


def test_pages_that_come_while_no_office_is_open_are_for_the_desk():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"1"])
    rig.port.cold = []
    fetch = ask_fetch(rig, topic, 5000)
    (token,) = rig.port.cold
    rig.port.cold = None
    rig.node.resign()
    rig.node.warmed(token)
    assert [answer.next_offset for answer in rig.answers(fetch)] == [1]
