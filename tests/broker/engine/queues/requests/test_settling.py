"""Settling and extending, against the real node."""

from __future__ import annotations

from itertools import pairwise

import pytest
from penstock.broker.engine.queues.requests import settling
from penstock.broker.engine.queues.requests.settling import RECALLED
from penstock.broker.engine.queues.topic_queues import proposed
from penstock.transport import messages as m
from support.dead import opened
from support.engine import START_US, Rig

ACK, NACK, REJECT, RELEASE = 0, 1, 2, 3


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records."""
    topic = rig.topic()
    rig.produce(topic, [b"%d" % number for number in range(10)])
    return topic


def codes(refused: list[m.Refusal]) -> list[tuple[int, str]]:
    return [(each.index, each.code) for each in refused]


# -- verbs ------------------------------------------------------------------------------------------


def test_acks_of_ranges_leave_the_rest_in_the_lease(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=10).token
    rig.settle(topic, m.Settle(0, token, ACK, [(0, 2), (5, 1)]))
    assert rig.queue(topic).in_flight == 7
    rig.pass_time(31)
    assert rig.lease(topic, most=10).runs == [(2, 3, 2), (6, 4, 2)]


def test_settling_again_changes_nothing_also_after_a_restart(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=2).token
    for _ in range(2):
        assert rig.settle(topic, m.Settle(0, token, ACK, [(0, 1)])) == []
    assert rig.settle(topic, m.Settle(0, token, NACK, [(0, 1)])) == [], "an acked record stays acked"
    for _ in range(2):
        assert rig.settle(topic, m.Settle(0, token, ACK)) == []
    rig.restart()
    assert rig.settle(topic, m.Settle(0, token, ACK)) == []
    assert rig.queue(topic).ready == 8


def test_settling_again_waits_for_the_commit_of_the_first_time(rig: Rig, topic: bytes):
    token = rig.lease(topic).token
    rig.store.hold = True
    settles = [rig.next_request(), rig.next_request()]
    for request in settles:
        rig.send(m.SettleTasks(request, topic, "g", [m.Settle(0, token, ACK)]))
        rig.turn()
    assert [rig.answers(request) for request in settles] == [[], []]
    rig.store.hold = False
    rig.sync()
    assert [len(rig.answers(request)) for request in settles] == [1, 1]


def test_a_rejected_record_is_dead_with_its_reason(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=2).token
    rig.settle(topic, m.Settle(0, token, REJECT, [(1, 1)], reason="no such airport"))
    rig.pass_time(31)
    assert rig.lease(topic, most=2).runs == [(0, 1, 2), (2, 1, 1)]
    assert rig.queue(topic).dead == 1
    (dead,) = rig.ask(m.ListDead, topic, "g", 0, 0, 9).tasks
    assert (dead.offset, dead.attempt, dead.reason) == (1, 1, "no such airport")


def test_a_released_record_comes_back_at_once_under_the_same_attempt(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=2).token
    rig.settle(topic, m.Settle(0, token, RELEASE))
    assert rig.lease(topic, most=3).runs == [(0, 3, 1)]


def test_back_off_doubles_up_to_its_limit_and_is_shortened_at_random(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"backoff_s": 2.0, "backoff_max_s": 6.0, "jitter": 0.5})
    pauses: list[float] = []
    for attempt in range(1, 5):
        leased = rig.lease(topic)
        assert leased.runs == [(0, 1, attempt)]
        rig.settle(topic, m.Settle(0, leased.token, NACK))
        failed_us = rig.now.wall_us
        retrying = rig.node.logs and proposed(rig.node._registry.topics.get(topic).readable[0], "g").retrying[0]
        pauses.append((retrying.ready_us - failed_us) / 1e6)
        rig.pass_time(7)
    for pause, most in zip(pauses, (2, 4, 6, 6), strict=True):
        assert most / 2 < pause <= most
    assert len({pause / most for pause, most in zip(pauses, (2, 4, 6, 6), strict=True)}) == 4


def test_the_last_attempt_that_fails_makes_a_record_dead(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 2})
    for attempt in (1, 2):
        leased = rig.lease(topic)
        assert leased.runs == [(0, 1, attempt)]
        rig.settle(topic, m.Settle(0, leased.token, NACK, delay_ms=0, reason=f"failure {attempt}"))
    assert rig.lease(topic).runs == [(1, 1, 1)]
    (dead,) = rig.ask(m.ListDead, topic, "g", 0, 0, 9).tasks
    assert [reason for _, _, reason in dead.history] == ["failure 1", "failure 2"]


def test_a_lease_that_ran_out_for_the_last_time_makes_its_records_dead(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 1})
    rig.lease(topic, most=10)
    rig.pass_time(31)
    assert rig.queue(topic).dead == 10
    assert rig.lease(topic).runs == []


# -- refusals ---------------------------------------------------------------------------------------


def test_a_refused_settle_does_not_touch_the_others(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=2).token
    other = rig.lease(topic, "other", most=5).token
    refused = rig.settle(
        topic,
        m.Settle(0, token + 7, ACK), m.Settle(0, token, ACK, [(1, 5)]), m.Settle(0, token, 9),
        m.Settle(0, token, NACK, delay_ms=-2), m.Settle(3, token, ACK), m.Settle(0, token, ACK, [(0, 0)]),
        m.Settle(0, token, ACK, results=[(5, b"x")]), m.Settle(0, token, NACK, reason="x" * 5000),
        m.Settle(0, token, NACK, delay_ms=1 << 50), m.Settle(0, token, ACK, [(0, 1)]),
    )  # fmt: skip
    assert codes(refused) == [
        (0, "unknown_lease"), (1, "unknown_lease"), (2, "invalid_request"), (3, "invalid_request"),
        (4, "unknown_partition"), (5, "unknown_lease"), (6, "unknown_lease"), (7, "invalid_request"),
        (8, "invalid_request"),
    ]  # fmt: skip
    assert all(each.message.count("\n") == 0 and len(each.message) > 20 for each in refused)
    assert rig.queue(topic).in_flight == 1
    assert rig.queue(topic, "other").in_flight == 5
    assert codes(rig.settle(topic, m.Settle(0, other, ACK), group="unknown")) == [(0, "unknown_group")]


def test_a_token_of_another_group_is_not_taken(rig: Rig, topic: bytes):
    rig.lease(topic)
    foreign = rig.lease(topic, "other").token
    assert codes(rig.settle(topic, m.Settle(0, foreign, ACK))) == [(0, "unknown_lease")]
    assert rig.queue(topic).in_flight == rig.queue(topic, "other").in_flight == 1


def test_a_token_from_before_a_group_was_made_again_settles_nothing(rig: Rig, topic: bytes):
    old = rig.lease(topic).token
    assert isinstance(rig.ask(m.DeleteQueue, topic, "g"), m.Done)
    new = rig.lease(topic).token
    assert new != old
    assert codes(rig.settle(topic, m.Settle(0, old, ACK))) == [(0, "lease_lost")]
    rig.ask(m.DeleteQueue, topic, "g")
    rig.restart()
    assert rig.lease(topic).token not in (old, new)


def test_many_ranges_of_a_lease_are_settled_some_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settling, "TOGETHER", 4)
    topic = rig.topic("many")
    rig.produce(topic, [b""] * 100)
    token = rig.lease(topic, most=100).token
    even = range(98, -1, -2)
    settle = m.Settle(0, token, ACK, [(at, 1) for at in even], results=[(at, b"%d" % at) for at in even])
    request, left = rig.next_request(), list[int]()
    rig.send(m.SettleTasks(request, topic, "g", [settle]))
    while not rig.answers(request):
        left.append(proposed(opened(rig, topic), "g").leases.records)
        rig.turn(1)
    assert (left[0], left[-1], max(one - next_ for one, next_ in pairwise(left))) == (100, 50, 4)
    assert rig.answers(request)[0].refused == []
    assert [rig.ask(m.AskTask, topic, "g", 0, at).result for at in (0, 50, 98)] == [b"0", b"50", b"98"]
    assert rig.ask(m.AskTask, topic, "g", 0, 1).state == "leased"


def test_a_part_that_could_not_be_written_fails_the_settle(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settling, "TOGETHER", 4)
    topic = rig.topic("many")
    rig.produce(topic, [b""] * 100)
    token = rig.lease(topic, most=100).token
    rig.refuse_one_append(topic)
    request = rig.next_request()
    rig.send(m.SettleTasks(request, topic, "g", [m.Settle(0, token, ACK, [(at, 1) for at in range(0, 100, 2)])]))
    while not (answers := rig.answers(request)):
        rig.turn(1)
    assert answers[0].code == "storage_full"


def test_a_record_that_is_named_twice_among_many_has_its_result(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settling, "TOGETHER", 2)
    topic = rig.topic("many")
    rig.produce(topic, [b""] * 100)
    token = rig.lease(topic, most=100).token
    ranges, results = [(90, 1), (20, 1), (10, 40), (0, 1)], [(90, b"90"), (45, b"45"), (30, b"30"), (0, b"0")]
    assert rig.settle(topic, m.Settle(0, token, ACK, ranges, results=results)) == []
    assert [rig.ask(m.AskTask, topic, "g", 0, at).result for at in (0, 30, 45, 90)] == [b"0", b"30", b"45", b"90"]
    assert codes(rig.settle(topic, m.Settle(0, token, ACK, [(1, 1), (2, 1), (3, 0)]))) == [(0, "unknown_lease")]


@pytest.mark.parametrize("results", [[], [(1, b"")], [(300, b"")]])
def test_of_many_ranges_none_is_settled_where_one_was_never_leased(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, results: list[tuple[int, bytes]]
):
    monkeypatch.setattr(settling, "TOGETHER", 4)
    topic = rig.topic("many")
    rig.produce(topic, [b""] * 100)
    token = rig.lease(topic, most=50).token
    ranges = [(at, 1) for at in range(2, 50, 2)] + ([] if results else [(60, 1)])
    refused = codes(rig.settle(topic, m.Settle(0, token, ACK, ranges, results=results)))
    assert refused == ([] if results == [(1, b"")] else [(0, "unknown_lease")])
    assert proposed(opened(rig, topic), "g").leases.records == (26 if not refused else 50)


# -- extending --------------------------------------------------------------------------------------


def test_an_extended_lease_lives_as_long_as_it_was_extended(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=10).token
    rig.pass_time(20)
    extended = rig.ask(m.ExtendLeases, topic, "g", [(0, token)])
    assert (extended.until_us, extended.lost) == (START_US + 50_000_000, [])
    rig.pass_time(29)
    assert rig.lease(topic).runs == []
    rig.pass_time(2)
    assert rig.lease(topic, most=10).runs == [(0, 10, 2)]


def test_an_extension_names_what_is_lost_and_what_was_settled_is_not(rig: Rig, topic: bytes):
    lost = rig.lease(topic, lease_ms=1000).token
    kept, settled = rig.lease(topic).token, rig.lease(topic).token
    rig.settle(topic, m.Settle(0, settled, ACK))
    rig.pass_time(2)
    extended = rig.ask(m.ExtendLeases, topic, "g", [(0, lost), (0, kept), (0, settled)], 60_000)
    assert extended.lost == [(0, lost)]
    assert extended.until_us == rig.now.wall_us + 60_000_000


def test_leases_of_a_poisoned_partition_are_lost_as_it_would_refuse_their_outcomes(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=2).token
    opened(rig, topic).log.poison("test")
    assert codes(rig.settle(topic, m.Settle(0, token, ACK))) == [(0, "poisoned")]
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, token)]).lost == [(0, token)]


def test_progress_is_kept_of_what_is_held(rig: Rig, topic: bytes):
    token = rig.lease(topic, most=2).token
    rig.ask(m.ExtendLeases, topic, "g", [(0, token)], 0, [(0, 1, b"0.4"), (0, 9, b"not mine")])
    rig.restart()
    queue = proposed(rig.node._registry.topics.get(topic).readable[0], "g")
    assert queue.progress == {1: b"0.4"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (("unknown", [(0, 1)]), "unknown_group"),
        (("g", [(7, 1)]), "unknown_partition"),
        (("g", [(0, 1)], 13 * 3_600_000), "invalid_request"),
        (("g", [(0, 1)], 0, [(0, 0, b"x" * 5000)]), "invalid_request"),
    ],
)
def test_an_extension_that_cannot_be_is_refused(rig: Rig, topic: bytes, fields: tuple[object, ...], code: str):
    rig.lease(topic)
    assert rig.ask(m.ExtendLeases, topic, *fields).code == code


# -- requests that are recalled ----------------------------------------------------------------------------


def test_a_recalled_request_is_answered_at_once_and_is_given_nothing_more(rig: Rig):
    topic = rig.topic()
    recalled, standing = rig.ask_lease(topic), rig.ask_lease(topic)
    assert rig.ask(m.SettleTasks, topic, "g", [], [recalled, 999]).refused == []
    assert [answer.runs for answer in rig.answers(recalled)] == [[]]
    rig.produce(topic, [b"0", b"1"])
    assert [answer.runs for answer in rig.answers(standing)] == [[(0, 1, 1)]]
    assert rig.queue(topic).ready == 1
    assert len(rig.answers(recalled)) == 1


def test_a_request_is_recalled_by_its_own_connection_only(rig: Rig):
    topic = rig.topic()
    waiting = rig.ask_lease(topic)
    rig.ask(m.SettleTasks, topic, "g", [], [waiting], peer="another")
    assert rig.answers(waiting) == []
    rig.produce(topic, [b"0"])
    assert [answer.runs for answer in rig.answers(waiting)] == [[(0, 1, 1)]]


def test_many_requests_are_recalled_in_portions(rig: Rig):
    topic = rig.topic()
    waiting = [rig.ask_lease(topic) for _ in range(2 * RECALLED + 1)]
    recall = rig.node._office.queues.leasing._settling.recall
    counts = [sum(len(rig.answers(each)) for each in waiting) for _ in recall("c", waiting)]
    assert counts == [RECALLED, 2 * RECALLED]
    assert [[answer.runs for answer in rig.answers(each)] for each in waiting] == [[[]]] * len(waiting)
