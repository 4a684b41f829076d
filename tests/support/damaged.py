"""Shards with a member that has lost something."""

from __future__ import annotations

from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import DATA, Member, Shard


def produce(shard: Shard, topic: bytes, count: int, size: int = 3_000) -> None:
    for number in range(count):
        value = (b"%d" % number).ljust(size, b".")
        answer = shard.ask(lambda n, at=number: m.Produce(n, topic, at % 2), bytes(encode([value])))
        assert isinstance(answer, m.Produced), answer


def segments(member: Member, path: str) -> list[str]:
    return sorted(name for name in member.files.contents if name.startswith(f"{path}/") and name.endswith(".segment"))


def cut(member: Member, path: str, size: int = 0) -> None:
    content = member.files.contents[path]
    del content.data[size:]
    del member.files.disk(content).data[size:]


def flip(member: Member, path: str, place: int) -> None:
    content = member.files.contents[path]
    content.data[place] ^= 1
    member.files.disk(content).data[place] ^= 1


def rot(member: Member, topic: bytes, partition: int, value: bytes) -> None:
    """Flip a bit in the middle of a value on a member's disk, which no header tells of."""
    for path in segments(member, f"{DATA}/topics/{topic.hex()}/{partition}"):
        place = bytes(member.files.contents[path].data).find(value)
        if place >= 0:
            flip(member, path, place + len(value) // 2)
            return
    raise AssertionError(f"{value[:20]!r} is on no segment")


def a_follower(shard: Shard) -> Member:
    return next(each for each in shard.members.values() if each is not shard.leader)


def is_whole(shard: Shard) -> bool:
    entries = {each.replica.places.entry if each.replica else 0 for each in shard.members.values()}
    return len(entries) == 1


def damaged(seed: int, *, power: bool = False, behind: int = 0) -> tuple[Shard, bytes, Member]:
    """A shard with a topic, and a follower that has lost the log of its first partition and recovers.

    `behind`: records that it lacks.
    """
    shard = Shard(seed)
    topic = shard.topic("t")
    produce(shard, topic, 30)
    member = a_follower(shard)
    member.crash(power=power)
    produce(shard, topic, behind)
    cut(member, segments(member, f"{DATA}/topics/{topic.hex()}/0")[0])
    shard.begin(member)
    assert member.recovery is not None
    return shard, topic, member
