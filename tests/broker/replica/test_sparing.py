"""Members that find damage while they are up: one at a time closes for it, while the others are a majority."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from penstock.broker.raft.state import Role
from penstock.broker.replica.damage import noted
from penstock.broker.replica.sparing import SILENT_TICKS, Sparing
from penstock.storage.errors import Corrupt
from support.damaged import a_follower, is_whole, produce
from support.members import DATA, Member, Shard


def rot(shard: Shard, member: Member, topic: bytes, partition: int = 0) -> None:
    """Tell a member that scrubbing has found damage."""
    path = f"{DATA}/topics/{topic.hex()}/{partition}"
    shard.guard(member, lambda replica: replica.heartbeats.rotten(Corrupt(f"{path} rots", path=path)))


def closings(shard: Shard) -> list[int]:
    """The numbers of members, each time that one closes for damage, from now on."""
    close, found = shard._close, list[int]()

    def closing(member: Member, error) -> None:
        if "rots" in error.message:
            found.append(member.number)
        close(member, error)

    shard._close = closing
    return found


def two_of_three(seed: int) -> tuple[Shard, bytes, Member, Member, Member]:
    """A shard with a topic, its leader, a follower, and the third member, which has crashed and is known to be away."""
    shard = Shard(seed)
    topic = shard.topic("t")
    produce(shard, topic, 4)
    leader, member = shard.leader, a_follower(shard)
    third = next(each for each in shard.members.values() if each not in (leader, member))
    third.crash(power=False)
    shard.rounds(25)
    return shard, topic, leader, member, third


def test_a_follower_closes_and_fetches_the_log_whole():
    shard = Shard(1)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    member, closed = a_follower(shard), closings(shard)
    rot(shard, member, topic)
    rot(shard, member, topic, 1)
    shard.until(lambda: closed)
    found = noted(member.files, DATA)
    assert found is not None
    assert found.paths == [f"{DATA}/topics/{topic.hex()}/0"], "the first"
    shard.until(lambda: is_whole(shard) and noted(member.files, DATA) is None)
    assert closed == [member.number]
    produce(shard, topic, 2)


def test_a_leader_closes_and_another_one_leads():
    shard = Shard(2)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    leader, closed = shard.leader, closings(shard)
    rot(shard, leader, topic)
    shard.until(lambda: closed)
    shard.until(lambda: is_whole(shard) and noted(leader.files, DATA) is None)
    assert closed == [leader.number]


def test_members_that_rot_together_close_one_after_the_other():
    shard = Shard(3)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    closed = closings(shard)
    for member in shard.members.values():
        rot(shard, member, topic)
    shard.until(lambda: len(closed) >= 3, rounds=400)
    shard.until(lambda: is_whole(shard) and not any(noted(each.files, DATA) for each in shard.members.values()))
    assert sorted(closed) == [1, 2, 3]
    assert shard.leader is not None


def test_a_member_without_which_there_is_no_majority_does_not_close():
    shard, topic, leader, member, third = two_of_three(4)
    closed = closings(shard)
    rot(shard, member, topic)
    rot(shard, leader, topic)
    shard.rounds(60)
    assert closed == []
    produce(shard, topic, 2)
    third.start()
    shard.until(lambda: len(closed) == 2, rounds=400)
    shard.until(lambda: is_whole(shard))


def test_a_leader_with_damage_that_may_not_close_hands_the_lead_to_a_member_without():
    """Else one that fetches what it has lost asks a leader for it that has lost the same."""
    shard, topic, leader, member, third = two_of_three(6)
    closed = closings(shard)
    rot(shard, leader, topic)
    shard.until(lambda: shard.leader is member)
    produce(shard, topic, 2)
    assert closed == []
    third.start()
    shard.until(lambda: closed == [leader.number], rounds=400)
    shard.until(lambda: is_whole(shard) and noted(leader.files, DATA) is None)


def test_a_leader_does_not_close_while_another_member_is_away():
    shard = Shard(5)
    topic = shard.topic("t")
    produce(shard, topic, 4)
    leader, member = shard.leader, a_follower(shard)
    heartbeats = leader.replica.heartbeats
    assert heartbeats.spares_itself
    heartbeats.sparing.heard(member.number, is_damaged=True)
    assert heartbeats.sparing.lets_close(member.number, others_suffice=True)
    assert not heartbeats.spares_itself
    heartbeats.sparing.heard(member.number, is_damaged=False)
    assert heartbeats.spares_itself


def test_the_lead_goes_to_the_voter_that_has_the_most_and_is_offered_again_after_a_while():
    shard = Shard(7)
    topic = shard.topic("t")
    produce(shard, topic, 4)
    leader = shard.leader
    heartbeats, core = leader.replica.heartbeats, leader.replica.core
    status, offered = core.status(), list[int]()
    one, other = sorted(set(status.members) - {leader.number})
    ahead = replace(status.members[other], match=status.members[other].match + 1)
    heartbeats._replica = SimpleNamespace(
        core=SimpleNamespace(
            role=Role.LEADER, spares=lambda node: False, transfer=lambda node: offered.append(node) or True,
            status=lambda: replace(status, members=status.members | {other: ahead}),
        ),
        digesting=SimpleNamespace(tick=lambda: None), met=lambda damage: None,
    )  # fmt: skip
    heartbeats.tick()
    assert offered == [], "without damage"
    heartbeats.rotten(Corrupt("it rots", path="p"))
    for _ in range(SILENT_TICKS):
        heartbeats.tick()
    assert offered == [other]
    heartbeats.sparing.heard(other, is_damaged=True)
    heartbeats.tick()
    assert offered == [other, one]
    heartbeats.sparing.heard(one, is_damaged=True)
    for _ in range(2 * SILENT_TICKS):
        heartbeats.tick()
    assert offered == [other, one], "all have damage"


def lets(sparing: Sparing, *nodes: int, suffice: bool = True) -> list[bool]:
    return [sparing.lets_close(node, others_suffice=suffice) for node in nodes]


def test_one_at_a_time_and_only_who_has_damage():
    sparing = Sparing()
    for node in (2, 3):
        sparing.heard(node, is_damaged=True)
    sparing.heard(4, is_damaged=False)
    assert lets(sparing, 2, 3, 4, suffice=False) == [False, False, False]
    assert lets(sparing, 4, 2, 3, 2) == [False, True, False, True]
    sparing.heard(3, is_damaged=True)
    sparing.heard(2, is_damaged=True)
    assert lets(sparing, 3) == [False]
    sparing.heard(2, is_damaged=False)
    assert sparing.away == 0
    assert lets(sparing, 2, 3) == [False, True]


def test_one_that_falls_silent_counts_as_gone_after_a_while():
    sparing = Sparing()
    for node in (2, 3):
        sparing.heard(node, is_damaged=True)
    assert lets(sparing, 2) == [True]
    for _ in range(SILENT_TICKS):
        sparing.tick(leads=True)
    assert sparing.away == 2
    sparing.heard(2, is_damaged=True)
    for _ in range(SILENT_TICKS):
        sparing.tick(leads=True)
    assert sparing.away == 2
    sparing.tick(leads=True)
    assert sparing.away == 0
    assert lets(sparing, 3) == [True]


def test_a_lead_that_is_lost_takes_it_all_along():
    sparing = Sparing()
    sparing.heard(2, is_damaged=True)
    assert lets(sparing, 2) == [True]
    sparing.tick(leads=False)
    assert sparing.away == 0
    assert lets(sparing, 2) == [False]
