"""Tying: the effect beside records that are members of a barrier.

Contract: decides and changes nothing. A batch that stands already is not judged: its barrier may be over by now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidRequest
from ..queues.topic_queues import check_serves, proposed
from ..tables import effects as fx

if TYPE_CHECKING:
    from ....storage.batch import Batch
    from ....transport.barrier_messages import Tie
    from ..guard import Guard
    from ..logs.partition import Partition
    from ..logs.topics import Topics


def tied(partition: Partition, batch: Batch, tie: Tie, topics: Topics, guard: Guard) -> fx.MembersTied:
    """The effect of a tie on a batch that is about to be proposed.

    Raises InvalidRequest for one that does not fit its barrier, or whose barrier is not there; UnknownGroup, Forbidden.
    """
    check_serves(partition)
    proposed(partition, tie.group)
    home = topics.partition(tie.topic, tie.partition)
    barrier = home.proposed.barriers.by_id.get(tie.barrier)
    if barrier is None:
        raise InvalidRequest(
            f"{home!r} has no barrier {tie.barrier.hex()}: it has fired, its time is over, it was deleted, or it was "
            "not set before its members were sent"
        )
    guard.check_owner(guard.principal, barrier.owner, f"barrier {tie.barrier.hex()}", f"topic:{home.topic}")
    if len(tie.members) != batch.record_count:
        raise InvalidRequest(f"a batch of {batch.record_count} records names {len(tie.members)} members: one each")
    if tie.members and max(tie.members) >= barrier.members:
        raise InvalidRequest(
            f"member {max(tie.members)} is not of barrier {tie.barrier.hex()}: it has 0 to {barrier.members - 1}"
        )
    return fx.MembersTied(partition.predicted_end, tie.group, tie.topic, tie.partition, tie.barrier, tie.members)
