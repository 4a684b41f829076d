"""Full disks: records wait for a majority with room, followers that are full vote on, and a full leader hands over."""

from __future__ import annotations

import pytest
from penstock.broker.raft.messages import Change, ChangeStep, Operation
from penstock.broker.replica.room import RESERVE_BYTES, UNKNOWN, WARN_S, DiskRoom
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import Member, Shard
from support.staging import STAGE, staged

LITTLE, ENOUGH = RESERVE_BYTES - 1, RESERVE_BYTES + 4096


def test_a_majority_of_the_voters_has_room_where_it_is_not_known_otherwise():
    room = DiskRoom(1)

    def is_enough(voters: tuple[int, ...], uncommitted: int = 0, size: int = 1) -> bool:
        room.look(voters, uncommitted)
        return room.takes(size)

    assert room.takes(1)
    assert is_enough((1, 2, 3))
    room.heard(2, LITTLE)
    assert is_enough((1, 2, 3))
    room.own = LITTLE
    assert not is_enough((1, 2, 3))
    room.own = ENOUGH
    assert is_enough((1, 2, 3))
    assert not is_enough((1, 2)), "half is no majority"
    room.own = 0
    assert not room.has_reserve(1)
    room.own = RESERVE_BYTES
    assert room.has_reserve(1)


def test_what_is_on_its_way_is_taken_off_what_members_said():
    room = DiskRoom(1)
    room.heard(2, RESERVE_BYTES + 100)
    room.own = RESERVE_BYTES + 100
    room.look((1, 2, 3), 40)
    assert not room.takes(61), "entries that are not committed yet may not be written there"
    assert room.takes(60)
    assert not room.takes(1)
    room.look((1, 2, 3), 0)
    assert not room.takes(41), "60 were taken since"
    assert room.takes(40)
    room.heard(2, RESERVE_BYTES + 1)
    room.look((1, 2, 3), 0)
    assert not room.takes(1), "node 3 has said nothing, so it is as this one"
    room.own = ENOUGH
    room.look((1, 2, 3), 0)
    assert room.takes(ENOUGH - RESERVE_BYTES)
    assert not room.takes(1)


def test_a_new_leader_begins_with_its_own_room_whatever_was_known_in_an_earlier_lead():
    room = DiskRoom(1)
    room.own = 10 * ENOUGH
    room.look((1, 2, 3), 0)
    for node in (2, 3):
        room.heard(node, 10 * ENOUGH)
    room.own = RESERVE_BYTES + 50
    room.follow()
    assert not room.takes(51)
    assert room.takes(20)
    room.look((1, 2, 3), 0)
    assert not room.takes(31)
    assert room.takes(30)
    assert room.of(2) == UNKNOWN


def test_a_member_is_full_when_half_of_its_reserve_is_gone():
    room = DiskRoom(1)
    assert not room.is_full
    for own, full in ((0, True), (RESERVE_BYTES // 2 - 1, True), (RESERVE_BYTES // 2, False)):
        room.own = own
        assert room.is_full == full


def test_a_leader_without_room_knows_the_voter_with_the_most():
    room = DiskRoom(1)
    room.own = LITTLE
    assert room.better((1, 2, 3)) == 0, "nothing is known of the others"
    room.heard(2, ENOUGH)
    room.heard(3, ENOUGH + 1)
    room.heard(4, ENOUGH + 2)
    assert room.better((1, 2, 3)) == 3
    room.heard(3, LITTLE)
    assert room.better((1, 2, 3)) == 2
    room.own = ENOUGH
    assert room.better((1, 2, 3)) == 0
    assert room.of(9) == UNKNOWN


def test_a_full_node_says_so_now_and_then():
    room = DiskRoom(1)
    room.own = ENOUGH
    room.look((1,), 0)
    assert room.takes(1)
    assert room.warning(5.0) == ""
    assert not room.takes(ENOUGH)
    told = room.warning(6.0)
    assert "disks of a majority are full" in told
    assert "64 MiB are left here" in told
    room.own = LITTLE
    assert room.warning(6.0 + WARN_S - 1) == ""
    assert "the disk is full: 63 MiB are left here, 64 MiB are for acks" in room.warning(6.0 + WARN_S)
    room.own = 0
    assert "the disk is full: 0 MiB are left here, and below 32 this node takes" in room.warning(6.0 + 2 * WARN_S)
    room.own = ENOUGH
    assert room.warning(1000.0) == ""
    assert not room.takes(ENOUGH)
    assert room.warning(1001.0)
    assert room.warning(2000.0) == "", "it was told"


def scene(seed: int) -> tuple[Shard, bytes, Member, list[Member]]:
    shard = Shard(seed)
    topic = shard.topic("t")
    leader = shard.until(lambda: shard.leader)
    for member in shard.members.values():
        member.room = 10 * ENOUGH
    shard.rounds(5)
    return shard, topic, leader, [each for each in shard.members.values() if each is not leader]


def produce(shard: Shard, topic: bytes):
    return shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))


def test_records_are_refused_while_fewer_than_a_majority_have_room_and_all_else_goes_on():
    shard, topic, leader, others = scene(1)
    spare = shard.topic("spare")
    assert leader.replica.room.of(others[0].number) == 10 * ENOUGH
    others[0].room = LITTLE
    shard.rounds(5)
    assert isinstance(produce(shard, topic), m.Produced)
    others[1].room = LITTLE
    shard.rounds(5)
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    answer = shard.until(lambda: shard.answer(leader, request))
    assert (answer.code, answer.retry) == ("storage_full", True)
    assert "64 MiB" in answer.message
    deleted = shard.ask(lambda number: m.DeleteTopic(number, spare))
    assert isinstance(deleted, m.Done), "what has no records may use the reserve, and makes room"
    others[0].room = ENOUGH
    shard.rounds(5)
    assert isinstance(produce(shard, topic), m.Produced)


def test_what_a_transaction_publishes_is_records_too():
    shard, topic, leader, others = scene(1)
    spare = shard.topic("spare")
    assert isinstance(shard.ask(lambda number: m.Produce(number, topic, 0), staged([b"x"])), m.Produced)
    for each in others:
        each.room = LITTLE
    shard.rounds(5)
    committed = [m.Stage(topic, 0, STAGE, 1)]
    request = shard.send(leader, lambda number: m.CommitTransaction(number, "etl", 1, committed))
    answer = shard.until(lambda: shard.answer(leader, request))
    assert (answer.code, "is decided" in answer.message) == ("storage_full", True)
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, spare)), m.Done)
    for each in others:
        each.room = ENOUGH
    shard.rounds(50)
    assert shard.ask(lambda number: m.CommitTransaction(number, "etl", 1, committed)).repeated is False
    assert shard.ask(lambda number: m.AskTransaction(number, "etl")).finished


def test_a_follower_that_is_full_takes_no_entries_and_the_shard_goes_on():
    shard, topic, leader, (full, other) = scene(2)
    full.room = 0
    last, starts = full.replica.order.last_index(), full.starts
    assert isinstance(produce(shard, topic), m.Produced)
    shard.rounds(10)
    assert (full.replica.order.last_index(), full.starts) == (last, starts), "it does not close over it"
    other.crash(power=True)
    shard.begin(other)
    full.room = ENOUGH
    shard.until(lambda: full.replica.places.entry == shard.leader.replica.places.entry)
    assert leader.number


@pytest.mark.parametrize("others", [True, False])
def test_a_leader_that_is_full_hands_over_to_a_voter_with_room_or_stays(others):
    shard, topic, leader, (one, other) = scene(3)
    one.room = 20 * ENOUGH if others else LITTLE
    other.room = 10 * ENOUGH if others else LITTLE
    shard.rounds(5)
    leader.room = LITTLE
    shard.rounds(20)
    assert shard.leader is (one if others else leader)
    if others:
        assert isinstance(produce(shard, topic), m.Produced)


@pytest.mark.parametrize("room", [LITTLE, 10 * ENOUGH])
def test_a_leader_that_is_full_does_not_wait_for_a_voter_that_is_gone(room):
    shard, topic, leader, (gone, other) = scene(4)
    gone.room = 20 * ENOUGH
    other.room = room
    shard.rounds(5)
    assert leader.replica.core.status().members[gone.number].match == leader.replica.order.last_index()
    gone.crash(power=False)
    leader.room = LITTLE
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)
    shard.rounds(20)
    assert shard.leader is (leader if room == LITTLE else other)
    assert not shard.leader.replica.held_back


def test_a_leader_that_is_full_hands_over_to_a_voter_that_has_all_entries_though_others_have_more_room():
    shard, topic, leader, (behind, other) = scene(5)
    behind.room = 30 * ENOUGH
    shard.rounds(5)
    shard.cut.add((leader.number, behind.number))
    shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    shard.turn(leader)
    while shard.network:
        shard.turn(shard.deliver(0))
    status = leader.replica.core.status()
    assert [status.members[each.number].match == status.last for each in (behind, other)] == [False, True]
    assert all(each.is_heard for each in status.members.values())
    leader.room = LITTLE
    shard.tick(leader)
    assert leader.replica.core.status().transferee == other.number


def test_a_leader_that_is_full_hands_over_to_no_learner():
    shard, _, leader, (learner, other) = scene(6)
    learner.room = 30 * ENOUGH
    shard.rounds(5)
    leader.replica.core.apply_change(Change((ChangeStep(Operation.LEARNER, learner.number),)), 0)
    leader.room = LITTLE
    shard.tick(leader)
    assert leader.replica.core.status().transferee == other.number
