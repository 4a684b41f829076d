"""Leases as requests, against the real node."""

from __future__ import annotations

import pytest
from penstock.transport import messages as m
from penstock.transport.queue_messages import NOWHERE
from support.dead import opened
from support.engine import Rig, records

ACK, NACK, REJECT, RELEASE = 0, 1, 2, 3


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 30 records in three batches."""
    topic = rig.topic()
    for first in (0, 10, 20):
        rig.produce(topic, [b"%d" % number for number in range(first, first + 10)])
    return topic


def values(rig: Rig, leased: m.Leased) -> list[bytes]:
    """The values of the records of a lease."""
    payload = next(payload for _, message, payload in rig.port.sent if message is leased)
    return [value for first, count, _ in leased.runs for value in records(payload, first, first + count)]


def test_a_lease_gives_the_first_records_with_their_batches(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=3)
    assert leased.runs == [(0, 3, 1)]
    assert values(rig, leased) == [b"0", b"1", b"2"]
    assert leased.lease_ms == 30_000


def test_a_lease_that_makes_no_group_is_refused_where_there_is_none(rig: Rig, topic: bytes):
    for wait_ms in (0, 5000):
        assert rig.lease(topic, start=NOWHERE, wait_ms=wait_ms).code == "unknown_group"
    assert rig.ask(m.ListQueues, topic).queues == []
    rig.ask(m.SetQueue, topic, "g", {})
    assert rig.lease(topic, most=30, start=NOWHERE).runs == [(0, 30, 1)]
    rig.ask(m.DeleteQueue, topic, "g")
    assert rig.lease(topic, start=NOWHERE).code == "unknown_group"
    assert rig.lease(topic, start=NOWHERE - 1).code == "invalid_request"


def test_asking_for_groups_that_are_not_there_leaves_nothing_behind(rig: Rig, topic: bytes):
    for number in range(3):
        assert rig.lease(topic, f"g{number}", start=NOWHERE).code == "unknown_group"
    assert rig.node._office.queues.lines.at(opened(rig, topic)) == []


def test_a_line_in_which_a_request_waits_is_not_forgotten(rig: Rig):
    topic = rig.topic("u")
    request = rig.ask_lease(topic)
    rig.node._office.queues.lines.forget(rig.node._registry.topics.get(topic), "g")
    rig.produce(topic, [b"late"])
    assert rig.answers(request)[0].runs == [(0, 1, 1)]


def test_a_lease_that_makes_no_group_has_it_on_partitions_that_came_later(rig: Rig):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {}, m.LATEST)
    rig.ask(m.AlterTopic, topic, {}, 2)
    rig.produce(topic, [b"0"], partition=1)
    leased = rig.lease(topic, start=NOWHERE)
    assert (leased.partition, leased.runs) == (1, [(0, 1, 1)])


def test_the_next_lease_goes_on_where_the_last_one_ended(rig: Rig, topic: bytes):
    rig.lease(topic, most=3)
    leased = rig.lease(topic, most=20)
    assert leased.runs == [(3, 20, 1)]
    assert values(rig, leased) == [b"%d" % number for number in range(3, 23)]


def test_a_lease_of_nothing_says_so_at_once(rig: Rig):
    assert rig.lease(rig.topic()).runs == []


def test_acked_records_never_come_back(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=30)
    assert rig.settle(topic, m.Settle(0, leased.token, ACK)) == []
    rig.pass_time(60)
    assert rig.lease(topic).runs == []
    rig.restart()
    assert rig.lease(topic).runs == []


def test_a_nack_brings_a_record_back_under_the_next_attempt(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=2)
    assert rig.settle(topic, m.Settle(0, leased.token, NACK, [(1, 1)], 0, "why")) == []
    again = rig.lease(topic, most=2)
    assert again.runs == [(1, 1, 2), (2, 1, 1)]
    assert values(rig, again) == [b"1", b"2"]


def test_a_lease_that_ran_out_is_given_to_the_next_and_refused_to_the_last(rig: Rig, topic: bytes):
    lost = rig.lease(topic, most=30)
    rig.pass_time(29)
    assert rig.lease(topic).runs == []
    rig.pass_time(2)
    assert rig.lease(topic, most=30).runs == [(0, 30, 2)]
    assert [each.code for each in rig.settle(topic, m.Settle(0, lost.token, ACK))] == ["lease_lost"]


def test_one_request_settles_and_leases(rig: Rig, topic: bytes):
    first = rig.lease(topic, most=10)
    second = rig.lease(topic, most=10, settles=[m.Settle(0, first.token, ACK), m.Settle(0, 1 << 50, ACK)])
    assert second.runs == [(10, 10, 1)]
    assert [(each.index, each.code) for each in second.refused] == [(1, "unknown_lease")]


def test_who_waits_gets_what_comes(rig: Rig):
    topic = rig.topic()
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 5, wait_ms=5000))
    rig.turn()
    assert rig.answers(request) == []
    rig.produce(topic, [b"a", b"b"])
    (leased,) = rig.answers(request)
    assert leased.runs == [(0, 2, 1)]


def test_who_waits_for_nothing_hears_so_in_time(rig: Rig):
    topic = rig.topic()
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 5, wait_ms=2000))
    rig.pass_time(1.5)
    assert rig.answers(request) == []
    rig.pass_time(1)
    assert [each.runs for each in rig.answers(request)] == [[]]


def test_who_waits_gets_a_record_when_it_may_be_tried_again(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    first = rig.lease(topic)
    rig.settle(topic, m.Settle(0, first.token, NACK, delay_ms=3000))
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 5, wait_ms=9000))
    rig.pass_time(2.5)
    assert rig.answers(request) == []
    rig.pass_time(1)
    assert [each.runs for each in rig.answers(request)] == [[(0, 1, 2)]]


def test_a_limit_of_attempts_that_falls_ends_what_waits_and_what_comes_back_untried(rig: Rig, topic: bytes):
    first = rig.lease(topic, most=2)
    rig.settle(topic, m.Settle(0, first.token, NACK, [], 0, "no"))
    second = rig.lease(topic, most=1)
    assert second.runs == [(0, 1, 2)]
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 1})
    rig.settle(topic, m.Settle(0, second.token, RELEASE))
    assert rig.lease(topic, most=2).runs == [(2, 2, 1)]
    answer = rig.ask(m.ListDead, topic, "g", 0, 0, 10)
    reason = "max_attempts was lowered to 1"
    assert [(task.offset, task.attempt, task.reason) for task in answer.tasks] == [(0, 1, reason), (1, 1, reason)]


def test_a_lease_ends_in_its_time_though_the_clock_was_set_back_while_the_node_was_down(rig: Rig, topic: bytes):
    rig.lease(topic, most=1)
    rig.now = rig.now._replace(wall_us=rig.now.wall_us - 1_800_000_000)
    rig.restart()
    rig.pass_time(31)
    assert rig.lease(topic, most=1).runs == [(0, 1, 2)]


def test_a_record_that_a_settle_names_twice_comes_back_once(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=3)
    rig.settle(topic, m.Settle(0, leased.token, NACK, [(1, 1), (2, 1), (1, 2)], 0, "no"))
    assert rig.lease(topic, most=3).runs == [(1, 2, 2), (3, 1, 1)]


def test_a_lease_to_a_waiting_worker_stands_in_the_batch_of_its_record(rig: Rig):
    topic = rig.topic()
    request = rig.ask_lease(topic)
    log = rig.node.logs[1]
    appended, append = [], log.append
    log.append = lambda batches, now_us: appended.append(len(batches)) or append(batches, now_us)
    rig.produce(topic, [b"a"])
    (leased,) = rig.answers(request)
    assert (leased.runs, values(rig, leased)) == ([(0, 1, 1)], [b"a"])
    assert appended == [1]
    rig.restart(clean=False)
    assert rig.queue(topic).in_flight == 1
    assert rig.settle(topic, m.Settle(0, leased.token, ACK)) == []
    assert rig.read(topic) == [b"a"]


def test_what_was_settled_in_the_same_write_stands_in_a_batch_of_its_own(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=30)
    request = rig.ask_lease(topic)
    log = rig.node.logs[1]
    appended, append = [], log.append
    log.append = lambda batches, now_us: appended.append(len(batches)) or append(batches, now_us)
    rig.send(m.SettleTasks(rig.next_request(), topic, "g", [m.Settle(0, leased.token, ACK)]))
    rig.produce(topic, [b"a"])
    assert rig.answers(request)[0].runs == [(30, 1, 1)]
    assert appended == [2]


def test_damage_to_a_record_leaves_the_lease_beside_it_known(rig: Rig):
    topic = rig.topic()
    rig.ask_lease(topic)
    rig.produce(topic, [b"a" * 500])
    rig.produce(topic, [b"b"])
    files, path = rig.store.files, rig.node.logs[1].path
    (name,) = [name for name in files.listdir(path) if name.endswith(".segment")]
    file = files.open(f"{path}/{name}", write=True)
    content = bytes(file.pread(file.size(), 0))
    file.pwritev([b"x"], content.index(b"a" * 500) + 7)
    file.close()
    rig.restart(clean=False)
    assert rig.queue(topic).in_flight == 1
    assert rig.lease(topic).runs == [(1, 1, 1)], "the partition's queues work on"


@pytest.mark.parametrize("what", [m.DeleteQueue, m.DeleteTopic])
def test_what_is_deleted_while_a_request_is_judged_has_nothing_for_it(rig: Rig, what: type):
    topic = rig.topic()
    assert rig.lease(topic).runs == []
    request, deletion = rig.next_request(), rig.next_request()
    settles = [m.Settle(0, number, ACK) for number in range(100)]  # judged in several portions
    rig.send(m.Lease(request, topic, "g", "w", 1, wait_ms=5000, settles=settles))
    rig.send(what(deletion, topic, "g") if what is m.DeleteQueue else what(deletion, topic), peer="other")
    rig.turn(40)
    assert rig.answers(deletion) == [m.Done(deletion)]
    assert len(rig.answers(request)) == (what is m.DeleteTopic), "a group may be created again"
    rig.pass_time(6)
    assert [each.runs for each in rig.answers(request)] == [[]]
