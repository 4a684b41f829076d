"""A member that needs more than the order still has fetches what differs, and installs it at opening."""

from __future__ import annotations

import pytest
from penstock.broker.replica.staging import read_record
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.members import DATA, Member, Shard


def fill(shard: Shard, topic: bytes, count: int, size: int = 2_000) -> None:
    for number in range(count):
        value = b"%d" % number
        answer = shard.ask(lambda n, at=number: m.Produce(n, topic, at % 2), bytes(encode([value.ljust(size, b".")])))
        assert isinstance(answer, m.Produced)


def behind(seed: int) -> tuple[Shard, bytes, Member]:
    """A shard, its topic, and a member that is down and below the order of the others."""
    shard = Shard(seed)
    topic = shard.topic("t")
    fill(shard, topic, 4)
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    fill(shard, topic, 30)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    assert leader.replica.order.first_index() > 10
    return shard, topic, away


def caught_up(shard: Shard) -> bool:
    entries = {each.replica.places.entry if each.replica else 0 for each in shard.members.values()}
    return len(entries) == 1


def test_a_member_below_the_order_fetches_what_differs_and_goes_on():
    shard, topic, away = behind(1)
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    shard.invariants.check(full=True)
    fill(shard, topic, 2)
    assert not away.files.exists(f"{DATA}/staged")


def test_a_member_that_was_brought_up_to_date_may_lead():
    shard, topic, away = behind(2)
    shard.begin(away)
    shard.until(lambda: caught_up(shard) and shard.counts.get("installs"))
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    leader.replica.core.transfer(away.number)
    shard.until(lambda: shard.leader is away)
    fill(shard, topic, 2)


@pytest.mark.parametrize("power", [False, True])
def test_an_install_that_is_cut_short_at_any_step_is_carried_out_again(power):
    shard, topic, away = behind(4)
    shard.begin(away)
    while not shard.counts.get("installs"):
        for member in shard.members.values():
            shard.guard(member, lambda replica: replica.tick())
            shard.turn(member)
        while shard.network and not shard.counts.get("installs"):
            shard.turn(shard.deliver(0))
        shard.now_s += 0.1
    assert read_record(away.files, DATA, shard.ids.order) is not None
    steps = 0
    while away.replica is None:
        steps += 1
        away.files.full_at = steps
        try:
            away.start()
        except StorageFull:
            away.crash(power=power)
    away.files.full_at = 0
    assert steps > 5
    shard.closed.clear()
    shard.until(lambda: caught_up(shard))
    fill(shard, topic, 2)


def test_batches_that_went_with_a_deleted_topic_are_not_waited_for():
    shard = Shard(5, order_segments=100)
    topic, other = shard.topic("t"), shard.topic("other")
    away = next(member for member in shard.members.values() if member is not shard.leader)
    away.crash(power=True)
    fill(shard, topic, 2, size=40_000)
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    fill(shard, other, 12)
    leader = shard.leader
    assert leader is not None
    assert not leader.files.exists(f"{DATA}/topics/{topic.hex()}")
    shard.begin(away)
    shard.until(lambda: caught_up(shard))
    assert shard.counts.get("installs")


def test_files_stay_while_a_member_fetches_them_and_go_when_it_falls_silent():
    shard, topic, away = behind(6)
    leader = shard.leader
    assert leader is not None
    replica = leader.replica
    assert replica is not None
    found = replica.checkpoint()
    time_us = replica.order.log.place_behind(found.entry)[0].time_us
    replica.exchange.shipping.begin(away.number, found, time_us, replica.logs())
    first = replica.order.first_index()
    fill(shard, topic, 12)
    assert replica.order.first_index() == first
    shard.rounds(120)
    assert replica.exchange.shipping.entry() is None
    fill(shard, topic, 12)
    assert replica.order.first_index() > first
