"""A member that lost its disk is no member: neither its vote nor its acknowledgements count again."""

from __future__ import annotations

from itertools import combinations

import pytest
from penstock.broker.replica.directories import DirectoryTable
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import Member, Shard


def produce(shard: Shard, topic: bytes, count: int) -> int:
    """The offset of the last of so many records."""
    answer = None
    for _ in range(count):
        answer = shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
        assert isinstance(answer, m.Produced)
    return -1 if answer is None else answer.offset


def cut_off(shard: Shard, member: Member) -> None:
    others = [number for number in shard.numbers if number != member.number]
    shard.cut |= {pair for other in others for pair in ((member.number, other), (other, member.number))}


def followers(shard: Shard) -> list[Member]:
    return [member for member in shard.members.values() if member is not shard.leader]


def table_of(member: Member) -> DirectoryTable:
    assert member.replica is not None
    return member.replica.directories.table


def test_the_directories_of_all_members_are_committed_before_the_shard_serves():
    shard = Shard(1)
    leader = shard.until(lambda: shard.leader)
    shard.rounds(3)
    wanted = DirectoryTable({member.number: member.uuid for member in shard.members.values()}, met=True)
    assert [table_of(member) for member in shard.members.values()] == [wanted] * 3
    assert leader.replica.order.last_index() == 4, (
        "the first members, a leader's entry, the table, and that all have it"
    )


def test_a_shard_serves_nobody_before_all_members_have_met():
    shard = Shard(2)
    away = shard.members[3]
    cut_off(shard, away)
    shard.rounds(60)
    assert shard.leader is None
    leading = [each.replica for each in shard.members.values() if each.replica and each.replica.core.leader]
    assert [replica.directories.missing(replica.core.status()) for replica in leading] == [[3], [3]]
    shard.cut.clear()
    topic = shard.topic("t")
    away.crash(power=True)
    for member in shard.members.values():
        if member is not away:
            member.crash(power=True)
            member.start()
    produce(shard, topic, 1)


def test_a_shard_serves_nobody_before_every_member_has_the_table_on_its_disk():
    shard = Shard(3)
    away = shard.members[3]
    met = {member.number for member in shard.members.values()}
    for member in shard.members.values():
        for other in met - {member.number}:
            member.known.heard(other, shard.members[other].uuid)
    cut_off(shard, away)
    shard.rounds(60)
    tables = [table_of(member) for member in shard.members.values() if member is not away]
    assert [(len(table.uuids), table.met) for table in tables] == [(3, False)] * 2
    assert shard.leader is None
    shard.cut.clear()
    assert shard.until(lambda: shard.leader)


@pytest.mark.parametrize("power", [False, True])
def test_a_wiped_disk_and_a_member_that_lags_are_no_majority(power):
    """What the leader and the wiped member had acknowledged would be lost with them."""
    shard = Shard(4)
    topic = shard.topic("t")
    wiped, lagging = followers(shard)
    leader = shard.leader
    assert leader is not None
    cut_off(shard, lagging)
    produce(shard, topic, 3)
    leader.crash(power=power)
    wiped.wipe()
    wiped.start()
    lagging.crash(power=power)
    lagging.start()
    shard.cut.clear()
    shard.rounds(60)
    assert shard.leader is None
    assert shard.counts["strange directory"]
    leader.start()
    assert produce(shard, topic, 1) == 3


def test_a_member_knows_the_directories_though_it_was_told_of_them_in_the_order_alone():
    shard = Shard(5)
    for one, other in combinations(shard.numbers, 2):
        assert shard.members[one].known.uuid_of(other) == b""
    shard.topic("t")
    for member in shard.members.values():
        member.crash(power=True)
        member.start()
        assert [member.known.uuid_of(n) for n in shard.numbers] == [m.uuid for m in shard.members.values()]


def test_a_node_that_begins_anew_under_a_known_number_is_refused_and_the_others_serve():
    shard = Shard(6)
    topic = shard.topic("t")
    wiped = followers(shard)[0]
    wiped.wipe()
    wiped.start()
    produce(shard, topic, 2)
    shard.rounds(60)
    assert wiped.replica is not None
    assert (wiped.replica.core.leader, wiped.replica.places.entry) == (0, 1)


def test_the_table_is_in_the_state_that_a_member_catches_up_with():
    shard = Shard(7)
    topic = shard.topic("t")
    away = followers(shard)[0]
    away.crash(power=True)
    for _ in range(10):
        produce(shard, topic, 3)
    away.start()
    shard.until(lambda: shard.counts.get("installs") and away.replica)
    assert table_of(away) == table_of(shard.members[1])
    assert table_of(away).met
