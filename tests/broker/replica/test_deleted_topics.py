"""Topics that are deleted: their files go behind a checkpoint that does not name them."""

from __future__ import annotations

from typing import Any

from penstock.transport import messages as m
from support.damaged import a_follower, is_whole, produce
from support.members import DATA, Shard


def delete(shard: Shard, topic: bytes) -> None:
    assert isinstance(shard.ask(lambda number: m.DeleteTopic(number, topic)), m.Done)


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
