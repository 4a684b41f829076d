"""A wall clock that is days off does not become the time of the shard, whichever member leads."""

from __future__ import annotations

import pytest
from penstock.broker.engine import Now
from penstock.broker.replica.clocks import MemberClocks
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import Member, Shard

HOUR_US = 3600 * 1_000_000
DAY_S = 86_400.0


def test_the_median_counts_where_the_own_clock_is_off_by_more_than_the_limit():
    clocks, now = MemberClocks(3600.0), Now(50 * HOUR_US, 1.0)
    assert clocks.of(2, now) == 0
    clocks.heard(2, 10 * HOUR_US)
    assert clocks.now(now) is now, "what was said before the own clock is known says nothing"
    for other, third, wanted in (
        (48, 48, 48),  # ahead of both
        (52, 53, 52),  # behind both
        (50, 90, 50),
        (51, 51, 50),  # by the limit, so not above it
        (49, 20, 50),
        (20, 90, 50),
    ):
        clocks.heard(2, other * HOUR_US)
        clocks.heard(3, third * HOUR_US)
        assert clocks.now(now) == Now(wanted * HOUR_US, 1.0)
    clocks.heard(2, 0)
    assert clocks.of(2, now) == 20 * HOUR_US, "one that does not say leaves what was known"


def test_of_two_clocks_the_earlier_counts():
    for other, wanted in ((20, 20), (90, 50)):
        clocks, now = MemberClocks(3600.0), Now(50 * HOUR_US, 1.0)
        clocks.now(now)
        clocks.heard(2, other * HOUR_US)
        assert clocks.now(now).wall_us == wanted * HOUR_US


def test_time_goes_on_from_the_last_entry_where_the_own_clock_is_far_behind_it():
    clocks, now = MemberClocks(3600.0), Now(50 * HOUR_US, 1.0)
    assert clocks.now(now, 60 * HOUR_US).wall_us == 60 * HOUR_US
    assert clocks.now(now, 51 * HOUR_US) is now
    assert clocks.now(now, 2 * HOUR_US) is now


def test_the_own_clock_is_shown_as_it_is_though_another_time_is_gone_by():
    clocks = MemberClocks(3600.0)
    assert clocks.own(Now(50 * HOUR_US, 1.0)) == 0
    clocks.now(Now(50 * HOUR_US, 1.0))
    clocks.heard(2, 20 * HOUR_US)
    gone_by = clocks.now(Now(50 * HOUR_US, 1.0))
    assert gone_by.wall_us == 20 * HOUR_US
    assert clocks.own(gone_by) == 50 * HOUR_US
    assert clocks.own(Now(20 * HOUR_US, 3.5)) == 50 * HOUR_US + 2_500_000


def appended_us(shard: Shard, topic: bytes) -> int:
    """The time of a record that is produced now."""
    answer = shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    assert isinstance(answer, m.Produced)
    leader = shard.until(lambda: shard.leader)
    log = next(each for each in leader.replica.node.logs if each.path.endswith(f"{topic.hex()}/0"))
    return log.last_time_us


def led_by(shard: Shard, member: Member) -> None:
    leader = shard.until(lambda: shard.leader)
    if leader is not member:
        leader.replica.core.transfer(member.number)
        shard.until(lambda: shard.leader is member)


@pytest.mark.parametrize("days", [-3.0, 3.0])
def test_a_leader_whose_clock_is_days_off_goes_by_those_of_the_others(days):
    shard = Shard(1)
    topic = shard.topic("t")
    off = next(each for each in shard.members.values() if each is not shard.leader)
    before = appended_us(shard, topic)
    off.lag_s = days * DAY_S
    led_by(shard, off)
    shard.rounds(20)
    after = appended_us(shard, topic)
    assert 2_000_000 < after - before < HOUR_US, "time goes on"
    off.crash(power=True)
    later = appended_us(shard, topic)
    assert after <= later < after + HOUR_US


def test_an_idle_leader_hears_of_clocks_that_are_set():
    shard = Shard(2)
    leader = shard.until(lambda: shard.leader)
    other = next(each for each in shard.members.values() if each is not leader)
    other.lag_s = DAY_S
    shard.rounds(5)
    ahead_s = (leader.replica.clocks.of(other.number, leader.now) - leader.now.wall_us) / 1e6
    assert abs(ahead_s - DAY_S) < 10.0
