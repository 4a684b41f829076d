"""A leader that hears of the next one while messages of its own lead are still to be sent."""

from __future__ import annotations

from penstock.broker.raft.messages import Kind
from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.members import Member, Sent, Shard

LARGE = b"v" * 50_000
"""In its log alone, in a segment of its own: the entry only names it, and a cut takes it from the disk at once."""


def deliver(shard: Shard, members: list[Member]) -> None:
    """What is on its way to some members arrives."""
    for sent in [each for each in shard.network if shard.members[each.message.to] in members]:
        shard.deliver(shard.network.index(sent))


def go_on(shard: Shard, members: list[Member]) -> None:
    """Some members hear each other alone, until one of them leads."""
    for _ in range(60):
        for member in members:
            shard.tick(member)
            shard.turn(member)
        deliver(shard, members)
        if any(each.leads for each in members):
            return


def take(shard: Shard, kind: Kind) -> Sent:
    """Take the only message of a kind out of the network."""
    (sent,) = [each for each in shard.network if each.message.kind is kind]
    return shard.network.pop(shard.network.index(sent))


def test_a_deposed_leader_that_was_to_send_what_it_cut_applies_what_the_next_one_commits():
    shard = Shard(51)
    topic = shard.topic("t", segment_bytes=64 << 10)
    leader = shard.until(lambda: shard.leader)
    follower, third = [each for each in shard.members.values() if each is not leader]
    shard.guard(leader, lambda replica: replica.core.report_unreachable(follower.number))  # one entry, until it answers
    for _ in range(2):
        shard.send(leader, lambda number: m.Produce(number, topic, 0), bytes(encode([LARGE])))
        shard.turn(leader)
    deliver(shard, [follower])
    shard.turn(follower)
    answer = take(shard, Kind.APPEND_ACK)
    shard.network.clear()
    go_on(shard, [follower, third])
    assert (leader.leads, follower.leads) == (True, True)

    shard.network.insert(0, answer)
    deliver(shard, [leader])
    shard.turn(leader)
    assert not leader.leads
    shard.until(lambda: len({each.replica and each.replica.places.entry for each in shard.members.values()}) == 1)
    answered = shard.ask(lambda number: m.Produce(number, topic, 0), bytes(encode([LARGE])))
    assert (answered.offset, leader.starts) == (1, 1)
    shard.invariants.check(full=True)
