"""A broker whose own syncs are slow leaves them to the keeper: a member hears its peers meanwhile."""

from __future__ import annotations

import pytest
from penstock.broker.member.pace import HEARTBEAT_TICKS, TICK_S
from penstock.broker.watermarks import SLOW_SYNC_S
from penstock.storage.log import LogWriter
from support.pair import Pair
from support.writeback import WritebackFiles


@pytest.fixture
def pair() -> Pair:
    return Pair(WritebackFiles())


def syncs_itself(pair: Pair, log: LogWriter, now_s: float) -> bool:
    """Whether an idle broker syncs what it has just appended."""
    pair.append(log, 1)
    pair.publish(log, idle=True, now_s=now_s)
    return log.durable == log.written


def test_after_a_slow_sync_the_keeper_syncs_until_one_there_is_fast(pair: Pair):
    log = pair.open("/a")
    pair.sync_s = SLOW_SYNC_S
    assert syncs_itself(pair, log, 0.0)
    pair.sync_s = 2 * SLOW_SYNC_S
    assert syncs_itself(pair, log, 1.0), "the one before took no more than is allowed"
    assert not syncs_itself(pair, log, 2.0)
    pair.round(2.0 + 2 * SLOW_SYNC_S)
    assert log.durable == log.written
    assert not syncs_itself(pair, log, 3.0), "that of the keeper was slow, too"
    pair.round(3.0 + SLOW_SYNC_S / 2)
    assert syncs_itself(pair, log, 4.0)


def test_a_sync_of_several_logs_is_as_long_as_the_first_of_them_waited(pair: Pair):
    first, second = pair.open("/a"), pair.open("/b")
    pair.sync_s = 2 * SLOW_SYNC_S
    assert syncs_itself(pair, first, 0.0)
    assert not syncs_itself(pair, first, 1.0)
    assert not syncs_itself(pair, second, 2.0)
    pair.round(2.0)
    assert not syncs_itself(pair, first, 3.0)


def test_a_bell_that_comes_before_the_sync_is_done_says_nothing_of_it(pair: Pair):
    log = pair.open("/a")
    pair.sync_s = 2 * SLOW_SYNC_S
    assert syncs_itself(pair, log, 0.0)
    assert not syncs_itself(pair, log, 1.0)
    pair.settle(1.0)
    pair.round(1.0 + 2 * SLOW_SYNC_S)
    assert not syncs_itself(pair, log, 2.0)


def test_a_bell_for_logs_that_nothing_waits_for_says_nothing_of_a_sync(pair: Pair):
    log, lazy = pair.open("/a"), pair.open("/lazy", commit="written")
    pair.sync_s = 2 * SLOW_SYNC_S
    assert syncs_itself(pair, log, 0.0)
    pair.append(lazy, 1)
    pair.publish(lazy, idle=True)
    pair.round(0.0)
    assert not syncs_itself(pair, log, 0.0)


def test_without_a_keeper_a_slow_broker_syncs_by_itself(pair: Pair):
    log = pair.open("/a")
    pair.sync_s = 2 * SLOW_SYNC_S
    assert syncs_itself(pair, log, 0.0)
    pair.kill_keeper()
    assert syncs_itself(pair, log, 1.0)


def test_a_sync_is_slow_that_takes_more_than_a_tenth_of_the_time_between_heartbeats():
    assert pytest.approx(TICK_S * HEARTBEAT_TICKS / 10) == SLOW_SYNC_S
