"""Beginning: gives a new group its cursors; the first request decides them.

Idea: a group has begun when the lowest of the named partitions has a cursor. That cursor is committed last, after all
others: a crash in between leaves a group that has not begun, and the next request continues.

Contract: an existing cursor never moves. The answer has the committed cursors, whichever request set them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import BeginGroup, Begun
from ...errors import InvalidRequest
from ..queues.topic_queues import check_no_queue
from ..tables.groups import NOTHING
from ..tables.names import check_name
from ..turns.portions import spread
from ..turns.replies import Gather, refusing
from .grouping import check_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..logs.partition import Partition
    from ..logs.topics import Topic, Topics
    from ..ports import Handlers, Now, Payload, Peer, Port, Work
    from ..turns.roster import Roster
    from .coordinator import Membership


class Beginning:
    """Handler of BeginGroup."""

    def __init__(self, topics: Topics, memberships: Roster[Topic, str, Membership], port: Port) -> None:
        self.handlers: Handlers = {BeginGroup: self.begin}
        self._topics = topics
        self._memberships = memberships
        self._port = port

    def begin(self, peer: Peer, message: BeginGroup, payload: Payload, now: Now) -> Work:
        """Give cursors, or find out which there are. Raises OutOfBounds, InvalidRequest, GroupActive, Unavailable."""
        topic = self._topics.get(message.topic)
        check_name("group", message.group)
        check_no_queue(topic, message.group)
        if not message.positions:
            raise InvalidRequest(f"group {message.group} of topic {topic.name} begins in no partition: name some")
        for number in range(len(topic.partitions)):
            topic.partition(number)
        wanted = [(topic.partition(number), offset) for number, offset in sorted(dict(message.positions).items())]

        def check() -> None:
            check_idle(self._memberships, topic, message.group)

        start = Start(self._port, peer, message.request, topic, message.group, wanted, check)
        if start.has_begun:
            start.answer()
            return
        check()
        for partition, offset in wanted:
            partition.check_cursor(offset)
        yield from start.others()


class Start:
    """One group being begun."""

    def __init__(
        self,
        port: Port,
        peer: Peer,
        request: int,
        topic: Topic,
        group: str,
        wanted: list[tuple[Partition, int]],
        check: Callable[[], None],
    ) -> None:
        """`check` raises when the group has members: they come and go between two portions."""
        self._port = port
        self._peer = peer
        self._request = request
        self._topic = topic
        self._group = group
        self._wanted = wanted
        self._check = check
        self._refuse = refusing(port, peer, request)

    @property
    def has_begun(self) -> bool:
        """Whether the group has begun, counting proposals."""
        return self._has_cursor(self._wanted[0][0])

    def others(self) -> Work:
        """Give cursors to all but the lowest partition, and to that when they are committed."""
        gather = Gather(self._lowest, self._refuse)

        def give(wanted: tuple[Partition, int]) -> None:
            partition, offset = wanted
            if self._has_cursor(partition):
                partition.barrier(gather.one())
            else:
                self._check()
                partition.move_cursor(self._group, offset, gather.one())

        yield from spread(self._wanted[1:], gather, give)

    def _lowest(self) -> None:
        partition, offset = self._wanted[0]
        if not self.has_begun:  # by another request meanwhile
            try:
                self._check()
                partition.check_writable()
            except Error as error:
                self._refuse(error)
                return
            partition.move_cursor(self._group, offset)
        self.answer()

    def answer(self) -> None:
        """When all that is proposed so far is committed."""
        gather = Gather(self._answer, self._refuse)
        for partition in self._topic.readable:
            partition.barrier(gather.one())
        gather.ready()

    def _answer(self) -> None:
        found = [self._position(partition) for partition in self._topic.readable]
        self._port.reply(self._peer, Begun(self._request, found))

    def _position(self, partition: Partition) -> tuple[int, int]:
        cursor = partition.group(self._group).cursor
        offset = partition.first if cursor == NOTHING else cursor
        return offset, partition.term_at(offset)

    def _has_cursor(self, partition: Partition) -> bool:
        return partition.proposed.groups.get(self._group).cursor != NOTHING
