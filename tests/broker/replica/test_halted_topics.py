"""A proposed deletion of a topic halts its logs: no entry behind it names them."""

from __future__ import annotations

from penstock.broker.replica.entries import INLINE_BYTES, batches_of
from penstock.storage.batch import encode
from penstock.storage.log_ids import own_id
from penstock.transport import messages as m
from support.damaged import produce
from support.members import DATA, Member, Shard


def one(size: int) -> bytes:
    return bytes(encode([b"." * size]))


def named(member: Member, first: int, log_id: bytes | None) -> list[int]:
    """The entries from `first` on that name a batch of a log."""
    assert member.replica is not None
    order = member.replica.order
    entries = order.entries(first, order.last_index() + 1) or []
    return [
        entry.index for entry in entries for _, row in batches_of(entry.kind, entry.data) if row.log_id == log_id
    ]  # fmt: skip


def test_no_entry_names_a_log_of_a_topic_behind_its_proposed_deletion():
    shard = Shard(40)
    topic, other = shard.topic("t"), shard.topic("other")
    produce(shard, topic, 2)
    leader = shard.leader
    assert leader is not None
    assert leader.replica is not None
    first = leader.replica.order.last_index() + 1
    requests: list[int] = []
    for at, size in enumerate((100, INLINE_BYTES + 1, 100)):
        requests.append(shard.send(leader, lambda number: m.Produce(number, topic, 0), one(size)))
        if at == 0:
            deletion = shard.send(leader, lambda number: m.DeleteTopic(number, topic))
        shard.turn(leader)  # nothing of it is committed before the others hear of it
    kept = shard.send(leader, lambda number: m.Produce(number, other, 0), one(100))
    shard.rounds(8)
    log_id = own_id(f"{DATA}/topics/{topic.hex()}/0")
    assert named(leader, first, log_id) == []
    assert isinstance(shard.answer(leader, deletion), m.Done)
    assert {shard.answer(leader, request).code for request in requests} == {"unknown_topic"}
    assert isinstance(shard.answer(leader, kept), m.Produced)
    assert "closed by an error" not in shard.counts
