"""A member that lost its disk is no member: neither its vote nor its acknowledgements count again."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from itertools import combinations, permutations

import msgspec
import pytest
from penstock.broker.raft.errors import Broken
from penstock.broker.raft.messages import Change, ChangeStep, ConfState, Entry, EntryKind, Kind, Message, Operation
from penstock.broker.raft.node import MemberStatus
from penstock.broker.raft.progress import FollowerPace
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.broker.replica.directories import VOTES_BEHIND, Directories, DirectoryTable, Members
from penstock.broker.replica.opening import _members
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.damaged import flip
from support.member_life import MemberLife
from support.members import DATA, Member, Sent, Shard


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


def lose(shard: Shard, member: Member) -> None:
    """Its disk is lost, and it begins with an empty one."""
    member.wipe()
    member.start()


def replace(shard: Shard, member: Member) -> None:
    """The leader makes the new directory that of the member."""

    def begun() -> bool:
        leader = shard.leader
        return leader is not None and leader.replica is not None and not leader.replica.replace(
            member.number, member.uuid
        )  # fmt: skip

    shard.until(begun)


def is_whole(shard: Shard) -> bool:
    """Every member votes, and has everything."""
    replicas = [member.replica for member in shard.members.values() if member.replica is not None]
    ends = {replica.places.entry for replica in replicas}
    settled = all(each.directories.is_settled for each in replicas)
    return len(replicas) == len(shard.numbers) and settled and len(ends) == 1


@pytest.mark.parametrize("records", [2, 30])
def test_a_lost_disk_is_replaced_and_its_member_votes_again(records):
    """By entries, or by the state where the order has been trimmed."""
    shard = Shard(8)
    topic = shard.topic("t")
    wiped = followers(shard)[0]
    wiped.crash(power=True)
    produce(shard, topic, records)
    lose(shard, wiped)
    replace(shard, wiped)
    shard.until(lambda: is_whole(shard))
    assert bool(shard.counts.get("installs")) == (records == 30)
    shard.invariants.check(full=True)
    leader = shard.leader
    assert leader is not None
    leader.crash(power=True)
    assert produce(shard, topic, 2) == records + 1, "the replaced member and another one are a majority"


def test_while_a_disk_is_replaced_the_member_counts_for_nothing():
    shard = Shard(9)
    topic = shard.topic("t")
    wiped, other = followers(shard)
    produce(shard, topic, 3)
    lose(shard, wiped)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    cut_off(shard, wiped)
    replace(shard, wiped)
    shard.until(lambda: wiped.number not in leader.replica.core.status().configuration.voters)
    shard.cut.clear()
    cut_off(shard, other)
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    for _ in range(5):
        shard.rounds()
    assert shard.answer(leader, request) is None
    shard.cut.clear()
    shard.until(lambda: is_whole(shard))


def test_a_replacement_goes_on_under_the_next_leader_and_may_be_repeated():
    shard = Shard(10, size=5)
    topic = shard.topic("t")
    wiped = followers(shard)[0]
    lose(shard, wiped)
    replace(shard, wiped)
    leader = shard.leader
    assert leader is not None
    shard.until(lambda: table_of(leader).uuids[wiped.number] == wiped.uuid)
    leader.crash(power=True)
    lose(shard, wiped)  # the new disk too
    shard.rounds(20)
    replace(shard, wiped)
    shard.heal()
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 1)


def test_the_directory_that_was_replaced_is_refused():
    shard = Shard(11)
    topic = shard.topic("t")
    old = followers(shard)[0]
    kept = old.files, old.uuid, old.known
    lose(shard, old)
    replace(shard, old)
    shard.until(lambda: is_whole(shard))
    old.crash(power=False)
    old.files, old.uuid, old.known = kept
    old.start()
    produce(shard, topic, 3)
    shard.rounds(30)
    assert old.replica is not None
    assert not is_whole(shard)
    assert old.replica.core.leader == 0


def test_a_member_that_has_the_table_unapplied_refuses_a_wiped_disk():
    """It notes the table before it acknowledges the entry: it may be cut off before it hears of the commit."""
    shard = Shard(12)
    shard.until(lambda: shard.leader)
    shard.rounds(3)
    late, other, wiped = shard.members.values()
    assert late.replica is not None
    change = Change((ChangeStep(Operation.VOTER, 1),), context=msgspec.msgpack.encode(DirectoryTable({3: b"w" * 16})))
    table = Entry(late.replica.order.last_index() + 1, 9, msgspec.msgpack.encode(change), EntryKind.CHANGE)
    directories = late.replica.directories
    directories.appended(table)
    assert late.known.uuid_of(wiped.number) == wiped.uuid, "a later table counts when it is applied"
    directories.members = Members(directories.members.configuration, DirectoryTable())
    directories.appended(table)
    assert late.known.uuid_of(wiped.number) == b"w" * 16, "the first one at once"
    assert other.known.uuid_of(wiped.number) == wiped.uuid


def test_a_replaced_member_votes_once_it_lacks_little():
    shard = Shard(13)
    produce(shard, shard.topic("t"), 2)
    lost = followers(shard)[0]
    lose(shard, lost)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    cut_off(shard, lost)
    replace(shard, lost)
    shard.until(lambda: lost.number in leader.replica.core.status().configuration.learners)
    shard.rounds(5)
    directories, status = leader.replica.directories, leader.replica.core.status()
    assert status.members[lost.number].pace is not FollowerPace.REPLICATE
    assert directories.next_change(status) is None
    for behind, votes in ((VOTES_BEHIND, True), (VOTES_BEHIND + 1, False)):
        peer = MemberStatus(5, 6, FollowerPace.REPLICATE, learner=True, is_heard=True)
        near = replace_fields(status, committed=5 + behind, last=999, members={**status.members, lost.number: peer})
        change = directories.next_change(near)
        assert (change is not None) == votes
        assert change is None or change.steps == (ChangeStep(Operation.VOTER, lost.number),)


def test_a_leader_waits_for_the_very_entry_of_the_table():
    shard = Shard(14)
    leader = shard.until(lambda: shard.leader)
    status = leader.replica.core.status()
    members = Members(status.configuration, DirectoryTable({number: b"%d" % number for number in (1, 2, 3)}))
    directories = Directories(leader.known, members, 7)
    peer = MemberStatus(7, 8, FollowerPace.REPLICATE, learner=False, is_heard=True)
    for match, missing in ((6, [2]), (7, [])):
        near = replace_fields(status, members={1: peer, 2: replace_fields(peer, match=match), 3: peer})
        assert directories.missing(near) == missing


def test_a_leader_that_opened_by_an_older_checkpoint_waits_for_the_entry_of_the_table():
    """The newest has rotted. Its name says that the table is committed, and the one before it is of entry 1."""
    shard = Shard(14)
    for one, other in permutations(shard.numbers, 2):
        shard.members[one].known.heard(other, shard.members[other].uuid)
    cut_off(shard, shard.members[3])
    shard.rounds(60)
    member = shard.members[1]
    member.crash(power=True)
    flip(member, max(name for name in member.files.contents if name.startswith(f"{DATA}/order/snapshot-")), 80)
    member.start()
    replica = member.replica
    assert replica is not None
    assert replica._storage.checkpoint.entry == 1
    assert len(table_of(member).uuids) == 3
    assert not table_of(member).met
    for match, missing in ((2, [1, 2, 3]), (replica.places.entry, [])):
        peer = MemberStatus(match, match + 1, FollowerPace.REPLICATE, learner=False, is_heard=True)
        near = replace_fields(replica.core.status(), members=dict.fromkeys(shard.numbers, peer))
        assert replica.directories.missing(near) == missing


def test_a_member_that_opens_at_an_older_table_goes_by_that_one():
    """It lets the new directory in when it has applied the entry that takes the vote from the old one, no sooner."""
    shard = Shard(15)
    leader = shard.until(lambda: shard.leader)
    older = leader.replica.directories.members
    leader.known.note({**older.directories.uuids, 3: b"n" * 16})
    Directories(leader.known, older, 3)
    assert leader.known.uuid_of(3) == older.directories.uuids[3]


def test_members_changed_behind_the_checkpoint_are_known_at_opening():
    """What is committed counts, also where the checkpoint is older; what may not be committed does not."""
    found = Members(ConfState((1, 2, 3)), DirectoryTable({3: b"a"}, met=True))
    checkpoint = Checkpoint(
        entry=4, term=1, commit=4, acked=4, configuration=msgspec.msgpack.encode(found.configuration), logs=[],
        directories=found.directories,
    )  # fmt: skip
    removal = Change(
        (ChangeStep(Operation.REMOVE, 3),), context=msgspec.msgpack.encode(DirectoryTable({3: b"b"}, True))
    )
    back = Change((ChangeStep(Operation.LEARNER, 3),))
    changes = [
        Entry(index, 2, msgspec.msgpack.encode(change), EntryKind.CHANGE) for index, change in ((5, removal), (7, back))
    ]
    assert _members(checkpoint, changes, 4) == found
    removed = Members(ConfState((1, 2)), DirectoryTable({3: b"b"}, met=True))
    assert _members(checkpoint, changes, 5) == _members(checkpoint, changes, 6) == removed
    joining = Members(ConfState((1, 2), learners=(3,)), DirectoryTable({3: b"b"}, met=True))
    assert _members(checkpoint, changes, 7) == joining


def test_lives_end_badly_where_members_let_any_directory_in(monkeypatch):
    """That the random lives tell: they wipe disks, and hold with the rule."""

    def let_in(shard: Shard, member: Member, sent: Sent) -> bool:
        if not member.known.uuid_of(sent.message.sender):
            member.known.heard(sent.message.sender, sent.uuid)
        return True

    monkeypatch.setattr(Shard, "_greets", let_in)
    with pytest.raises((Broken, AssertionError)):
        [MemberLife(seed, steps=250).run() for seed in range(5000, 5040)]


def lead(shard: Shard, member: Member) -> None:
    """Hand the lead over."""

    def leads() -> bool:
        leader = shard.leader
        if leader is not None and leader is not member and leader.replica is not None:
            leader.replica.core.transfer(member.number)
        return leader is member

    shard.until(leads)


@pytest.mark.parametrize("records", [2, 30])
def test_a_second_disk_is_replaced_while_a_node_leads_that_was_replaced(records):
    """The node with the second new disk reads of the first directories before it reads of the replacement."""
    shard = Shard(16)
    topic = shard.topic("t")
    produce(shard, topic, records)
    first, second = followers(shard)
    lose(shard, first)
    replace(shard, first)
    shard.until(lambda: is_whole(shard))
    lead(shard, first)
    lose(shard, second)
    shard.rounds(20)
    replace(shard, second)
    shard.until(lambda: is_whole(shard))
    assert shard.leader is first
    produce(shard, topic, 1)


def replaced_without(shard: Shard, away: Member) -> Member:
    """The member whose disk is replaced while another one is down; it leads now, and the other one is back."""
    away.crash(power=True)
    lost = next(each for each in followers(shard) if each is not away)
    lose(shard, lost)
    replace(shard, lost)
    shard.until(lambda: shard.leader and shard.leader.replica.directories.is_settled)
    lead(shard, lost)
    away.start()
    return lost


def test_a_node_that_was_down_during_a_replacement_hears_of_it_from_the_replaced_node():
    shard = Shard(17, size=5)
    topic = shard.topic("t")
    away = followers(shard)[-1]
    lost = replaced_without(shard, away)
    assert away.known.uuid_of(lost.number) != lost.uuid
    shard.until(lambda: is_whole(shard))
    assert shard.leader is lost
    assert away.known.uuid_of(lost.number) == lost.uuid
    produce(shard, topic, 1)


def test_a_node_that_has_not_heard_of_a_replacement_counts_nothing_of_the_new_directory():
    shard = Shard(18, size=5)
    produce(shard, shard.topic("t"), 1)
    away = followers(shard)[-1]
    lost = replaced_without(shard, away)
    cut_off(shard, away)
    shard.rounds(3)
    assert lost.replica is not None
    assert away.replica is not None
    core = away.replica.core
    greeting = lost.uuid, away.uuid, lost.entry
    for kind in Kind:
        before = shard.counts.get("strange directory", 0)
        shard.cut.clear()
        shard.network = [Sent(Message(kind, away.number, lost.number), {}, *greeting)]
        shard.deliver(0)
        refused = shard.counts.get("strange directory", 0) > before
        assert refused == (kind not in (Kind.APPEND, Kind.HEARTBEAT, Kind.SNAPSHOT, Kind.PIECE)), kind
    assert core.status().node == away.number


def test_a_wiped_disk_that_nobody_replaced_tells_nothing_and_the_old_one_tells_no_more():
    """A greeting names an entry only where the table of its sender has its directory."""
    shard = Shard(19)
    produce(shard, shard.topic("t"), 2)
    lost, other = followers(shard)
    old = lost.files, lost.uuid, lost.known
    assert lost.entry == lost.replica.places.entry > 0  # pyright: ignore[reportOptionalMemberAccess]
    lose(shard, lost)
    shard.rounds(5)
    assert lost.entry == 0
    replace(shard, lost)
    shard.until(lambda: is_whole(shard))
    assert lost.entry == lost.replica.places.entry  # pyright: ignore[reportOptionalMemberAccess]
    lost.crash(power=False)
    lost.files, lost.uuid, lost.known = old
    lost.start()
    assert 0 < lost.entry < other.entry
    shard.rounds(10)
    assert lost.replica is not None
    assert lost.replica.core.leader == 0


class ReplacingLife(MemberLife):
    """A life in which disks are lost over and over: each once all members have joined again."""

    def fault(self, member: Member) -> None:
        if self.chance.random() < 0.5:
            super().fault(member)
        elif self.chance.random() < 0.5:
            self.shard.rounds(8)
        elif self.lost and not self.is_joined():
            self.replace()
        elif self.damaged is None and not self.rotten:
            self.shard.count("wiped again" if self.lost else "wiped")
            self.wipe(member)

    def is_joined(self) -> bool:
        replicas = [each.replica for each in self.shard.members.values()]
        tables = [each.directories for each in replicas if each]
        return all(each.is_settled for each in tables) and [each.table.uuids for each in tables] == [
            {each.number: each.uuid for each in self.shard.members.values()}
        ] * len(replicas)


def test_nothing_is_lost_where_disks_are_lost_one_after_the_other(seed):
    lives = [ReplacingLife(seed + each) for each in range(8)]
    shards = [life.run() for life in lives]
    assert sum(shard.counts.get("wiped again", 0) for shard in shards) > 0
