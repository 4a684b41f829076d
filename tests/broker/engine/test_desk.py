"""What a node answers without an office."""

from __future__ import annotations

from msgspec.structs import replace
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
    assert rig.produce(topic, [b"4"]).code == "no_leader"
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
