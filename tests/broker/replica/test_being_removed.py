"""Segments that a keeper has removed, which the replica has not heard of yet: nothing of that is damage."""

from __future__ import annotations

import pytest
from penstock.broker.raft.messages import Kind, Message
from penstock.broker.replica.bodies import Gone, bodies_of
from penstock.broker.replica.catchup_messages import AskManifest, encode
from penstock.broker.replica.entries import INLINE_BYTES
from penstock.storage.errors import Corrupt
from support.damaged import a_follower, produce, segments
from support.members import DATA, Member, Shard


@pytest.fixture
def shard() -> Shard:
    return Shard(40, checkpoint_every=10_000)


def removed(shard: Shard) -> tuple[Member, bytes]:
    """A leader that does not know that the oldest segment of a log is gone, and the id of the log."""
    topic = shard.topic("t", segment_bytes=65536)
    produce(shard, topic, 12, INLINE_BYTES + 1)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    path = f"{DATA}/topics/{topic.hex()}/0"
    log = next(log for log in leader.replica.logs() if log.path == path)
    oldest, *others = segments(leader, path)
    assert others
    leader.files.unlink(oldest)
    leader.files.unlink(oldest.replace(".segment", ".index"))
    log._own_reader().refresh()  # as when the log goes on to another segment: the oldest one is not open any more
    return leader, log.log_id


def test_batches_of_it_are_gone(shard: Shard):
    leader, log_id = removed(shard)
    assert leader.replica is not None
    met: list[Corrupt] = []
    order, node = leader.replica.order, leader.replica.node
    entries = [order.entries(index, index + 1)[0] for index in range(1, order.last_index() + 1)]
    named = [entry for entry in entries if len(entry.data) and log_id in bytes(entry.data)]
    assert bodies_of(named[-1:], node, met.append) != Gone(named[-1].index)
    assert bodies_of(named, node, met.append) == Gone(named[0].index)
    assert met == []


def test_a_manifest_that_would_name_it_is_asked_for_again(shard: Shard):
    leader, _ = removed(shard)
    replica, member = leader.replica, a_follower(shard)
    assert replica is not None
    asked = Message(Kind.SHIP, leader.number, member.number, context=encode(AskManifest()))
    replica.step(asked)
    for _ in range(10):
        shard.turn(leader)
    assert leader.replica is replica
    assert not replica.exchange.is_busy
    assert not replica.keeps_files
