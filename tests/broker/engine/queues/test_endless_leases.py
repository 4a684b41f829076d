"""Leases that last until they are settled, attempts without a limit, and since when a record is leased."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.tables.queues.lease_table import LeaseTable
from penstock.broker.engine.tables.queues.leases import Lease
from penstock.transport import messages as m
from penstock.transport.queue_messages import FOREVER_US, Verb
from support.engine import START_US, Rig

DAY_S = 86_400.0
ENDLESS = {"lease_s": None, "max_attempts": None, "backoff_s": 0, "jitter": 0}


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> bytes:
    """A topic with 10 records, and a group whose leases have no end."""
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", ENDLESS)
    rig.produce(topic, [b"value-%d" % number for number in range(10)])
    return topic


def alarm(rig: Rig) -> int | None:
    """When the next one rings."""
    return rig.node._office.queues.alarms.ring(0)


def extend(rig: Rig, topic: bytes, token: int, lease_ms: int = 0) -> m.Extended:
    return rig.ask(m.ExtendLeases, topic, "g", [(0, token)], lease_ms)


def ask(rig: Rig, topic: bytes, offset: int) -> m.TaskState:
    return rig.ask(m.AskTask, topic, "g", 0, offset)


# -- without an end ---------------------------------------------------------------------------------


def test_a_lease_without_an_end_stands_until_it_is_settled_over_restarts_and_sets_no_alarm(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=3)
    assert (leased.until_us, leased.runs) == (FOREVER_US, [(0, 3, 1)])
    for end in (lambda: None, rig.restart, lambda: rig.restart(clean=False), rig.resign):
        end()
        assert alarm(rig) is None
        rig.pass_time(20 * DAY_S, step=DAY_S)
        assert rig.lease(topic, most=1).runs != [(0, 1, 2)]
    assert rig.settle(topic, m.Settle(0, leased.token, Verb.ACK)) == []
    assert ask(rig, topic, 0).state == "completed"


def test_a_worker_may_ask_for_a_time_all_the_same_and_no_longer_than_the_group_allows(rig: Rig, topic: bytes):
    assert rig.lease(topic, lease_ms=5_000).until_us == START_US + 5_000_000
    rig.pass_time(6)
    assert rig.lease(topic).runs == [(0, 1, 2)]
    assert rig.lease(topic, lease_ms=13 * 3_600_000).code == "invalid_request"


@pytest.mark.parametrize("setting", [{"lease_s": 0}, {"max_attempts": 0}, {"lease_s": 0.0005}, {"lease_s": 8 * DAY_S}])
def test_a_limit_of_nothing_is_no_limit_and_the_refusal_says_how_to_have_none(rig: Rig, topic: bytes, setting: Any):
    refused = rig.ask(m.SetQueue, topic, "g", setting)
    assert (refused.code, ", or nothing for no limit" in refused.message) == ("invalid_settings", True)
    assert ", or nothing" not in rig.ask(m.SetQueue, topic, "g", {"jitter": 7}).message


def test_a_key_that_is_leased_without_an_end_waits_for_it_to_be_settled(rig: Rig):
    topic = rig.topic()
    rig.ask(m.SetQueue, topic, "g", {**ENDLESS, "order": "key"})
    rig.produce(topic, [b"a1", b"a2", b"b"], keys=[b"a", b"a", b"b"])
    first = rig.lease(topic)
    assert rig.lease(topic, most=9).runs == [(2, 1, 1)]
    rig.pass_time(DAY_S, step=3600)
    assert rig.lease(topic).runs == []
    rig.settle(topic, m.Settle(0, first.token, Verb.ACK))
    assert rig.lease(topic).runs == [(1, 1, 1)]


# -- other settings ---------------------------------------------------------------------------------


def test_a_lease_gets_an_end_when_it_is_extended_under_a_setting_that_has_one(rig: Rig, topic: bytes):
    one, two = rig.lease(topic), rig.lease(topic)
    rig.ask(m.SetQueue, topic, "g", {"lease_s": 10.0})
    rig.pass_time(100)
    extended = extend(rig, topic, one.token)
    assert (extended.until_us, extended.lease_ms, extended.lost) == (rig.now.wall_us + 10_000_000, 10_000, [])
    rig.pass_time(11)
    assert rig.lease(topic, most=9).runs[0] == (0, 1, 2)
    assert ask(rig, topic, 1).state == "leased", "it was given without an end, and not extended"
    assert extend(rig, topic, two.token, 5_000).lease_ms == 5_000


def test_a_lease_with_an_end_runs_out_unless_it_is_extended_under_a_setting_without_one(rig: Rig, topic: bytes):
    rig.ask(m.SetQueue, topic, "g", {"lease_s": 10.0})
    one, two = rig.lease(topic), rig.lease(topic)
    rig.ask(m.SetQueue, topic, "g", {"lease_s": None})
    assert extend(rig, topic, two.token).until_us == FOREVER_US
    rig.pass_time(3600, step=10)
    assert [ask(rig, topic, offset).state for offset in (0, 1)] == ["waiting", "leased"]
    assert [each.code for each in rig.settle(topic, m.Settle(0, one.token, Verb.ACK))] == ["lease_lost"]


def test_an_extension_that_changes_nothing_is_answered_and_not_logged(rig: Rig, topic: bytes):
    leased = rig.lease(topic, most=2)
    rig.ask(m.CancelTask, topic, "g", 0, 1)
    partition = rig.node._registry.topics.get(topic).partition(0)
    before = partition.log.written
    extended = rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token), (0, 99)])
    assert (extended.until_us, extended.lost, extended.cancelled) == (FOREVER_US, [(0, 99)], [(0, 1)])
    assert partition.log.written == before
    rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)], 0, [(0, 0, b"half")])
    assert partition.log.written > before
    assert ask(rig, topic, 0).progress == b"half"


# -- attempts without a limit -----------------------------------------------------------------------


def test_a_record_with_any_number_of_attempts_is_never_dead_by_their_count(rig: Rig, topic: bytes):
    for attempt in range(1, 60):
        leased = rig.lease(topic)
        assert leased.runs == [(0, 1, attempt)]
        rig.settle(topic, m.Settle(0, leased.token, Verb.NACK, reason="no"))
    assert ask(rig, topic, 0).why.startswith("attempt 59 failed: no")
    rig.settle(topic, m.Settle(0, rig.lease(topic).token, Verb.RELEASE))
    assert rig.lease(topic, lease_ms=1000).runs == [(0, 1, 60)]
    rig.pass_time(2)
    leased = rig.lease(topic)
    assert leased.runs == [(0, 1, 61)]
    rig.settle(topic, m.Settle(0, leased.token, Verb.REJECT, reason="for good"))
    assert ask(rig, topic, 0).state == "dead"


def test_a_limit_that_comes_later_counts_for_what_is_retrying(rig: Rig, topic: bytes):
    for verb, most in ((Verb.NACK, 2), (Verb.NACK, 2), (Verb.NACK, 1)):
        rig.settle(topic, m.Settle(0, rig.lease(topic, most=most).token, verb, delay_ms=0))
    rig.ask(m.SetQueue, topic, "g", {"max_attempts": 3})
    assert (ask(rig, topic, 0).state, ask(rig, topic, 1).state) == ("dead", "waiting")
    assert ask(rig, topic, 0).reason == "max_attempts was lowered to 3"


# -- since when -------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_since_when_a_record_is_leased_is_known_and_changes_with_its_holder_alone(rig: Rig, topic: bytes, clean: bool):
    leased = rig.lease(topic, worker="ann", lease_ms=60_000)
    assert ask(rig, topic, 1).given_us == -1
    rig.pass_time(30)
    extend(rig, topic, leased.token, 60_000)
    rig.restart(clean=clean)
    found = ask(rig, topic, 0)
    assert (found.worker, found.attempt, found.given_us, found.time_us) == (
        "ann", 1, START_US, START_US + 90_000_000,
    )  # fmt: skip
    rig.settle(topic, m.Settle(0, leased.token, Verb.NACK))
    assert ask(rig, topic, 0).given_us == -1
    rig.lease(topic, worker="bob")
    found = ask(rig, topic, 0)
    assert (found.worker, found.attempt, found.given_us) == ("bob", 2, START_US + 30_000_000)


# -- the table --------------------------------------------------------------------------------------


def test_leases_without_an_end_are_no_candidates_for_the_next_end():
    table = LeaseTable()
    for token in range(1, 300):
        table.add(Lease.of(token, "w", FOREVER_US, [(token, 1, 1)]))
    assert (table.next_end(), table._ends) == (None, [])
    table.extend(7, 50)
    table.extend(8, 40)
    assert table.next_end() is table[8]
    table.extend(8, FOREVER_US)
    assert table.next_end() is table[7]
    for until_us in range(100, 1000):  # often enough that the heap is made anew
        table.extend(7, until_us)
    assert len(table._ends) < 900
    assert (table.next_end(), table[7].until_us) == (table[7], 999)
    table.remove(table[7])
    assert table.next_end() is None
