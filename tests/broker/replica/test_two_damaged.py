"""Two of three members with damage that is not mended: the shard stands still, and the way out of docs/cluster.md
loses nothing."""

from __future__ import annotations

import pytest
from penstock.broker.replica.damage import note, noted
from penstock.storage.batch import encode
from penstock.storage.data_directory import DAMAGED
from penstock.storage.errors import Corrupt
from penstock.transport import messages as m
from support.damaged import cut, is_whole, produce, rot, segments
from support.members import DATA, Member, Shard


def rotten(shard: Shard, member: Member, topic: bytes, partition: int, value: bytes) -> None:
    """Flip a bit of a value, and start the member anew with a note of that."""
    path = f"{DATA}/topics/{topic.hex()}/{partition}"
    rot(member, topic, partition, value)
    member.crash(power=False)
    note(member.files, DATA, f"a batch of {path} cannot be read", path)
    shard.begin(member)
    assert member.recovery is not None


def scene(seed: int, partitions: tuple[int, int]) -> tuple[Shard, bytes, Member, Member, Member]:
    """A shard with a sound member and two that recover, each from rot in a value of a partition."""
    shard = Shard(seed)
    topic = shard.topic("t")
    produce(shard, topic, 10)
    shard.rounds(3)
    sound, first, second = shard.leader, *(each for each in shard.members.values() if each is not shard.leader)
    assert sound is not None
    for member, partition in ((first, partitions[0]), (second, partitions[1])):
        rotten(shard, member, topic, partition, (b"%d" % (4 + partition)).ljust(3_000, b"."))
    shard.rounds(40)
    assert shard.leader is None
    return shard, topic, sound, first, second


@pytest.mark.parametrize("partitions", [(0, 1), (0, 0)])
def test_one_whose_files_open_takes_part_again_without_its_note_and_both_heal(partitions: tuple[int, int]):
    shard, topic, sound, first, second = scene(1, partitions)
    request = shard.send(sound, lambda n: m.Produce(n, topic, 0), bytes(encode([b"x"])))
    shard.rounds(60)
    assert not isinstance(shard.answer(sound, request), m.Produced)
    assert shard.leader is None, "it stands still for good"
    first.crash(power=False)
    first.files.unlink(f"{DATA}/{DAMAGED}")
    first.start()
    assert first.replica is not None
    leader = shard.until(lambda: shard.leader)
    if leader is not sound:
        assert leader.replica.core.transfer(sound.number)
        shard.until(lambda: shard.leader is sound)
    produce(shard, topic, 2)
    shard.until(lambda: second.replica is not None and is_whole(shard), rounds=400)
    path = f"{DATA}/topics/{topic.hex()}/{partitions[0]}"
    shard.guard(first, lambda replica: replica.heartbeats.rotten(Corrupt(f"{path} rots", path=path)))
    shard.until(lambda: first.recovery is not None)
    shard.until(lambda: is_whole(shard), rounds=400)
    assert not any(noted(each.files, DATA) for each in shard.members.values())
    sound.crash(power=True)
    produce(shard, topic, 2)
    shard.heal()
    shard.until(lambda: is_whole(shard))
    shard.invariants.check(full=True)


def test_one_that_lost_more_says_so_again():
    _, topic, _, first, _ = scene(2, (0, 1))
    first.crash(power=False)
    first.files.unlink(f"{DATA}/{DAMAGED}")
    cut(first, segments(first, f"{DATA}/topics/{topic.hex()}/0")[0])
    first.start()
    assert first.replica is None
    assert noted(first.files, DATA) is not None
