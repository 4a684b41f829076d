"""Settling records by their offsets, under whichever leases they are."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.requests import settling
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.engine import Rig

ACK, NACK, REJECT, RELEASE = Verb


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records on each of two partitions, and a group that retries at once."""
    topic = rig.topic(partitions=2)
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 0, "jitter": 0})
    for partition in range(2):
        rig.produce(topic, [b"%d" % number for number in range(10)], partition)
    return topic


def settle(rig: Rig, topic: bytes, verb: int, *places: tuple[int, int], **how: Any) -> int:
    answer = rig.ask(lambda request: m.SettleRecords(request, topic, "g", verb, list(places), **how))
    assert isinstance(answer, m.Counted), answer
    return answer.count


def state(rig: Rig, topic: bytes, offset: int, partition: int = 0) -> m.TaskState:
    return rig.ask(m.AskTask, topic, "g", partition, offset)


# -- what is counted ----------------------------------------------------------------------------------


def test_leased_records_of_several_leases_and_partitions_are_settled_and_counted_once(rig: Rig, topic: bytes):
    for partition, most in ((0, 2), (0, 3), (1, 4)):
        rig.lease(topic, most=most, partition=partition)
    places = [(0, 4), (0, 1), (0, 1), (1, 0), (1, 3), (0, 5), (1, 9), (0, 10**15)]
    assert settle(rig, topic, ACK, *places) == 4
    assert settle(rig, topic, ACK, *places) == 0
    assert [state(rig, topic, offset).state for offset in (0, 1, 2, 4, 5)] == [
        "leased", "completed", "leased", "completed", "pending",
    ]  # fmt: skip
    rig.restart(clean=False)
    assert (rig.queue(topic).in_flight, rig.queue(topic, partition=1).in_flight) == (3, 2)


def test_naming_nothing_settles_nothing(rig: Rig, topic: bytes):
    rig.lease(topic, most=3)
    assert settle(rig, topic, ACK) == 0
    assert rig.queue(topic).in_flight == 3


def test_ranges_name_records_as_offsets_do(rig: Rig, topic: bytes):
    for partition, most in ((0, 2), (0, 3), (1, 4)):
        rig.lease(topic, most=most, partition=partition)
    ranges = [(0, 3, 10**15), (0, 1, 3), (1, 2, 1), (1, 9, 2**63 - 1), (0, 0, 0)]
    assert settle(rig, topic, ACK, (1, 0), (0, 2), ranges=ranges) == 6
    assert settle(rig, topic, ACK, (1, 0), (0, 2), ranges=ranges) == 0
    found = [state(rig, topic, offset, partition).state for partition in range(2) for offset in range(5)]
    done, leased, untouched = "completed", "leased", "pending"
    assert found == [leased, done, done, done, done, done, leased, done, leased, untouched]


def test_who_asks_is_told_which_records_were_leased_each_once(rig: Rig, topic: bytes):
    rig.lease(topic, most=3, partition=0)
    rig.lease(topic, most=2, partition=0)
    rig.lease(topic, most=2, partition=1)
    assert settle(rig, topic, ACK, (0, 1)) == 1
    ranges = [(0, 0, 5), (0, 2, 9), (1, 1, 7)]
    answer = rig.ask(lambda request: m.SettleRecords(request, topic, "g", ACK, [(0, 0)], ranges=ranges, tells=True))
    told = [(number, first + more) for number, first, count in answer.ranges for more in range(count)]
    assert (answer.count, sorted(told)) == (5, [(0, 0), (0, 2), (0, 3), (0, 4), (1, 1)])
    again = rig.ask(lambda request: m.SettleRecords(request, topic, "g", ACK, [], ranges=ranges, tells=True))
    assert (again.count, again.ranges) == (0, [])
    untold = rig.ask(lambda request: m.SettleRecords(request, topic, "g", ACK, [(1, 0)]))
    assert (untold.count, untold.ranges) == (1, [])


def test_records_of_ranges_have_results(rig: Rig, topic: bytes):
    rig.lease(topic, most=3)
    assert settle(rig, topic, ACK, ranges=[(0, 0, 2), (0, 1, 9)], results=[(0, 1, b"one"), (1, 1, b"other")]) == 3
    assert [state(rig, topic, offset).result for offset in (0, 1, 2)] == [None, b"one", None]


@pytest.mark.parametrize(("verb", "steps"), [(ACK, 4), (NACK, 25)])
def test_a_range_is_settled_in_portions_which_are_larger_where_that_is_cheap(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, verb: int, steps: int
):
    monkeypatch.setattr(settling, "TOGETHER", 10)
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 0, "jitter": 0})
    rig.produce(topic, [b""] * 300)
    rig.lease(topic, most=300)
    proposed = spied(rig, topic, monkeypatch)
    assert settle(rig, topic, verb, ranges=[(0, 7, 250)]) == 250
    assert len(proposed) == steps
    assert rig.queue(topic).in_flight == 50


def spied(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is proposed to the topic's only partition from now on."""
    partition, proposed = rig.node._registry.topics.get(topic).partition(0), list[Any]()
    propose = partition.propose
    monkeypatch.setattr(partition, "propose", lambda effect: (proposed.append(effect), propose(effect)))
    return proposed


@pytest.mark.parametrize("leases", [1, 100])
def test_many_are_settled_in_portions_by_few_effects(rig: Rig, monkeypatch: pytest.MonkeyPatch, leases: int):
    monkeypatch.setattr(settling, "TOGETHER", 40)
    topic = rig.topic()
    rig.produce(topic, [b""] * 300)
    for _ in range(leases):
        rig.lease(topic, most=300 // leases)
    proposed = spied(rig, topic, monkeypatch)
    assert settle(rig, topic, ACK, *((0, offset) for offset in reversed(range(290)))) == 290
    assert len(proposed) == (8 if leases == 1 else 97)
    assert rig.queue(topic).in_flight == 10


# -- outcomes -----------------------------------------------------------------------------------------


def test_acks_have_the_results_of_their_records(rig: Rig, topic: bytes):
    rig.lease(topic, most=3)
    results = [(0, 1, b"one"), (0, 2, b""), (0, 7, b"not leased"), (1, 1, b"not named")]
    assert settle(rig, topic, ACK, (0, 0), (0, 1), (0, 2), (0, 7), results=results) == 3
    found = [state(rig, topic, offset) for offset in (0, 1, 2)]
    assert [(each.state, each.attempt, each.result) for each in found] == [
        ("completed", 0, None), ("completed", 1, b"one"), ("completed", 1, b""),
    ]  # fmt: skip
    assert state(rig, topic, 7).state == "pending"


def test_nacks_count_an_attempt_and_releases_do_not_and_rejects_are_final(rig: Rig, topic: bytes):
    rig.lease(topic, most=4, worker="ann")
    assert settle(rig, topic, NACK, (0, 0), delay_ms=60_000, reason="slow") == 1
    assert settle(rig, topic, RELEASE, (0, 1)) == 1
    assert settle(rig, topic, REJECT, (0, 2), reason="bad") == 1
    nacked, dead = state(rig, topic, 0), state(rig, topic, 2)
    assert (nacked.state, nacked.attempt, nacked.reason) == ("waiting", 1, "slow")
    assert (dead.state, dead.reason, dead.history[0][1]) == ("dead", "bad", "ann")
    assert rig.lease(topic, partition=0).runs == [(1, 1, 1)]
    rig.pass_time(61)
    assert rig.lease(topic, most=2, partition=0).runs == [(0, 2, 2)], "the other one because its lease ran out"


def test_a_record_goes_to_a_waiting_worker_as_soon_as_it_is_released(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"a"])
    rig.lease(topic)
    request = rig.ask_lease(topic)
    assert settle(rig, topic, RELEASE, (0, 0)) == 1
    assert [each.runs for each in rig.answers(request)] == [[(0, 1, 1)]]


def test_a_cancelled_record_that_is_released_is_cancelled(rig: Rig, topic: bytes):
    rig.lease(topic, lease_ms=3_600_000)
    rig.ask(m.CancelTask, topic, "g", 0, 0)
    assert settle(rig, topic, RELEASE, (0, 0)) == 1
    assert state(rig, topic, 0).state == "cancelled"


# -- the worker of the lease --------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "codes"), [(ACK, []), (NACK, ["lease_lost"]), (RELEASE, ["lease_lost"])])
def test_a_worker_finds_its_lease_lost_unless_its_records_were_acked(
    rig: Rig, topic: bytes, verb: int, codes: list[str]
):
    leased = rig.lease(topic, most=2, partition=0)
    settle(rig, topic, verb, (0, 0))
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)]).lost == [], "it still holds the other one"
    settle(rig, topic, verb, (0, 1))
    extended = rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)])
    assert extended.lost == [(0, leased.token)] * len(codes)
    assert [each.code for each in rig.settle(topic, m.Settle(0, leased.token, ACK))] == codes


def test_a_lease_without_an_end_is_freed(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"lease_s": None})
    rig.lease(topic, worker="dead", partition=0)
    rig.pass_time(1000, step=10)
    assert settle(rig, topic, RELEASE, (0, 0)) == 1
    assert rig.lease(topic, partition=0).runs == [(0, 1, 1)]


# -- durability ---------------------------------------------------------------------------------------


def test_the_count_waits_for_the_commit_also_of_what_was_settled_before(rig: Rig, topic: bytes):
    rig.lease(topic, most=2, partition=0)
    rig.store.hold = True
    requests = [rig.next_request(), rig.next_request()]
    for request in requests:
        rig.send(m.SettleRecords(request, topic, "g", ACK, [(0, 0)]))
        rig.turn()
        assert rig.answers(request) == []
    rig.store.hold = False
    rig.sync()
    assert [rig.answers(request)[0].count for request in requests] == [1, 0]


def test_a_portion_that_could_not_be_written_is_a_failure(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settling, "TOGETHER", 1)
    rig.lease(topic, most=10, partition=0)
    rig.refuse_one_append(topic)
    request = rig.next_request()
    rig.send(m.SettleRecords(request, topic, "g", RELEASE, [], ranges=[(0, 0, 10)]))
    while not (answers := rig.answers(request)):
        rig.turn(1)
    assert answers[0].code == "storage_full"


def test_a_failed_write_is_a_failure_and_the_leases_still_end(rig: Rig, topic: bytes):
    rig.lease(topic, most=2, partition=0)
    request = rig.next_request()
    rig.send(m.SettleRecords(request, topic, "g", RELEASE, [(0, 0)]))
    rig.node._registry.topics.get(topic).partition(0).log.poison("test")
    rig.turn()
    assert [each.code for each in rig.answers(request)] == ["poisoned"]


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (("h", ACK, [(0, 0)]), "unknown_group"),
        (("g", ACK, [(0, 0), (2, 0)]), "unknown_partition"),
        (("g", 4, [(0, 0)]), "invalid_request"),
        (("g", NACK, [(0, 0)], -2), "invalid_request"),
        (("g", REJECT, [(0, 0)], -1, "x" * 4097), "invalid_request"),
        (("g", ACK, [(0, 0)], -1, "", [(0, 0, b"x" * 1_000_001)]), "invalid_request"),
        (("g", NACK, [(0, 0)], -1, "", [(0, 0, b"x")]), "invalid_request"),
        (("g", ACK, [(0, 0)], -1, "", [(2, 0, b"x")]), "unknown_partition"),
        (("g", ACK, [(0, 0)], -1, "", [], [(2, 0, 1)]), "unknown_partition"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(rig: Rig, topic: bytes, fields: tuple[Any, ...], code: str):
    rig.lease(topic, most=2, partition=0)
    assert rig.ask(m.SettleRecords, topic, *fields).code == code
    assert rig.queue(topic).in_flight == 2


def test_a_topic_that_was_created_again_under_its_name_is_another_one(rig: Rig, topic: bytes):
    rig.lease(topic, most=2, partition=0)
    rig.ask(m.DeleteTopic, topic)
    again = rig.topic(partitions=2)
    rig.produce(again, [b"other"])
    rig.lease(again, partition=0)
    assert rig.ask(m.SettleRecords, topic, "g", ACK, [(0, 0)]).code == "unknown_topic"
    assert rig.queue(again).in_flight == 1


@pytest.mark.parametrize("partition", [0, 1])
def test_a_partition_that_cannot_be_written_refuses_all(rig: Rig, topic: bytes, partition: int):
    rig.lease(topic, partition=0)
    rig.node._registry.topics.get(topic).partition(partition).history.damaged = True
    assert rig.ask(m.SettleRecords, topic, "g", ACK, [(0, 0), (1, 0)]).code == "unavailable"
    assert rig.queue(topic).in_flight == 1


@pytest.mark.parametrize("held", [1, 10, 64])
def test_records_of_leases_in_turn_are_settled_in_any_order(
    rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch, held: int
):
    monkeypatch.setattr(settling, "HELD", held)
    for worker in "abababab":
        rig.lease(topic, worker=worker, partition=0)
    assert settle(rig, topic, ACK, *((0, offset) for offset in (7, 0, 1, 9, 3, 2, 7, 5))) == 6
    assert [state(rig, topic, offset).state for offset in range(10)] == [
        "completed" if offset in (7, 0, 1, 3, 2, 5) else "leased" if offset < 8 else "pending" for offset in range(10)
    ]
