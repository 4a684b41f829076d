"""The lag of a consumer: records it has yet to hand out, by the broker's present ends."""

from __future__ import annotations

from ...broker.errors import Unavailable
from ...transport.messages import Topic
from ..connection.steps import Steps
from ..connection.unavailable import is_closed
from .core import ConsumerCore


def lags(core: ConsumerCore, deadline: float) -> Steps[dict[int, int]]:
    """Records between position and committed end, by partition that the consumer reads."""
    yield from core.joined(deadline)
    return _behind(core, (yield from core.connection.find_topic(core.topic.name, deadline)))


def lag(core: ConsumerCore, deadline: float) -> Steps[int]:
    """The sum of `lags`. Raises Unavailable while the topic has a partition of which it is not known."""
    yield from core.joined(deadline)
    topic = yield from core.connection.find_topic(core.topic.name, deadline)
    for partition in topic.partitions:
        if is_closed(partition):
            raise Unavailable(partition.unavailable)
    return sum(_behind(core, topic).values())


def _behind(core: ConsumerCore, topic: Topic) -> dict[int, int]:
    ends = {found.partition: found.end for found in topic.partitions}
    return {p: max(ends[p] - position, 0) for p, position in core.positions().items() if p in ends}
