"""Partitions that a topic gets later: a member makes their logs before it has applied that there are any."""

from __future__ import annotations

import pytest
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import Member, Shard


def grown(shard: Shard, topic: bytes, count: int, **settings: int) -> None:
    """Have a topic grow, and a record in each of its partitions."""
    altered = shard.ask(lambda number: m.AlterTopic(number, topic, settings, count))
    assert isinstance(altered, m.Topics), altered
    for partition in range(count):
        produced = shard.ask(
            lambda number, at=partition: m.Produce(number, topic, at), bytes(encode([b"%d" % partition]))
        )
        assert isinstance(produced, m.Produced)


def partitions(member: Member, topic: bytes) -> list[tuple[int, int, int]]:
    """Of each partition: batches, the retention that is followed, and the size that its segments get."""
    assert member.replica is not None
    found = member.replica.node._registry.topics.by_id[topic].readable
    return [(each.log.written, each.settings.retention_records, each.log.options.segment_bytes) for each in found]


def followers(shard: Shard) -> list[Member]:
    return [member for member in shard.members.values() if member is not shard.leader]


@pytest.mark.parametrize("count", [2, 30])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_member_that_was_away_follows_a_topic_that_grew_meanwhile(count: int, restarts: bool, is_known: bool):
    """All changes, and records behind them, come in one append, so none of it is applied when it is written."""
    shard = Shard(30, checkpoint_every=10_000)
    known = shard.topic("known", 1)
    member = followers(shard)[0]
    shard.rounds(2)
    member.crash(power=False)
    topic = known if is_known else shard.topic("made_meanwhile", 1)
    grown(shard, topic, count)
    shard.begin(member)
    if restarts:  # with all of it in its order, and not known to be committed
        last = shard.leader.replica.order.last_index()
        shard.until(lambda: member.replica is None or member.replica.order.last_index() == last)
        member.crash(power=False)
        shard.begin(member)
    shard.rounds(20)
    assert "closed by an error" not in shard.counts
    assert [written for written, _, _ in partitions(member, topic)] == [1] * count
    shard.invariants.check(full=True)


def test_every_member_goes_by_the_settings_that_a_topic_got_when_it_grew():
    shard = Shard(31)
    topic = shard.topic("grows", 1, retention_records=5, segment_bytes=1 << 20)
    grown(shard, topic, 3, retention_records=7, segment_bytes=2 << 20)
    shard.rounds(3)
    for member in shard.members.values():
        assert partitions(member, topic) == [(1, 7, 2 << 20)] * 3


def test_a_log_that_was_prepared_for_a_growth_that_was_lost_goes_by_the_settings_of_the_next_one():
    shard = Shard(32)
    topic = shard.topic("grows", 1, retention_records=5)
    old = shard.leader
    assert old is not None
    others = followers(shard)
    shard.cut |= {(at.number, to.number) for at, to in [*((old, to) for to in others), *((at, old) for at in others)]}
    shard.send(old, lambda number: m.AlterTopic(number, topic, {"retention_records": 6}, 2))
    shard.until(lambda: any(each.leads for each in others) and not old.leads)
    assert old.replica is not None
    assert old.replica.order.last_index() > old.replica.places.entry, "the growth is not committed"
    grown(shard, topic, 2, retention_records=7)
    shard.cut.clear()
    shard.rounds(10)
    assert [partitions(member, topic) for member in shard.members.values()] == [[(1, 7, 64 << 20)] * 2] * 3
    assert "closed by an error" not in shard.counts
