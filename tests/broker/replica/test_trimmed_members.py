"""What retention takes goes on every member, once a checkpoint covers it, whether the member ever leads or not."""

from __future__ import annotations

import pytest
from penstock.broker.replica import order_checkpoints
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.broker.replica.member_logs import MemberLogs
from penstock.transport import messages as m
from support.damaged import a_follower, is_whole, produce, segments
from support.engine import records
from support.members import DATA, Member, Shard

LARGE = INLINE_BYTES + 1


def begun(seed: int, *, every: int = 8, size: int = LARGE, count: int = 60) -> tuple[Shard, bytes]:
    """A shard with a topic that keeps one segment or two of each partition, and records of many more."""
    shard = Shard(seed, checkpoint_every=every, housekeeping_s=0.5)
    topic = shard.topic("t", segment_bytes=65536, retention_bytes=65536)
    produce(shard, topic, count, size)
    return shard, topic


def path_of(topic: bytes, partition: int = 0) -> str:
    return f"{DATA}/topics/{topic.hex()}/{partition}"


def kept(member: Member, topic: bytes) -> int:
    return sum(len(segments(member, path_of(topic, partition))) for partition in range(2))


def are_trimmed(shard: Shard, topic: bytes, most: int = 6) -> bool:
    return all(kept(member, topic) <= most for member in shard.members.values())


def values(shard: Shard, topic: bytes, first: int, end: int) -> list[bytes]:
    """Records of the first partition, as the leader gives them."""
    found: list[bytes] = []
    while len(found) < end - first:
        member, at = shard.leader, first + len(found)
        assert member is not None
        request = shard.send(member, lambda n, at=at: m.Fetch(n, topic, 0, at, -1, 1 << 20, 0))
        shard.until(lambda member=member, request=request: shard.answer(member, request))
        found += records(member.port.answers[request][1], at)
    return found


@pytest.mark.parametrize("size", [12_000, LARGE])
def test_members_that_never_lead_free_what_retention_takes(size):
    shard, topic = begun(30, size=size)
    leader = shard.leader
    whole = 60 * size // 65536
    assert whole >= 10
    shard.until(lambda: are_trimmed(shard, topic), rounds=900)
    assert shard.leader is leader
    assert leader is not None
    assert {known for each in shard.members.values() for known, _ in each.roles} == {0, leader.number}
    assert shard.counts["freed by a follower"] >= 2
    shard.invariants.check(full=True)


def test_order_logs_and_snapshots_of_states_do_not_add_up_on_a_follower():
    shard, topic = begun(31)
    member = a_follower(shard)
    produce(shard, topic, 30, LARGE)
    for path in (path_of(topic), f"{DATA}/order", f"{DATA}/metadata"):
        assert len([name for name in member.files.listdir(path) if name.startswith("snapshot-")]) <= 2
    assert len(segments(member, f"{DATA}/order")) <= 3


def test_nothing_goes_before_a_checkpoint_covers_it():
    shard, topic = begun(32, every=10_000)
    shard.rounds(60)
    for member in shard.members.values():
        assert member.replica is not None
        names = segments(member, path_of(topic))
        assert len(names) >= 8
        assert member.replica._checkpoints._store.departing.bytes > 0
        member.replica.checkpoint()
        assert len(segments(member, path_of(topic))) < len(names)
    for member in shard.members.values():
        member.crash(power=True)
    shard.heal()
    produce(shard, topic, 2)
    shard.until(lambda: is_whole(shard))
    assert "damage" not in shard.counts


@pytest.mark.parametrize(("ticks", "size"), [(20, 1 << 60), (1 << 60, 65536)])
def test_files_that_wait_bring_a_checkpoint_about(monkeypatch, ticks, size):
    monkeypatch.setattr(order_checkpoints, "WAIT_TICKS", ticks)
    monkeypatch.setattr(order_checkpoints, "WAITING_BYTES", size)
    shard, topic = begun(33, every=10_000)
    shard.until(lambda: are_trimmed(shard, topic), rounds=300)


def test_files_that_wait_bring_about_no_checkpoint_in_every_turn(monkeypatch):
    monkeypatch.setattr(order_checkpoints, "WAIT_TICKS", 50)
    shard, topic = begun(34, every=10_000)
    shard.until(lambda: are_trimmed(shard, topic), rounds=300)
    member = a_follower(shard)
    assert member.replica is not None
    shard.rounds(200)
    entry = member.replica._checkpoints.entry
    produce(shard, topic, 2)
    shard.rounds(100)
    assert member.replica._checkpoints.entry == entry, "nothing waits any more"


def test_files_that_are_noted_again_wait_again(monkeypatch):
    monkeypatch.setattr(order_checkpoints, "WAIT_TICKS", 60)
    shard, topic = begun(39, every=10_000, count=20)
    member = a_follower(shard)
    assert member.replica is not None
    found, first = set[int](), shard.now_s
    for _ in range(40):
        produce(shard, topic, 2, LARGE)
        found.add(member.replica._checkpoints.entry)
    assert 2 <= len(found) <= 2 + (shard.now_s - first) / 6.0


def test_no_checkpoint_is_written_for_files_that_stay(monkeypatch):
    monkeypatch.setattr(order_checkpoints, "WAITING_BYTES", 65536)
    shard, topic = begun(40, every=10_000, count=8)
    member = a_follower(shard)
    assert member.replica is not None
    member.replica.hold(True)
    shard.rounds(20)
    entry = member.replica._checkpoints.entry
    member.replica._checkpoints._store.departing.delete(bytes(16), [], 0)
    member.replica._checkpoints._store.departing.bytes += 65536
    produce(shard, topic, 4)
    assert member.replica._checkpoints.entry == entry


@pytest.mark.parametrize("copied", [True, False])
def test_no_file_goes_while_a_member_copies_a_state(copied):
    shard, topic = begun(35, every=10_000)
    shard.rounds(60)
    member = a_follower(shard)
    replica = member.replica
    assert replica is not None
    if copied:
        replica.hold(True)
    else:
        replica.exchange.catching_up.source = 9
    before = kept(member, topic)
    replica.checkpoint()
    assert kept(member, topic) == before
    replica.hold(False)
    replica.exchange.catching_up.source = 0
    replica.checkpoint()
    assert kept(member, topic) < before


@pytest.mark.parametrize("power", [False, True])
def test_a_member_that_is_killed_before_files_are_gone_frees_them_later(power, monkeypatch):
    shard, topic = begun(36, every=10_000)
    shard.rounds(60)
    member = a_follower(shard)
    assert member.replica is not None
    with monkeypatch.context() as patched:
        patched.setattr(MemberLogs, "erase", lambda logs, entry: None)  # killed between the checkpoint and that
        member.replica.checkpoint()
    before = kept(member, topic)
    member.crash(power=power)
    shard.begin(member)
    assert member.replica is not None
    assert kept(member, topic) == before
    shard.rounds(60)
    produce(shard, topic, 1)
    member.replica.checkpoint()
    assert kept(member, topic) < before


def test_a_trimmed_follower_that_was_killed_leads_with_the_right_records():
    shard, topic = begun(37)
    shard.until(lambda: are_trimmed(shard, topic), rounds=900)
    member, leader = a_follower(shard), shard.leader
    assert leader is not None
    member.crash(power=True)
    produce(shard, topic, 4)
    shard.begin(member)
    shard.until(lambda: is_whole(shard))
    assert "damage" not in shard.counts
    shard.guard(leader, lambda replica: replica.core.transfer(member.number))
    shard.until(lambda: member.leads)
    leader.crash(power=False)
    assert member.replica is not None
    log = next(log for log in member.replica.node.logs if log.path == path_of(topic))
    found = values(shard, topic, log.first_offset, log.end_offset)
    assert log.first_offset > 10
    assert len(found) == log.end_offset - log.first_offset
    assert [int(value.rstrip(b".")) for value in found[:2]] == [2 * log.first_offset, 2 * log.first_offset + 2]
    shard.begin(leader)
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


def test_a_log_whose_needed_beginning_is_gone_is_damage_though_a_snapshot_covers_it():
    shard = Shard(38, housekeeping_s=0.5)
    topic = shard.topic("t", segment_bytes=65536)
    produce(shard, topic, 60, LARGE)
    member = a_follower(shard)
    names = segments(member, path_of(topic))
    assert len(names) >= 4
    assert len([name for name in member.files.listdir(path_of(topic)) if name.startswith("snapshot-")]) >= 1
    member.crash(power=False)
    member.files.unlink(names[0])
    shard.begin(member)
    assert member.recovery is not None
    assert "its state needs what was before" in member.recovery.damage.reason
    shard.until(lambda: is_whole(shard))
    assert segments(member, path_of(topic))[0] == names[0]
    shard.invariants.check(full=True)
