"""A member whose state is another one than its log adds up to, as wrong memory or a fault of the engine makes it."""

from __future__ import annotations

from penstock.broker.engine.logs.history import History
from support.members import Member, Shard


def history_of(member: Member, topic: bytes, partition: int = 0) -> History:
    """The history of a partition."""
    assert member.replica is not None
    path = f"/topics/{topic.hex()}/{partition}"
    found = [member.replica.node.history_of(log.log_id) for log in member.replica.node.logs if log.path.endswith(path)]
    assert found[0] is not None
    return found[0]


def alter(member: Member, topic: bytes) -> None:
    """Let partition 0 know a group that no client has made."""
    member.shard.count("altered")
    member.shard.invariants.altered = True
    history_of(member, topic).committed.groups.moved("altered", 1, 0)


def are_equal(shard: Shard) -> bool:
    """Whether all members are up, and have equal states of all logs."""
    replicas = [member.replica for member in shard.members.values() if member.replica is not None]
    states = [
        {
            log_id: history.committed.encode()
            for log_id in replica.places.applied
            if (history := replica.node.history_of(log_id)) is not None
        }
        for replica in replicas
    ]
    return len(states) == len(shard.members) and all(each == states[0] for each in states)
