"""After an outage clients find what they have to renew: it ends once they had a while to come back."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.logs.clock import LogTime
from penstock.broker.engine.logs.grace import BACK_S, Grace
from penstock.transport import messages as m
from support.engine import START_US, Rig
from support.staging import stage, stage_of

HOUR_S = 3600.0
LEASE_S = 30.0


def rig_with_grace(**config: Any) -> Rig:
    return Rig(grace_s=HOUR_S, housekeeping_s=1.0, **config)


def leased(rig: Rig, **settings: Any) -> tuple[bytes, m.Leased]:
    """A topic with one record, which worker w has."""
    topic = rig.topic()
    rig.produce(topic, [b"x"])
    rig.ask(m.SetQueue, topic, "g", {"lease_s": LEASE_S, **settings})
    return topic, rig.lease(topic)


def outage(rig: Rig, seconds: float) -> None:
    """The broker is away for so long."""
    rig.now = Now(rig.now.wall_us + round(seconds * 1e6), rig.now.monotonic_s + seconds)
    rig.restart(clean=False)


def extend(rig: Rig, topic: bytes, token: int, lease_ms: int = 0) -> list[tuple[int, int]]:
    """The leases that are lost."""
    return rig.ask(m.ExtendLeases, topic, "g", [(0, token)], lease_ms).lost


def in_flight(rig: Rig, topic: bytes) -> bool:
    return rig.lease(topic, worker="other").runs == []


# -- leases -----------------------------------------------------------------------------------------


def test_a_lease_that_would_have_ended_in_an_outage_is_there_for_its_worker():
    rig = rig_with_grace()
    topic, lease = leased(rig)
    outage(rig, 10 * LEASE_S)
    rig.pass_time(LEASE_S / 3 - 0.25)
    assert in_flight(rig, topic)
    assert extend(rig, topic, lease.token) == []
    rig.pass_time(LEASE_S - 0.25)
    assert in_flight(rig, topic)
    assert rig.settle(topic, m.Settle(0, lease.token, 0)) == []


def test_one_whose_worker_stays_away_ends_after_a_third_of_the_usual_time():
    rig = rig_with_grace()
    topic, lease = leased(rig)
    outage(rig, LEASE_S)
    waiting = rig.ask_lease(topic, worker="other", wait_ms=60_000)
    rig.pass_time(LEASE_S / 3 - 0.25)
    assert rig.answers(waiting) == []
    rig.pass_time(0.25)
    rig.turn()
    (answer,) = rig.answers(waiting)
    assert answer.runs == [(0, 1, 2)]
    assert extend(rig, topic, lease.token) == [(0, lease.token)]


def test_the_node_asks_to_be_called_when_the_grace_ends_and_when_the_lease_does():
    rig = rig_with_grace()
    topic, lease = leased(rig)
    outage(rig, LEASE_S)
    rig.pass_time(9.9)
    assert rig.node.tick(rig.now) == pytest.approx(0.1)
    extend(rig, topic, lease.token, lease_ms=200)
    rig.now = Now(rig.now.wall_us + 100_000, rig.now.monotonic_s + 0.1)
    rig.node.flush(rig.now)
    assert [rig.node.tick(rig.now) for _ in range(2)] == [0.0, pytest.approx(0.1)]


def test_a_lease_that_outlasts_the_grace_ends_when_it_was_to_end():
    rig = rig_with_grace()
    topic, _ = leased(rig)
    outage(rig, LEASE_S / 3)
    rig.pass_time(LEASE_S * 2 / 3 - 0.25)
    assert in_flight(rig, topic)
    rig.pass_time(0.5)
    assert not in_flight(rig, topic)


def test_a_wall_clock_that_is_set_ahead_ends_no_grace():
    rig = rig_with_grace()
    topic, _ = leased(rig)
    outage(rig, 0.0)
    rig.now = Now(rig.now.wall_us + 1000 * 1_000_000, rig.now.monotonic_s)
    rig.pass_time(LEASE_S / 3 - 0.25)
    assert in_flight(rig, topic)
    rig.pass_time(0.5)
    assert not in_flight(rig, topic)


def test_a_lease_that_was_over_before_the_outage_ends_at_once():
    """Leaders that are lost one after the other would keep the lease of a lost worker for ever."""
    rig = rig_with_grace()
    topic, lease = leased(rig)
    outage(rig, LEASE_S)
    assert in_flight(rig, topic)
    rig.produce(rig.topic("another"), [b"at the moment at which the lease is over"])
    outage(rig, 1.0)
    assert extend(rig, topic, lease.token) == [(0, lease.token)]
    assert not in_flight(rig, topic)


@pytest.mark.parametrize(("lease_s", "grace_s"), [(3 * BACK_S, BACK_S), (1.0, BACK_S)])
def test_clients_that_wait_for_a_frozen_leader_are_in_time(lease_s: float, grace_s: float):
    rig = rig_with_grace()
    topic, _ = leased(rig, lease_s=lease_s)
    outage(rig, lease_s)
    rig.pass_time(grace_s - 0.25)
    assert in_flight(rig, topic)
    rig.pass_time(0.25)
    assert not in_flight(rig, topic)


# -- a broker that stands still ---------------------------------------------------------------------


def stand_still(rig: Rig, seconds: float, *, suspended: bool = False) -> None:
    """Nothing is called for so long; a machine that is suspended stops the monotonic clock, too."""
    rig.now = Now(rig.now.wall_us + round(seconds * 1e6), rig.now.monotonic_s + (0.0 if suspended else seconds))
    rig.turn()


@pytest.mark.parametrize("suspended", [False, True])
def test_a_broker_that_was_stopped_gives_workers_a_grace_when_it_goes_on(suspended: bool):
    rig = rig_with_grace()
    topic, lease = leased(rig)
    rig.pass_time(LEASE_S / 2)
    stand_still(rig, LEASE_S, suspended=suspended)
    rig.pass_time(LEASE_S / 3 - 0.25)
    assert in_flight(rig, topic)
    rig.pass_time(0.5)
    assert not in_flight(rig, topic)
    assert extend(rig, topic, lease.token) == [(0, lease.token)]


def test_what_was_over_when_it_was_stopped_ends_at_once():
    rig = rig_with_grace()
    topic, _ = leased(rig)
    outage(rig, LEASE_S)
    rig.pass_time(BACK_S + 0.25)
    assert in_flight(rig, topic)
    stand_still(rig, 60.0)
    assert not in_flight(rig, topic)


def test_a_broker_that_stands_still_as_it_opens_forgets_no_outage():
    rig = rig_with_grace()
    topic, lease = leased(rig)
    outage(rig, LEASE_S)
    stand_still(rig, 60.0)
    rig.pass_time(LEASE_S / 3 - 0.25)
    assert extend(rig, topic, lease.token) == []


def test_a_broker_that_only_had_nothing_to_do_was_not_stopped():
    rig = rig_with_grace()
    topic, _ = leased(rig)
    end_s = rig.now.monotonic_s + LEASE_S
    while rig.now.monotonic_s < end_s:
        wait = max(rig.node.tick(rig.now), 0.001) + 0.999
        rig.now = Now(rig.now.wall_us + round(wait * 1e6), rig.now.monotonic_s + wait)
        rig.turn(2)
    assert not in_flight(rig, topic)


def test_each_office_has_a_grace_of_its_own():
    rig = rig_with_grace()
    topic, lease = leased(rig)
    rig.pass_time(LEASE_S - 0.25)
    rig.resign()
    rig.pass_time(LEASE_S / 3 - 0.25)
    assert extend(rig, topic, lease.token) == []
    assert in_flight(rig, topic)


@pytest.mark.parametrize(("lease_s", "grace_s"), [(150.0, 50.0), (180.0, 60.0), (12 * HOUR_S, 60.0), (None, 10.0)])
def test_the_grace_is_a_third_of_the_time_of_leases_and_a_minute_at_most(lease_s: float | None, grace_s: float):
    rig = rig_with_grace()
    topic, _ = leased(rig, lease_s=12 * HOUR_S)
    rig.ask(m.SetQueue, topic, "g", {"lease_s": lease_s})
    outage(rig, 13 * HOUR_S)
    rig.pass_time(grace_s - 1.0, step=1.0)
    assert in_flight(rig, topic)
    rig.pass_time(1.5, step=0.5)
    assert not in_flight(rig, topic)


def test_settings_that_shorten_the_grace_count_at_once():
    rig = rig_with_grace()
    topic, _ = leased(rig)
    outage(rig, LEASE_S)
    rig.ask(m.SetQueue, topic, "g", {"lease_s": 21.0})
    rig.pass_time(7.25)
    assert not in_flight(rig, topic)


def test_where_clients_end_with_the_office_leases_end_in_time():
    rig = Rig()
    topic, _ = leased(rig)
    outage(rig, LEASE_S)
    assert not in_flight(rig, topic)


# -- what else is renewed ---------------------------------------------------------------------------


def test_a_stage_that_got_nothing_in_an_outage_may_go_on():
    rig = rig_with_grace(stage_expiry_s=60.0)
    topic = rig.topic()
    stage(rig, topic, [b"a"])
    outage(rig, 120.0)
    rig.pass_time(19.0)
    assert isinstance(stage(rig, topic, [b"b"], first=1), m.Produced)
    rig.pass_time(58.0)
    assert stage_of(rig, topic) is not None
    outage(rig, 120.0)
    rig.pass_time(23.0)
    assert stage_of(rig, topic) is None


def test_groups_are_not_given_up_for_a_silence_in_which_no_broker_was_there():
    rig = rig_with_grace(group_expiry_s=60.0)
    topic = rig.topic()
    rig.produce(topic, [b"x"])
    rig.ask(m.Commit, 0, topic, "stream", [m.Position(0, 1, 0)])
    rig.ask(m.SetQueue, topic, "queue", {})
    rig.ask(m.Trim, topic, m.TrimRule.RECORDS, 0)
    outage(rig, 120.0)
    rig.pass_time(19.0)
    assert [each.group for each in rig.ask(m.ListGroups, topic).groups] == ["stream"]
    assert [each.group for each in rig.ask(m.ListQueues, topic).queues] == ["queue"]
    rig.pass_time(4.0)
    assert rig.ask(m.ListGroups, topic).groups == []
    assert rig.ask(m.ListQueues, topic).queues == []


def test_producers_are_not_forgotten_for_a_silence_in_which_no_broker_was_there():
    rig = rig_with_grace(producer_expiry_s=60.0)
    topic = rig.topic()
    rig.produce(topic, [b"x"], producer_id=5)
    outage(rig, 120.0)
    rig.pass_time(19.0)
    assert isinstance(rig.produce(topic, [b"y"], producer_id=5, first_sequence=1), m.Produced)
    outage(rig, 120.0)
    rig.pass_time(23.0)
    assert rig.produce(topic, [b"z"], producer_id=5, first_sequence=2).code == "unknown_producer"


# -- the rule ---------------------------------------------------------------------------------------


def test_grace_is_a_share_within_limits_by_the_monotonic_clock():
    time, since_us = LogTime(Now(START_US, 50.0), 3600.0), START_US - 7_000_000
    grace = Grace(time, 10.0, since_us)
    assert [grace.end_s(each) for each in (9.0, 21.0, 30.0, 300.0)] == [56.0, 57.0, 60.0, 60.0]
    time.read(Now(START_US + 100_000_000, 55.999))
    assert (grace.covers(9.0), grace.over_us(9.0), grace.silent_us(9.0)) == (True, since_us, since_us - 9_000_000)
    now_us = time.read(Now(START_US + 100_000_000, 56.0))
    assert (grace.covers(9.0), grace.over_us(9.0), grace.silent_us(9.0)) == (False, now_us, now_us - 9_000_000)
    assert grace.covers(30.0)


def graced_for(served_s: float, still_s: float) -> tuple[Grace, int]:
    """A grace of 10 s in which the office served, and then stood still; and log time when it stopped."""
    time = LogTime(Now(START_US, 50.0), 3600.0)
    grace = Grace(time, 10.0, START_US)
    since_us = time.read(Now(START_US, 50.0 + served_s))
    time.read(Now(START_US, 50.0 + served_s + still_s))
    grace.stood_still(since_us, 50.0 + served_s)
    return grace, since_us


def test_a_grace_begins_anew_once_clients_of_the_one_before_are_back():
    grace, since_us = graced_for(BACK_S, 100.0)
    assert (grace.end_s(30.0), grace.over_us(30.0)) == (50.0 + BACK_S + 100.0 + 10.0, since_us)


def test_time_in_which_nobody_was_served_is_no_part_of_a_grace():
    grace, _ = graced_for(BACK_S - 0.25, 100.0)
    assert (grace.end_s(30.0), grace.over_us(30.0)) == (50.0 + 100.0 + 10.0, START_US)


def test_no_grace_covers_nothing():
    grace = Grace(LogTime(Now(START_US, 50.0), 3600.0), 0.0, START_US - 1)
    assert (grace.covers(30.0), grace.over_us(30.0), grace.silent_us(30.0)) == (False, START_US, START_US - 30_000_000)
