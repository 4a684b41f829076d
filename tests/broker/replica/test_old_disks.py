"""An old disk that comes back beside the one that replaced it: two majorities that share no node never decide."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import pytest
from penstock.broker.member.directory import KnownPeers
from penstock.broker.raft.messages import Entry, EntryKind, Kind, Message
from penstock.broker.replica import acked
from penstock.storage import layout
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.damaged import flip
from support.members import DATA, Member, Shard
from support.writeback import WritebackFiles

from .test_lost_disks import ReplacingLife, followers, is_whole, lose, produce, replace


class Disk(NamedTuple):
    """What a member runs on."""

    files: WritebackFiles
    uuid: bytes
    known: KnownPeers


def taken_out(member: Member) -> Disk:
    """The disk of a member, whose machine is switched off."""
    member.crash(power=True)
    return Disk(member.files, member.uuid, member.known)


def put_in(member: Member, disk: Disk) -> None:
    """Run the member on another of its disks."""
    member.files, member.uuid, member.known = disk
    member.start()


def saves_nothing(member: Member) -> None:
    """No checkpoint of this member is done before it ends: it has many logs to sync, or its disk is slow."""
    assert member.replica is not None
    member.replica._checkpoints.work = lambda replica, *, begin: None


def try_alone(shard: Shard, topic: bytes, members: list[Member]) -> None:
    """Let these members run without the others, which are down, and let whichever leads take a record."""
    for member in shard.members.values():
        if member not in members:
            member.crash(power=True)
        elif not member.is_up:
            member.start()
    shard.network.clear()
    shard.rounds(60)
    for member in members:
        if member.leads:
            shard.send(member, lambda number: m.Produce(number, topic, 0), bytes(encode([b"x"])))
    shard.rounds(10)


@pytest.mark.parametrize("size", [3, 5])
def test_a_member_that_forgets_a_replacement_and_the_old_disk_are_no_second_majority(size):
    """It has the entries of the whole replacement, and no checkpoint of any. It goes by the oldest members again, and
    so do the old disk and a member that was down. The others go by the newest, with the new disk."""
    shard = Shard(20, size=size)
    topic = shard.topic("t")
    produce(shard, topic, 2)
    lost, forgets, *stale = followers(shard)[: 2 + size // 4]
    for member in stale:
        member.crash(power=True)
    old = taken_out(lost)
    saves_nothing(forgets)
    lose(shard, lost)
    replace(shard, lost)
    shard.rounds(40)
    rest = [member for member in shard.members.values() if member not in (lost, forgets, *stale)]
    new = taken_out(lost)
    put_in(lost, old)
    forgets.crash(power=True)
    try_alone(shard, topic, [forgets, lost, *stale])
    old = taken_out(lost)
    put_in(lost, new)
    try_alone(shard, topic, [*rest, lost])
    shard.heal()
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 1)
    shard.invariants.check(full=True)


@pytest.mark.parametrize("gone", [False, True])
def test_a_newest_checkpoint_that_has_rotted_or_is_gone_is_no_way_back_to_older_members(gone):
    """It is that of the removal of one of two disks. A member that begins by the one before it knows neither removal,
    and would be a majority of the first members with both old disks, beside the other two."""
    shard = Shard(23, size=5)
    topic = shard.topic("t")
    produce(shard, topic, 2)
    first, second, forgets, _ = followers(shard)
    never_goes_on(shard)
    old = {member: taken_out(member) for member in (first, second)}
    for member in old:
        member.wipe()
    replace(shard, first)
    shard.until(lambda: forgets.replica and has_removed(forgets, first) and not owes_change(forgets))
    saves_nothing(forgets)
    replace(shard, second)
    shard.until(lambda: has_removed(forgets, second))
    forgets.crash(power=True)
    newest = max(name for name in forgets.files.contents if name.startswith(f"{DATA}/order/snapshot-"))
    if gone:
        del forgets.files.contents[newest]
    else:
        flip(forgets, newest, 80)
    produce(shard, topic, 2)
    rest = [member for member in shard.members.values() if member not in (forgets, *old)]
    new = {member: taken_out(member) for member in old}
    for member, disk in old.items():
        put_in(member, disk)
    try_alone(shard, topic, [forgets, *old])
    for member, disk in new.items():
        member.crash(power=True)
        put_in(member, disk)
    try_alone(shard, topic, rest)
    shard.heal()
    produce(shard, topic, 1)
    shard.until(lambda: forgets.replica and forgets.replica.places.entry == shard.invariants.last)
    shard.invariants.check(full=True)


def never_goes_on(shard: Shard) -> None:
    """The leader makes no learner of a member that was removed."""
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    leader.replica.directories.next_change = lambda status: None


def has_removed(member: Member, other: Member) -> bool:
    assert member.replica is not None
    return other.number not in member.replica.core.status().configuration.members()


def owes_change(member: Member) -> bool:
    assert member.replica is not None
    return member.replica._checkpoints.owes_change


def test_a_change_that_an_opening_knows_by_a_later_snapshot_alone_is_saved_before_the_next():
    shard = Shard(24, snapshot_batches=1)
    topic = shard.topic("t")
    lost, member = followers(shard)
    never_goes_on(shard)
    saves_nothing(member)
    lost.wipe()
    replace(shard, lost)
    produce(shard, topic, 3)
    assert has_removed(member, lost)
    member.crash(power=True)
    member.start()
    assert has_removed(member, lost)
    assert member.replica is not None
    assert lost.number in member.replica._storage.checkpoint.members().configuration.voters
    assert owes_change(member)
    shard.rounds(10)
    assert not owes_change(member)
    member.crash(power=True)
    member.start()
    assert not owes_change(member)


def test_nothing_more_changes_before_a_leader_has_saved_the_last_change():
    shard = Shard(21)
    topic = shard.topic("t")
    lost = followers(shard)[0]
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    lose(shard, lost)
    work = leader.replica._checkpoints.work
    saves_nothing(leader)
    replace(shard, lost)
    shard.rounds(20)
    status = leader.replica.core.status()
    assert lost.number not in status.configuration.members()
    assert "written down" in leader.replica.replace(lost.number, lost.uuid)
    leader.replica._checkpoints.work = work
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 1)


def test_an_append_is_taken_up_to_the_change_that_has_to_wait():
    shard = Shard(22)
    produce(shard, shard.topic("t"), 1)
    shard.rounds(10)
    follower = followers(shard)[0]
    replica = follower.replica
    assert replica is not None
    last, term = replica.order.last_index(), replica.core.term

    def append(behind: int, kinds: str) -> Message:
        """Entries behind one: c for a change, . for another."""
        entries = [
            Entry(behind + place, term, b"", EntryKind.CHANGE if kind == "c" else EntryKind.NORMAL)
            for place, kind in enumerate(kinds, 1)
        ]
        return Message(
            Kind.APPEND, follower.number, replica.core.leader, term, index=behind, log_term=term, entries=entries
        )

    def admitted(behind: int, kinds: str) -> int:
        return len(replica._changes.admitted(append(behind, kinds)))

    assert [admitted(last, kinds) for kinds in ("..", ".c.", ".c.c.", "cc")] == [2, 3, 3, 1]
    checkpoints = replica._checkpoints
    checkpoints._changed = True
    assert [admitted(last, kinds) for kinds in ("..", ".c.", "c")] == [2, 1, 0]
    checkpoints._changed, checkpoints._begun = False, replica._storage.checkpoint
    assert [admitted(last, kinds) for kinds in ("..", ".c.", "c")] == [2, 1, 0]
    checkpoints._begun = None
    replica.core.step(append(last, "c"))
    assert [admitted(last + 1, kinds) for kinds in ("..", ".c.")] == [2, 1]
    assert [admitted(last, kinds) for kinds in ("c.", "c.c")] == [2, 2], "which may be the same change, again"
    replica.core.step(append(last + 1, ".."))
    assert [admitted(last + 3, kinds) for kinds in ("..", ".c.")] == [2, 1]
    assert admitted(last + 9, "c") == 0, "whose place is not here, so that the core refuses it"


class OldDiskLife(ReplacingLife):
    """A life in which a disk that was replaced comes back for a while. One other member may have saved no change of the
    members since, and be alone with it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.old: dict[int, Disk] = {}
        self.new: dict[int, Disk] = {}
        """Disks that wait while the old one runs."""
        self.slow: Member | None = None

    def wipe(self, member: Member) -> None:
        self.old[member.number] = taken_out(member)
        super().wipe(member)
        slow = self.chance.choice(list(self.shard.members.values()))
        if slow is not member and slow.replica is not None:
            self.slow = slow
            saves_nothing(slow)

    def fault(self, member: Member) -> None:
        if self.chance.random() < 0.8 or member.number not in self.old:
            super().fault(member)
        elif member.number in self.new:
            self.turn_back(member)
        elif self.is_replaced(member) and not self.new:
            self.shard.count("old disk")
            self.new[member.number] = taken_out(member)
            put_in(member, self.old[member.number])
            if self.slow not in (None, member):
                self.forget(member, self.slow)

    def is_replaced(self, member: Member) -> bool:
        """Whether a leader has the new directory as the member's: before that, the old one is the right one."""
        leader = self.shard.leader
        if leader is None or leader is member or leader.replica is None:
            return False
        return leader.replica.directories.table.uuids[member.number] == member.uuid

    def forget(self, member: Member, slow: Member) -> None:
        """The slow member restarts, alone with the old disk of another."""
        self.shard.count("forgets")
        slow.crash(power=True)
        slow.start()
        pair = {member.number, slow.number}
        self.shard.cut |= {(a, b) for a in self.shard.numbers for b in self.shard.numbers if (a in pair) != (b in pair)}
        self.shard.rounds(30)

    def is_joined(self) -> bool:
        return not self.new and super().is_joined()

    def replace(self) -> None:
        """The operator asks for no old disk."""
        lost, self.lost = self.lost, [each for each in self.lost if each.number not in self.new]
        super().replace()
        self.lost = lost

    def turn_back(self, member: Member) -> None:
        self.old[member.number] = taken_out(member)
        put_in(member, self.new.pop(member.number))
        self.shard.cut.clear()

    def end(self) -> None:
        for number in list(self.new):
            self.turn_back(self.shard.members[number])
        if self.slow is not None:
            self.slow.crash(power=True)
        super().end()


class OfFive(OldDiskLife):
    """The same with five members."""

    CONFIG: ClassVar[dict[str, float]] = {**OldDiskLife.CONFIG, "size": 5}


@pytest.mark.parametrize(("life", "lives"), [(OldDiskLife, 24), (OfFive, 8)])
def test_an_old_disk_that_comes_back_decides_nothing(seed, life, lives):
    shards = [life(seed + each).run() for each in range(lives)]
    assert sum(shard.counts.get("forgets", 0) for shard in shards) > 0


def test_a_checkpoint_says_beside_the_order_too_what_is_committed():
    shard = Shard(25)
    produce(shard, shard.topic("t"), 2)
    replica = followers(shard)[0].replica
    assert replica is not None
    log = replica.order.log
    log.opened[-1].file.pwritev([bytes(64)], acked.POSITION)
    replica.order._noted = (0, 0)
    assert list(acked.found(log, acked.COMMITTED)) == []
    replica.checkpoint()
    (word,) = acked.found(log, acked.COMMITTED)
    assert layout.split(word) == (log.generation, replica.order.commit)
