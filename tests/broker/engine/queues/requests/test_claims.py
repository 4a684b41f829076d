"""Claims: records that other workers hold change their worker."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.requests import claims
from penstock.broker.engine.tables import effects
from penstock.storage.batch import batches
from penstock.transport import messages as m
from penstock.transport.queue_messages import FOREVER_US
from support.engine import START_US, Rig

ACK, NACK, REJECT, RELEASE = range(4)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic of 10 records, and a group whose leases have no end and that retries at once."""
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"lease_s": None, "max_attempts": None, "backoff_s": 0, "jitter": 0})
    rig.produce(topic, [b"%d" % number for number in range(10)])
    return topic


def claim(rig: Rig, topic: bytes, worker: str = "bob", most: int = 100, **how: Any) -> m.Leased:
    answer = rig.ask(lambda request: m.Claim(request, topic, "g", worker, 0, max_records=most, **how))
    assert isinstance(answer, m.Leased), answer
    return answer


def values(rig: Rig) -> list[bytes]:
    """Those in the second frame of the last answer."""
    return [value for batch in batches(rig.port.sent[-1][2]) for value in batch.values()]


def state(rig: Rig, topic: bytes, offset: int) -> m.TaskState:
    return rig.ask(m.AskTask, topic, "g", 0, offset)


def held(rig: Rig, topic: bytes) -> dict[int, tuple[str, int]]:
    """Worker and attempt of each leased record."""
    runs = rig.ask(m.ListPending, topic, "g", 0, 100).runs
    return {run.offset + number: (run.worker, run.attempt) for run in runs for number in range(run.count)}


# -- of another worker --------------------------------------------------------------------------------


def test_named_records_go_to_the_worker_that_claims_them(rig: Rig, topic: bytes):
    first = rig.lease(topic, most=4, worker="ann")
    rig.pass_time(5)
    given = claim(rig, topic, offsets=[3, 1, 1, 8])
    assert given.runs == [(1, 1, 2), (3, 1, 2)]
    assert values(rig) == [b"1", b"3"]
    assert (given.until_us, given.next_offset, given.gone, given.refused) == (FOREVER_US, -1, [], [])
    assert given.token > first.token
    assert held(rig, topic) == {0: ("ann", 1), 1: ("bob", 2), 2: ("ann", 1), 3: ("bob", 2)}
    assert state(rig, topic, 1).given_us == START_US + 5_000_000
    assert rig.settle(topic, m.Settle(0, given.token, ACK)) == []
    assert [state(rig, topic, offset).state for offset in range(4)] == ["leased", "completed", "leased", "completed"]


def test_the_worker_of_before_finds_its_lease_lost_once_it_holds_nothing(rig: Rig, topic: bytes):
    first = rig.lease(topic, most=2, worker="ann")
    claim(rig, topic, offsets=[0])
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, first.token)]).lost == [], "it still holds the other one"
    assert rig.settle(topic, m.Settle(0, first.token, ACK, [(0, 1)])) == [], "without effect"
    assert held(rig, topic) == {0: ("bob", 2), 1: ("ann", 1)}
    second = claim(rig, topic, "cid")
    assert second.runs == [(0, 1, 3), (1, 1, 2)]
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, first.token)]).lost == [(0, first.token)]
    assert [each.code for each in rig.settle(topic, m.Settle(0, first.token, ACK))] == ["lease_lost"]
    assert held(rig, topic) == {0: ("cid", 3), 1: ("cid", 2)}


def test_a_look_claims_what_is_idle_of_one_worker_in_a_range_page_by_page(rig: Rig, topic: bytes):
    rig.lease(topic, most=4, worker="ann")
    rig.pass_time(5)
    rig.lease(topic, most=4, worker="bob")
    assert claim(rig, topic, "cid", min_idle_ms=5001).runs == []
    first = claim(rig, topic, "cid", 3, min_idle_ms=5000)
    assert (first.runs, first.next_offset) == ([(0, 3, 2)], 3)
    second = claim(rig, topic, "cid", 3, min_idle_ms=5000, offset=3)
    assert (second.runs, second.next_offset) == ([(3, 1, 2)], -1)
    assert claim(rig, topic, "cid", min_idle_ms=5000).runs == [], "they are idle from now on"
    assert claim(rig, topic, "cid", holder="bob", offset=5, end=7).runs == [(5, 2, 2)]
    assert claim(rig, topic, "cid", holder="dan").runs == []
    assert claim(rig, topic, "cid", holder="", offsets=[4]).runs == []
    assert claim(rig, topic, "cid", holder="bob", offsets=[4, 5]).runs == [(4, 1, 2)]
    assert claim(rig, topic, "eve", min_idle_ms=1, offsets=[4]).runs == []


def test_a_worker_reads_again_what_it_holds_without_counting_an_attempt(rig: Rig, topic: bytes):
    rig.lease(topic, most=3, worker="ann")
    rig.lease(topic, most=3, worker="bob")
    rig.restart(clean=False)
    again = claim(rig, topic, "bob", holder="bob", offset=4, attempt=0)
    assert again.runs == [(4, 2, 1)]
    assert values(rig) == [b"4", b"5"]
    assert rig.settle(topic, m.Settle(0, again.token, ACK)) == []
    assert claim(rig, topic, "bob", holder="bob", attempt=0).runs == [(3, 1, 1)]


@pytest.mark.parametrize(
    ("given_us", "expected_us"),
    [
        (0, START_US + 5_000_000), (-2_000_000, START_US + 3_000_000), (START_US + 7, START_US + 7),
        (START_US * 2, START_US + 5_000_000), (-START_US * 2, 1), (1, 1),
    ],
)  # fmt: skip
def test_the_time_that_counts_as_that_of_the_lease_can_be_set(rig: Rig, topic: bytes, given_us: int, expected_us: int):
    rig.lease(topic, most=1, worker="ann")
    rig.pass_time(5)
    claim(rig, topic, given_us=given_us)
    for clean in (True, False):
        assert state(rig, topic, 0).given_us == expected_us
        rig.restart(clean=clean)


@pytest.mark.parametrize(("attempt", "expected"), [(-1, 2), (0, 1), (1, 1), (7, 7), (1_000_000, 1_000_000)])
def test_the_attempt_rises_stays_or_is_set(rig: Rig, topic: bytes, attempt: int, expected: int):
    rig.lease(topic, most=1, worker="ann")
    assert claim(rig, topic, attempt=attempt).runs == [(0, 1, expected)]
    assert held(rig, topic) == {0: ("bob", expected)}


def test_a_lease_of_its_own_length_ends_and_counts(rig: Rig, topic: bytes):
    rig.lease(topic, most=1, worker="ann")
    assert claim(rig, topic, lease_ms=2000).until_us == START_US + 2_000_000
    rig.pass_time(3)
    assert rig.lease(topic).runs == [(0, 1, 3)]
    assert state(rig, topic, 0).history == [(START_US + 2_000_000, "bob", "the lease ran out")]


def test_only_ids_are_claimed_without_reading(rig: Rig, topic: bytes):
    rig.lease(topic, most=3, worker="ann")
    rig.port.cold = []
    assert claim(rig, topic, max_bytes=0, attempt=0).runs == [(0, 3, 1)]
    assert rig.port.sent[-1][2] == b""
    assert rig.port.cold == []


def test_a_claim_stops_where_the_answer_is_full(rig: Rig, topic: bytes):
    rig.lease(topic, most=5, worker="ann")
    first = claim(rig, topic, max_bytes=2)
    assert (first.runs, first.next_offset) == ([(0, 2, 2)], 2)
    assert values(rig) == [b"0", b"1"]
    assert claim(rig, topic, offsets=[2, 4], max_bytes=1).next_offset == 4
    assert held(rig, topic)[4] == ("ann", 1)


def test_a_claim_of_many_goes_page_by_page(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"x"] * 300)
    rig.lease(topic, most=250, worker="ann")
    pages = [claim(rig, topic, most=1000)]
    while pages[-1].next_offset >= 0:
        pages.append(claim(rig, topic, most=1000, offset=pages[-1].next_offset))
    assert [page.runs for page in pages] == [[(0, 100, 2)], [(100, 100, 2)], [(200, 50, 2)]]


def test_records_are_read_before_they_are_claimed(rig: Rig, topic: bytes):
    """While the disk is awaited they stay where they are; what was settled meanwhile is not claimed."""
    lease = rig.lease(topic, most=3, worker="ann")
    rig.port.cold = []
    request = rig.next_request()
    rig.send(m.Claim(request, topic, "g", "bob", 0, 10))
    rig.turn()
    (token,) = rig.port.cold
    rig.port.cold = None
    assert set(held(rig, topic).values()) == {("ann", 1)}
    rig.settle(topic, m.Settle(0, lease.token, ACK, [(1, 1)]))
    rig.node.warmed(token)
    rig.turn()
    assert [each.runs for each in rig.answers(request)] == [[(0, 1, 2), (2, 1, 2)]]
    assert held(rig, topic) == {0: ("bob", 2), 2: ("bob", 2)}


def test_a_group_that_goes_while_records_are_read_is_a_failure(rig: Rig, topic: bytes):
    rig.lease(topic, most=3, worker="ann")
    rig.port.cold = []
    request = rig.next_request()
    rig.send(m.Claim(request, topic, "g", "bob", 0, 10))
    rig.turn()
    (token,) = rig.port.cold
    rig.port.cold = None
    rig.ask(m.DeleteQueue, topic, "g")
    rig.node.warmed(token)
    rig.turn()
    assert [each.code for each in rig.answers(request)] == ["unknown_group"]


def test_a_claim_is_answered_when_it_is_committed(rig: Rig, topic: bytes):
    rig.lease(topic, most=1, worker="ann")
    rig.store.hold = True
    requests = [rig.next_request(), rig.next_request()]
    for request in requests:
        rig.send(m.Claim(request, topic, "g", "bob", 0, 10, holder="ann"))
        rig.turn()
        assert rig.answers(request) == []
    rig.store.hold = False
    rig.sync()
    assert [rig.answers(request)[0].runs for request in requests] == [[(0, 1, 2)], []]


def test_a_failed_write_leaves_the_records_where_they_were(rig: Rig, topic: bytes):
    rig.lease(topic, most=2, worker="ann")
    request = rig.next_request()
    rig.send(m.Claim(request, topic, "g", "bob", 0, 10))
    rig.node._registry.topics.get(topic).partition(0).log.poison("test")
    rig.turn()
    assert [each.code for each in rig.answers(request)] == ["poisoned"]
    rig.restart(clean=False)


# -- what is not claimed ------------------------------------------------------------------------------


def test_a_record_whose_attempts_are_used_up_is_dead_lettered_instead(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 2})
    rig.lease(topic, most=2, worker="ann")
    assert claim(rig, topic, "bob", offsets=[0]).runs == [(0, 1, 2)]
    assert claim(rig, topic, "cid").runs == [(1, 1, 2)]
    dead = state(rig, topic, 0)
    assert (dead.state, dead.attempt, dead.reason) == ("dead", 2, claims_reason())
    assert claim(rig, topic, "bob", attempt=0).runs == [(1, 1, 2)], "no further attempt"
    assert claim(rig, topic, "bob", attempt=1).runs == [(1, 1, 1)]


def claims_reason() -> str:
    return "it was claimed after its last attempt"


def test_settled_dead_and_cancelled_records_stay_so_by_force_too(rig: Rig, topic: bytes):
    lease = rig.lease(topic, most=5, worker="ann")
    rig.settle(topic, m.Settle(0, lease.token, ACK, [(0, 1)]), m.Settle(0, lease.token, REJECT, [(1, 1)]))
    rig.ask(m.CancelTask, topic, "g", 0, 2)
    rig.ask(m.CancelTask, topic, "g", 0, 7)
    given = claim(rig, topic, offsets=[0, 1, 2, 3, 7, 50], force=True)
    assert given.runs == [(3, 1, 2)]
    assert state(rig, topic, 2).cancelling
    assert held(rig, topic) == {2: ("ann", 1), 3: ("bob", 2), 4: ("ann", 1)}


def test_by_force_what_is_not_leased_is(rig: Rig, topic: bytes):
    lease = rig.lease(topic, most=3, worker="ann")
    rig.settle(topic, m.Settle(0, lease.token, NACK, [(1, 1)], 60_000, "slow"))
    assert claim(rig, topic, offsets=[1, 5]).runs == []
    assert claim(rig, topic, offsets=[1, 5, 6, 8], force=True).runs == [(1, 1, 2), (5, 2, 1), (8, 1, 1)]
    assert claim(rig, topic, offsets=[3], force=True).runs == [(3, 1, 1)], "it was passed over"
    for clean in (False, True):
        assert rig.queue(topic).ready == 3
        rig.restart(clean=clean)
    assert [rig.lease(topic).runs for _ in range(3)] == [[(4, 1, 1)], [(7, 1, 1)], [(9, 1, 1)]]
    assert state(rig, topic, 1).history[0][2] == "slow"


def test_force_waits_for_the_end_of_a_pause_but_a_claim_of_leased_records_does_not(rig: Rig, topic: bytes):
    rig.lease(topic, most=1, worker="ann")
    rig.ask(m.PauseQueue, topic, "g", FOREVER_US)
    assert claim(rig, topic, offsets=[0, 1], force=True).runs == [(0, 1, 2)]
    rig.ask(m.PauseQueue, topic, "g", 0)
    assert claim(rig, topic, offsets=[0, 1], force=True).runs == [(0, 1, 3), (1, 1, 1)]


@pytest.mark.parametrize(("settings", "most"), [({"look_ahead": 5}, 5), ({}, 1000)])
def test_force_looks_no_further_ahead_than_the_group(rig: Rig, settings: dict[str, Any], most: int):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", settings)
    rig.produce(topic, [b""] * 1200)
    rig.lease(topic, most=10)
    assert claim(rig, topic, offsets=[10 + most], force=True).runs == []
    assert claim(rig, topic, offsets=[9 + most], force=True).runs == [(9 + most, 1, 1)]
    assert rig.queue(topic).ready == 1189


def test_force_leaves_what_is_on_a_shelf(rig: Rig, topic: bytes):
    rig.produce(topic, [b"urgent", b"plain"], priorities=[5, 0], not_before=[0, 0])
    assert claim(rig, topic, offsets=[10, 11], force=True).runs == [(11, 1, 1)]
    assert rig.lease(topic).runs == [(10, 1, 1)]


def test_the_keys_of_claimed_records_are_known_and_busy(rig: Rig):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {"order": "key", "lease_s": None})
    rig.produce(topic, [b"0", b"1", b"2"], keys=[b"a", b"a", b"b"])
    rig.lease(topic, most=1, worker="ann")
    claim(rig, topic, "bob")
    assert rig.lease(topic, most=9).runs == [(2, 1, 1)]
    partition = rig.node._registry.topics.get(topic).partition(0)
    lease = partition.committed.queues.by_name["g"].lease_of(0)
    assert lease is not None
    assert list(lease.keys) == [0]


def test_progress_does_not_outlive_the_lease(rig: Rig, topic: bytes):
    lease = rig.lease(topic, most=1, worker="ann")
    rig.ask(m.ExtendLeases, topic, "g", [(0, lease.token)], 0, [(0, 0, b"half")])
    claim(rig, topic)
    assert state(rig, topic, 0).progress is None


# -- what the log has no more -------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("how", [{}, {"offsets": [0, 1, 4, 9]}])
def test_leased_records_that_the_log_has_no_more_are_named_and_leave_their_lease(
    rig: Rig, topic: bytes, max_bytes: int, how: dict[str, Any]
):
    rig.lease(topic, most=5, worker="ann")
    partition = rig.node._registry.topics.get(topic).partition(0)
    partition.propose(effects.FirstOffset(2))
    rig.turn()
    given = claim(rig, topic, max_bytes=max_bytes, **how)
    assert given.gone == [0, 1]
    assert sorted(held(rig, topic)) == [2, 3, 4]
    assert [sum(run[:2]) for run in given.runs][-1] == 5
    assert claim(rig, topic, max_bytes=max_bytes, **how).gone == []


def test_what_cannot_be_read_stays_with_its_worker(rig: Rig, topic: bytes, monkeypatch: pytest.MonkeyPatch):
    rig.lease(topic, most=2, worker="ann")

    def read(*_: object) -> None:
        raise OSError("the disk is away")

    monkeypatch.setattr(rig.port, "read", read)
    answer = rig.ask(lambda request: m.Claim(request, topic, "g", "bob", 0, 10))
    assert (answer.code, answer.retry) == ("read_failed", True)
    assert set(held(rig, topic).values()) == {("ann", 1)}


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"group": "h"}, "unknown_group"),
        ({"partition": 1}, "unknown_partition"),
        ({"topic": b"x" * 16}, "unknown_topic"),
        ({"worker": "w" * 201}, "invalid_request"),
        ({"max_records": 0}, "invalid_request"),
        ({"offsets": list(range(claims.CLAIM_MAX + 1))}, "limit_reached"),
        ({"force": True}, "invalid_request"),
        ({"attempt": -2}, "invalid_request"),
        ({"attempt": 1_000_001}, "invalid_request"),
        ({"lease_ms": 1 << 40}, "invalid_request"),
    ],
)
def test_what_makes_no_sense_is_refused(rig: Rig, topic: bytes, how: dict[str, Any], code: str):
    rig.lease(topic, most=2, worker="ann")
    fields = {"topic": topic, "group": "g", "worker": "bob", "partition": 0, "max_records": 5, **how}
    assert rig.ask(lambda request: m.Claim(request, **fields)).code == code
    assert set(held(rig, topic).values()) == {("ann", 1)}


def test_attempts_above_the_limit_of_the_group_are_refused(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 3})
    rig.lease(topic, most=1)
    assert rig.ask(lambda request: m.Claim(request, topic, "g", "bob", 0, 5, attempt=4)).code == "invalid_request"
    assert claim(rig, topic, attempt=3).runs == [(0, 1, 3)]


def test_a_damaged_partition_refuses(rig: Rig, topic: bytes):
    rig.lease(topic)
    rig.node._registry.topics.get(topic).partition(0).history.damaged = True
    assert rig.ask(lambda request: m.Claim(request, topic, "g", "bob", 0, 5)).code == "unavailable"
