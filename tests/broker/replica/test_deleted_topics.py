"""Topics that are deleted: their files go behind a checkpoint that does not name them."""

from __future__ import annotations

from typing import Any

from penstock.storage.data_directory import ASIDE
from penstock.transport import messages as m
from support.damaged import a_follower, is_whole, produce
from support.members import DATA, Member, Shard


def delete(shard: Shard, topic: bytes) -> None:
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)


def installed(seed: int) -> tuple[Shard, Member, bytes]:
    """A member that was away while a topic was deleted, and fetched a state; and a topic that is left."""
    shard = Shard(seed)
    topic, other = shard.topic("t"), shard.topic("other")
    produce(shard, topic, 4)
    produce(shard, other, 4)
    shard.rounds(3)
    member = a_follower(shard)
    member.crash(power=False)
    delete(shard, topic)
    produce(shard, other, 60)
    shard.begin(member)
    shard.until(lambda: is_whole(shard))
    assert shard.counts["installs"] == 1
    return shard, member, other


def set_aside(member: Member) -> list[str]:
    return member.files.listdir(f"{DATA}/{ASIDE}")


def test_files_of_a_topic_that_was_deleted_while_a_member_was_away_go_with_the_next_checkpoint():
    shard, member, other = installed(42)
    opened_at = member.replica.places.entry
    assert len(set_aside(member)) == 2
    member.replica.checkpoint()
    assert len(set_aside(member)) == 2, f"nothing is known behind entry {opened_at}"
    produce(shard, other, 2)
    member.replica.checkpoint()
    assert set_aside(member) == []
    assert member.files.listdir(f"{DATA}/topics") == [other.hex()]
    shard.invariants.check(full=True)


def test_what_a_topic_has_and_what_was_damaged_stays_aside():
    shard, member, other = installed(43)
    kept = [f"{log.log_id.hex()}-00000000" for log in member.replica.node.logs]
    kept += ["0-00000000", "order-00000000", f"{bytes(16).hex()}", f"{bytes(16).hex()}-0000000"]
    for name in kept:
        member.files.mkdir(f"{DATA}/{ASIDE}/{name}")
    member.files.mkdir(f"{DATA}/topics/strange")
    produce(shard, other, 2)
    member.replica.checkpoint()
    assert sorted(set_aside(member)) == sorted(kept)
    assert member.files.listdir(f"{DATA}/topics") == [other.hex(), "strange"]


def test_a_deletion_that_was_applied_before_an_opening_is_in_the_next_checkpoint():
    shard = Shard(41, checkpoint_every=10_000)
    topic, other = shard.topic("t"), shard.topic("other")
    produce(shard, topic, 2)
    member = a_follower(shard)
    assert member.replica is not None
    member.replica.checkpoint()
    delete(shard, topic)
    deleted = member.replica.places.entry
    for number in range(12):  # so that a snapshot of the catalogue tells the next opening of the deletion
        delete(shard, shard.topic(f"more-{number}", 1))
    shard.rounds(2)
    for _ in range(2):
        member.crash(power=True)
        shard.begin(member)
        assert member.recovery is None, member.recovery and member.recovery.damage
        replica: Any = member.replica
        assert replica.places.entry >= deleted
        replica.checkpoint()
        assert not member.files.exists(f"{DATA}/topics/{topic.hex()}")
    produce(shard, other, 2)
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)
