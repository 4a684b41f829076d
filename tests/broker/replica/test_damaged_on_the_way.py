"""What does not verify when it comes from another member is refused, and is no damage of this one."""

from __future__ import annotations

import pytest
from penstock.broker.raft.messages import Kind
from penstock.broker.replica.damage import noted
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.damaged import a_follower, damaged, is_whole, produce
from support.members import DATA, Member, Sent, Shard


def flipped_on_the_way(shard: Shard, sent: Sent) -> None:
    """Flip a bit in the middle of the first batch of a message, which its header does not tell of."""
    key, body = next(iter(sent.bodies.items()))
    middle = len(body) // 2
    bad = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
    shard.network[shard.network.index(sent)] = sent._replace(bodies={**sent.bodies, key: bad})


def meets(shard: Shard, member: Member, kind: Kind) -> Sent:
    """The first message of a kind to a member that has batches; everything before it is delivered."""
    for _ in range(1000):
        if not shard.network:
            shard.now_s += 0.1
            for each in shard.members.values():
                shard.tick(each)
                shard.turn(each)
            continue
        first = shard.network[0]
        if first.message.to == member.number and first.message.kind is kind and first.bodies:
            return first
        shard.turn(shard.deliver(0))
    raise AssertionError(f"no {kind} with batches")


def test_a_batch_that_is_damaged_on_its_way_to_a_follower_is_no_damage_of_its_disk():
    shard = Shard(18)
    topic = shard.topic("t")
    leader, member = shard.leader, a_follower(shard)
    assert leader is not None
    value = bytes(encode([bytes(INLINE_BYTES + 1)]))
    request = shard.send(leader, lambda number: m.Produce(number, topic, 0), value)
    flipped_on_the_way(shard, meets(shard, member, Kind.APPEND))
    shard.turn(shard.deliver(0))
    assert member in shard.closed, "it begins anew from what it has"
    assert noted(member.files, DATA) is None
    shard.until(lambda: is_whole(shard) and shard.answer(leader, request))
    assert member.recovery is None
    assert "damage" not in shard.counts


@pytest.mark.parametrize("behind", [0, 40])
def test_a_batch_that_is_damaged_on_its_way_to_a_member_that_fetches_is_fetched_again(behind):
    shard, topic, member = damaged(19, behind=behind)
    found = noted(member.files, DATA)
    flipped_on_the_way(shard, meets(shard, member, Kind.PIECE))
    shard.turn(shard.deliver(0))
    assert member.recovery is not None
    assert noted(member.files, DATA) == found
    assert not member.recovery.catching_up.fetched_bytes
    shard.until(lambda: is_whole(shard))
    produce(shard, topic, 1)


def test_a_batch_of_the_catalogue_that_is_damaged_on_its_way_makes_no_log():
    shard = Shard(20)
    shard.topic("t")
    leader, member = shard.leader, a_follower(shard)
    assert leader is not None
    shard.network.clear()
    request = shard.send(leader, lambda number: m.CreateTopic(number, "another", 2, {}))
    while not (found := [each for each in shard.network if each.message.to == member.number and each.message.entries]):
        shard.turn(leader)
    (entry,) = found[0].message.entries
    entry.data = bytes(entry.data).replace(b"another", b"Another")
    shard.deliver(shard.network.index(found[0]))
    assert member in shard.closed
    assert noted(member.files, DATA) is None
    assert len(member.files.listdir(f"{DATA}/topics")) == 1
    shard.until(lambda: is_whole(shard) and shard.answer(leader, request))
    assert "damage" not in shard.counts
