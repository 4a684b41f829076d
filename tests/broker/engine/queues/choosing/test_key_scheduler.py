"""Groups that look at keys, as requests against the real node."""

from __future__ import annotations

import pytest
from penstock.broker.engine.queues.topic_queues import proposed
from penstock.transport import messages as m
from support.engine import Rig

ACK, NACK, REJECT, RELEASE = 0, 1, 2, 3


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    return rig.topic()


def produce(rig: Rig, topic: bytes, keys: str, **how: object) -> None:
    """One record for each letter, which is its key; a point has none."""
    rig.produce(topic, [key.encode() for key in keys], keys=[None if k == "." else k.encode() for k in keys], **how)


def set_queue(rig: Rig, topic: bytes, **settings: object) -> None:
    answer = rig.ask(m.SetQueue, topic, "g", settings)
    assert isinstance(answer, m.Queues), answer


def offsets(leased: m.Leased) -> list[int]:
    return [offset for first, count, _ in leased.runs for offset in range(first, first + count)]


def wait_for_lease(rig: Rig, topic: bytes, most: int = 10) -> int:
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", most, wait_ms=60_000))
    rig.turn()
    return request


def test_keys_keep_their_order_through_failure_expiry_and_restart(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key", backoff_s=0)
    produce(rig, topic, "aab.a")
    first = rig.lease(topic, most=10)
    assert offsets(first) == [0, 2, 3]
    rig.settle(topic, m.Settle(0, first.token, NACK, [(0, 1)], 5000))
    rig.settle(topic, m.Settle(0, first.token, ACK))
    assert offsets(rig.lease(topic, most=10)) == []
    rig.restart(clean=False)
    assert offsets(rig.lease(topic, most=10)) == []
    rig.pass_time(5)
    again = rig.lease(topic, most=10)
    assert offsets(again) == [0]
    rig.pass_time(31)  # and its lease runs out
    last = rig.lease(topic, most=10)
    assert last.runs == [(0, 1, 3)]
    for expected in (1, 4):
        last = rig.lease(topic, most=10, settles=[m.Settle(0, last.token, ACK)])
        assert offsets(last) == [expected]


def test_an_ack_wakes_the_worker_that_waits_for_the_next_of_its_key(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    produce(rig, topic, "aa")
    first = rig.lease(topic, most=10)
    request = wait_for_lease(rig, topic)
    assert rig.answers(request) == []
    rig.settle(topic, m.Settle(0, first.token, ACK))
    assert offsets(rig.answers(request)[0]) == [1]


def test_a_rate_wakes_a_waiting_worker_when_its_time_has_come_and_not_before(rig: Rig, topic: bytes):
    set_queue(rig, topic, key_rate_per_s=0.5)
    produce(rig, topic, "a")
    assert offsets(rig.lease(topic, most=10)) == [0]
    request = wait_for_lease(rig, topic)
    produce(rig, topic, "a")
    rig.pass_time(1.9, step=0.1)
    assert rig.answers(request) == []
    rig.pass_time(0.2, step=0.1)
    assert offsets(rig.answers(request)[0]) == [1]


def test_a_dead_record_frees_its_key_and_takes_it_back_when_it_is_redriven(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    produce(rig, topic, "aaa")
    first = rig.lease(topic)
    second = rig.lease(topic, settles=[m.Settle(0, first.token, REJECT)])
    assert offsets(second) == [1]
    rig.ask(m.RedriveDead, topic, "g")
    assert offsets(rig.lease(topic)) == []
    third = rig.lease(topic, settles=[m.Settle(0, second.token, ACK)])
    assert offsets(third) == [0]


def test_a_crowd_of_one_tenant_does_not_starve_another(rig: Rig, topic: bytes):
    """10,000 records of one tenant come first; each record of another one waits for one lease at most."""
    set_queue(rig, topic, fair=True, look_ahead=20_000)
    produce(rig, topic, "a" * 10_000)
    assert offsets(rig.lease(topic)) == [0]
    produce(rig, topic, "bbb")
    served = [offsets(rig.lease(topic))[0] for _ in range(6)]
    assert served in ([1, 10_000, 2, 10_001, 3, 10_002], [10_000, 1, 10_001, 2, 10_002, 3])


def test_settings_may_begin_and_cease_to_look_at_keys(rig: Rig, topic: bytes):
    produce(rig, topic, "aabab")
    first = rig.lease(topic, most=1)
    set_queue(rig, topic, order="key")
    assert offsets(rig.lease(topic, most=10)) == [2]  # the key of the lease from before is read
    rig.settle(topic, m.Settle(0, first.token, NACK, [], 1000))
    assert offsets(rig.lease(topic, most=10)) == []
    set_queue(rig, topic, order="none")
    assert sorted(offsets(rig.lease(topic, most=10))) == [1, 3, 4]
    rig.pass_time(1)
    assert offsets(rig.lease(topic, most=10)) == [0]


def test_priorities_and_delays_meet_keys(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    later = rig.now.wall_us + 2_000_000
    produce(rig, topic, "aab", priorities=[0, 9, 0], not_before=[0, 0, later])
    produce(rig, topic, "b")
    first = rig.lease(topic, most=10)
    assert offsets(first) == [1, 3], "the higher priority before its elder, and a delay holds no key"
    rig.pass_time(3)
    assert offsets(rig.lease(topic, most=10)) == []
    rig.settle(topic, m.Settle(0, first.token, ACK))
    assert offsets(rig.lease(topic, most=10)) == [0, 2]


def test_keys_on_cold_pages_keep_the_request_and_not_the_broker_waiting(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    produce(rig, topic, "ab")
    rig.restart()
    rig.port.cold = []
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 10))
    rig.turn()
    assert rig.answers(request) == []
    tokens, rig.port.cold = rig.port.cold, None
    for token in dict.fromkeys(tokens):
        rig.node.warmed(token)
    rig.turn()
    assert offsets(rig.answers(request)[0]) == [0, 1]


def test_pages_that_never_come_end_in_an_empty_answer(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    produce(rig, topic, "ab")
    rig.restart()
    rig.port.cold = []
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 10))
    rig.pass_time(2)
    assert rig.answers(request)[0].runs == []


def test_a_record_that_was_passed_over_can_be_cancelled(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    produce(rig, topic, "aab")
    first = rig.lease(topic, most=10)
    rig.ask(m.CancelTask, topic, "g", 0, 1)
    rig.settle(topic, m.Settle(0, first.token, ACK))
    assert offsets(rig.lease(topic, most=10)) == []


def test_a_lease_of_records_that_are_not_committed_is_no_damage_when_keys_begin_to_matter(rig: Rig, topic: bytes):
    rig.lease(topic)
    rig.store.hold = True
    produce(rig, topic, "ab")
    first = rig.next_request()
    rig.send(m.Lease(first, topic, "g", "w", 1))
    rig.send(m.SetQueue(rig.next_request(), topic, "g", {"order": "key"}))
    rig.turn()
    second = wait_for_lease(rig, topic)
    rig.store.hold = False
    rig.sync()
    assert offsets(rig.answers(first)[0]) == [0]
    assert offsets(rig.answers(second)[0]) == [1]


def test_a_task_that_waits_for_its_key_says_so(rig: Rig, topic: bytes):
    def why(offset: int) -> str:
        return rig.ask(m.AskTask, topic, "g", 0, offset).why

    set_queue(rig, topic, order="key", key_rate_per_s=0.1)
    produce(rig, topic, "aab")
    first = rig.lease(topic, most=10)
    assert why(1) == "its key is busy: record 0 is leased by worker 'w'"
    rig.settle(topic, m.Settle(0, first.token, ACK))
    assert why(1).startswith("the rate of its key lets the next one go at 20")
    rig.pass_time(10)
    assert "next: the coming lease takes it" in why(1)


def test_a_record_that_damage_hides_dies_and_its_neighbours_are_worked_on(rig: Rig, topic: bytes):
    set_queue(rig, topic, order="key")
    for number, key in enumerate([b"a", b"b", b"a"]):
        rig.produce(topic, [b"value-%d" % number], keys=[key])
    path = rig.store.directory(topic, 0)
    (name,) = [name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")]
    data = rig.store.files.contents[name].data
    data[data.index(b"value-1") - 200] ^= 0xFF
    answers = [rig.lease(topic, most=10) for _ in range(4)]
    seen = [offset for answer in answers if isinstance(answer, m.Leased) for offset in offsets(answer)]
    dead = proposed(rig.node._registry.topics.get(topic).readable[0], "g").dead_letters
    assert (seen, list(dead)) == ([0], [1])
    token = next(answer.token for answer in answers if isinstance(answer, m.Leased) and answer.runs)
    assert offsets(rig.lease(topic, settles=[m.Settle(0, token, ACK)])) == [2]
