"""Queue groups as a whole: created, changed, paused, listed and deleted."""

from __future__ import annotations

import pytest
from penstock.transport import messages as m
from penstock.transport.queue_messages import FOREVER_US
from support.engine import START_US, Rig
from support.staging import partition_of

ACK, NACK, REJECT = 0, 1, 2


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records."""
    topic = rig.topic()
    rig.produce(topic, [b"%d" % number for number in range(10)])
    return topic


def test_a_group_that_starts_at_the_end_has_nothing_to_do(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {}, m.LATEST)
    assert rig.lease(topic).runs == []
    rig.produce(topic, [b"new"])
    assert rig.lease(topic).runs == [(10, 1, 1)]


def test_the_first_lease_makes_the_group_on_every_partition_from_where_it_says(rig: Rig):
    topic = rig.topic(partitions=3)
    for partition in range(3):
        rig.produce(topic, [b"old"], partition)
    assert rig.lease(topic, start=m.LATEST).runs == []
    rig.produce(topic, [b"new"], 2)
    leased = rig.lease(topic)
    assert (leased.partition, leased.runs) == (2, [(1, 1, 1)])


def test_settings_hold_for_what_is_decided_later_and_survive(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"lease_s": 5.0})
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 3})
    rig.restart()
    assert rig.lease(topic).lease_ms == 5000
    (entry,) = rig.ask(m.ListQueues, topic).queues
    assert (entry.settings["lease_s"], entry.settings["max_attempts"]) == (5.0, 3)


def test_a_lower_limit_of_attempts_gives_up_what_waits_for_another(rig: Rig, topic: bytes):
    for delay_ms in (0, 60_000):
        leased = rig.lease(topic)
        rig.settle(topic, m.Settle(0, leased.token, NACK, delay_ms=delay_ms, reason="why"))
    assert rig.queue(topic).waiting == 1
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 2})
    assert (rig.queue(topic).dead, rig.queue(topic).waiting) == (1, 0)
    (dead,) = rig.ask(m.ListDead, topic, "g", 0, 0, 9).tasks
    assert (dead.offset, dead.attempt, dead.reason) == (0, 2, "max_attempts was lowered to 2")
    assert [reason for _, _, reason in dead.history] == ["why", "why"]


def test_a_paused_group_leases_nothing_and_goes_on_in_time(rig: Rig, topic: bytes):
    token = rig.lease(topic).token
    rig.ask(m.PauseQueue, topic, "g", START_US + 4_000_000)
    assert rig.settle(topic, m.Settle(0, token, ACK)) == [], "settling goes on"
    waiting = rig.ask_lease(topic)
    rig.pass_time(3.5)
    assert rig.answers(waiting) == []
    assert rig.queue(topic).paused_until_us == START_US + 4_000_000
    rig.pass_time(1)
    assert [each.runs for each in rig.answers(waiting)] == [[(1, 1, 1)]]
    assert rig.queue(topic).paused_until_us == 0


def test_a_group_paused_for_good_goes_on_when_it_is_resumed(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {})
    rig.ask(m.PauseQueue, topic, "g", FOREVER_US)
    rig.restart()
    waiting = rig.ask_lease(topic)
    assert rig.answers(waiting) == []
    rig.ask(m.PauseQueue, topic, "g", 0)
    assert [each.runs for each in rig.answers(waiting)] == [[(0, 1, 1)]]


def test_counts_are_exact_and_every_record_is_counted_once(rig: Rig, topic: bytes):
    first_us = rig.now.wall_us
    rig.pass_time(1)
    rig.produce(topic, [b"a", b"b"])
    leased = rig.lease(topic, most=6)
    rig.settle(
        topic, m.Settle(0, leased.token, ACK, [(0, 1)]), m.Settle(0, leased.token, REJECT, [(1, 1)]),
        m.Settle(0, leased.token, NACK, [(2, 1)], 60_000), m.Settle(0, leased.token, NACK, [(3, 1)], 0),
    )  # fmt: skip
    assert rig.queue(topic) == m.QueuePartition(0, 7, 2, 0, 1, 1, first_us, 0)
    rig.settle(topic, m.Settle(0, leased.token, ACK))
    rest = rig.lease(topic, most=20)
    rig.settle(topic, m.Settle(0, rest.token, ACK))
    assert rig.queue(topic) == m.QueuePartition(0, 0, 0, 0, 1, 1, first_us, 0)
    rig.pass_time(60)
    last = rig.lease(topic)
    rig.settle(topic, m.Settle(0, last.token, ACK))
    assert rig.queue(topic) == m.QueuePartition(0, 0, 0, 0, 0, 1, -1, 0)


def test_a_deleted_group_is_forgotten_and_may_be_made_again(rig: Rig, topic: bytes):
    rig.lease(topic, most=5)
    assert isinstance(rig.ask(m.DeleteQueue, topic, "g"), m.Done)
    assert rig.ask(m.ListQueues, topic).queues == []
    rig.restart()
    assert rig.lease(topic, most=2).runs == [(0, 2, 1)]


def test_a_group_is_not_deleted_while_somebody_waits_for_its_records(rig: Rig):
    topic = rig.topic()
    rig.ask_lease(topic)
    refused = rig.ask(m.DeleteQueue, topic, "g")
    assert (refused.code, "(w)" in refused.message) == ("group_active", True)


def test_a_group_that_is_asked_for_while_it_is_deleted_is_made_again_on_every_partition(rig: Rig):
    topic = rig.topic(partitions=20)
    rig.ask(m.SetQueue, topic, "g", {})
    deletion, asked = rig.next_request(), rig.next_request()
    rig.send(m.DeleteQueue(deletion, topic, "g"))
    rig.turn(1)
    assert not rig.answers(deletion), "some partitions have the group no more, and some still have it"
    rig.send(m.Lease(asked, topic, "g", "w", 1), peer="worker")
    rig.turn(20)
    assert rig.answers(deletion) == [m.Done(deletion)]
    assert rig.lease(topic).runs == []
    rig.produce(topic, [b"x"], 19)
    leased = rig.lease(topic)
    assert (leased.partition, leased.runs) == (19, [(0, 1, 1)])


def test_a_new_partition_has_the_groups_of_its_topic_from_its_first_record_on(rig: Rig):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"lease_s": 7.0}, m.LATEST)
    rig.ask(m.AlterTopic, topic, {}, 2)
    rig.produce(topic, [b"a"], 1)
    leased = rig.lease(topic, start=m.LATEST)
    assert (leased.partition, leased.runs, leased.lease_ms) == (1, [(0, 1, 1)], 7000)


def test_a_name_is_a_stream_group_or_a_queue_group(rig: Rig, topic: bytes):
    rig.join(topic, "stream", "m")
    assert rig.lease(topic, "stream").code == "invalid_request"
    assert rig.ask(m.SetQueue, topic, "stream", {}).code == "invalid_request"
    rig.lease(topic, "g")
    assert rig.join(topic, "g", "m").code == "invalid_request"
    assert rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)]).code == "invalid_request"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ((m.SetQueue, "g", {"lease_s": -1}), "invalid_settings"),
        ((m.SetQueue, "g", {"leese_s": 1}), "invalid_settings"),
        ((m.SetQueue, "a b", {}), "invalid_request"),
        ((m.SetQueue, "h", {}, -7), "invalid_request"),
        ((m.PauseQueue, "unknown", 0), "unknown_group"),
        ((m.PauseQueue, "g", -1), "invalid_request"),
        ((m.DeleteQueue, "unknown"), "unknown_group"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    rig: Rig, topic: bytes, request_: tuple[type, *tuple[object, ...]], code: str
):
    rig.ask(m.SetQueue, topic, "g", {})
    before = rig.ask(m.ListQueues).queues
    type_, *fields = request_
    assert rig.ask(type_, topic, *fields).code == code
    assert rig.ask(m.ListQueues).queues == before


def crowded(rig: Rig) -> tuple[bytes, bytes]:
    """Two topics, of which the first has a group that is not described in one turn."""
    topics = rig.topic("a", partitions=60), rig.topic("b")
    for topic in topics:
        for partition in range(60 if topic is topics[0] else 1):
            rig.produce(topic, [b"x"], partition)
        rig.ask(m.SetQueue, topic, "g", {})
    return topics


def test_a_topic_that_is_deleted_while_its_groups_are_listed_is_unknown_or_left_out_of_all(rig: Rig):
    topic, other = crowded(rig)
    one, all_ = rig.next_request(), rig.next_request()
    rig.send(m.ListQueues(one, topic)), rig.send(m.ListQueues(all_), peer="all")
    rig.turn(1)
    assert not rig.answers(one) + rig.answers(all_)
    rig.ask(m.DeleteTopic, topic, peer="other")
    rig.turn(60)
    (refused,), (listed,) = rig.answers(one), rig.answers(all_)
    assert (refused.code, refused.message) == ("unknown_topic", "topic a was deleted meanwhile")
    assert [(queue.topic, queue.group) for queue in listed.queues] == [(other, "g")]


def test_a_topic_that_is_deleted_while_a_group_that_was_set_is_described_is_unknown(rig: Rig):
    topic, _ = crowded(rig)
    request = rig.next_request()
    rig.send(m.SetQueue(request, topic, "g", {"lease_s": 7.0}))
    rig.turn(20)
    last = partition_of(rig, topic, 59)
    assert last.committed.queues.by_name["g"].settings.lease_s == 7.0
    assert not rig.answers(request)
    rig.ask(m.DeleteTopic, topic, peer="other")
    assert [answer.code for answer in rig.answers(request)] == ["unknown_topic"]
