"""Queue groups as requests: create, alter, list, pause, delete.

Contract: a request applies to all partitions of a topic or, if refused, to none. Counts are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....transport.messages import DeleteQueue, Done, ListQueues, PauseQueue, ResetQueue, SetQueue
from .....transport.messages import Queue as QueueEntry
from .....transport.messages import Queues as QueuesReply
from ....errors import InvalidRequest, InvalidSettings, UnknownTopic
from ...logs.partition import FIND_STEPS, Partition, check_time
from ...logs.topic_page import TopicPage
from ...tables.names import check_name, check_topic_name
from ...tables.queues.settings import altered
from ...turns.portions import spread
from ...turns.replies import Gather, refusing
from .. import verbs
from ..topic_queues import check_no_stream, check_serves, having, proposed, queue_settings, why_unavailable
from .counting import counted

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from .....transport.messages import QueuePartition
    from ...guard import Guard, Sees
    from ...logs.clock import LogTime
    from ...logs.topics import Topic, Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Work
    from ...turns.portions import Portions
    from ..topic_queues import StreamGroups
    from ..wakeups import Watching
    from .leasing import LeaseRequests


class QueueAdmin:
    """Handlers of requests about whole queue groups."""

    def __init__(
        self,
        topics: Topics,
        port: Port,
        time: LogTime,
        leasing: LeaseRequests,
        watching: Watching,
        streams: StreamGroups,
        later: Portions,
        guard: Guard,
    ) -> None:
        """`later` describes groups that were set."""
        self.handlers: Handlers = {
            SetQueue: self.set, ResetQueue: self.reset, ListQueues: self.list, PauseQueue: self.pause,
            DeleteQueue: self.delete,
        }  # fmt: skip
        self._topics = topics
        self._port = port
        self._time = time
        self._leasing = leasing
        self._watching = watching
        self._streams = streams
        self._later = later
        self._guard = guard

    def set(self, peer: Peer, message: SetQueue, payload: Payload, now: Now) -> Work:
        """Create a group or change its settings. Raises InvalidSettings, InvalidRequest, Unavailable, Poisoned."""
        topic, group = self._topics.get(message.topic), message.group
        check_name("group", group)
        check_time("start", message.start)
        check_no_stream(self._streams, topic, group)
        settings = altered(queue_settings(topic, group), message.settings)
        if "dead_topic" in message.settings:
            self._check_dead_topic(topic, group, settings.dead_topic)
        for partition in topic.readable:
            check_serves(partition)
        refuse = refusing(self._port, peer, message.request)
        gather = Gather(lambda: self._later.add(peer, self._tell(peer, message.request, topic, group), refuse), refuse)

        def configure(partition: Partition) -> None:
            verbs.configure(partition, group, settings, message.start, gather.one())
            self._watching.watch(partition, group)  # its leases may have another grace

        yield from spread(list(topic.readable), gather, configure)

    def _tell(self, peer: Peer, request: int, topic: Topic, group: str) -> Work:
        self._port.reply(peer, QueuesReply(request, [(yield from self._describe(topic, group, self._time.last_us))]))

    def list(self, peer: Peer, message: ListQueues, payload: Payload, now: Now) -> Work:
        """Every queue group, with what each partition has for it. Raises UnknownTopic for the one asked about."""
        return self._list(peer, message, now, self._guard.viewer())

    def _list(self, peer: Peer, message: ListQueues, now: Now, sees: Sees) -> Work:
        now_us = self._time.read(now)
        found, page = list[QueueEntry](), TopicPage(self._topics, message.after)
        for topic in [self._topics.get(message.topic)] if message.topic else page:
            try:
                for name in queue_names(topic):
                    if message.group in ("", name) and sees(f"group:{topic.name}/{name}"):
                        found.append((yield from self._describe(topic, name, now_us)))
                        page.take(len(topic.partitions))
            except UnknownTopic:
                if message.topic:
                    raise
            yield
        self._port.reply(peer, QueuesReply(message.request, found, page.next))

    def _describe(self, topic: Topic, group: str, now_us: int) -> Generator[int | None, None, QueueEntry]:
        """A group as it stands. Raises UnknownTopic."""
        partitions: list[QueuePartition] = []
        for partition in list(topic.readable):
            queue = partition.committed.queues.by_name.get(group)
            if queue is not None:
                self._topics.check(topic)
                partitions.append(counted(partition, queue, now_us))
                yield
        unavailable = [number for number in range(len(topic.partitions)) if why_unavailable(topic, number)]
        return QueueEntry(topic.id, topic.name, group, queue_settings(topic, group).named(), partitions, unavailable)

    def pause(self, peer: Peer, message: PauseQueue, payload: Payload, now: Now) -> Work:
        """Lease nothing until a time. Raises UnknownGroup, InvalidRequest, Unavailable, Poisoned."""
        if message.until_us < 0:
            raise InvalidRequest(
                f"until_us {message.until_us} is before 1970: 0 resumes, a time in microseconds pauses"
            )
        topic = self._topics.get(message.topic)
        known = having(topic, message.group)
        gather = self._all(peer, message.request, known)

        def pause(partition: Partition) -> None:
            verbs.pause(partition, message.group, message.until_us, gather.one())
            self._watching.watch(partition, message.group)

        yield from spread(known, gather, pause)

    def reset(self, peer: Peer, message: ResetQueue, payload: Payload, now: Now) -> Work:
        """Let a group go on elsewhere. Raises UnknownGroup, InvalidRequest, OutOfBounds, Unavailable, Poisoned."""
        topic, group = self._topics.get(message.topic), message.group
        check_time("time_us", message.time_us)
        known = having(topic, group)
        if message.positions:
            known = [topic.partition(number) for number, _ in message.positions]
        for partition in known:
            check_serves(partition)
            proposed(partition, group)
        named, targets = dict(message.positions), list[tuple[Partition, int]]()
        for partition in known:
            offset = max(named.get(partition.number, 0), partition.first)
            if not message.positions:
                offset = partition.find(message.time_us)
            partition.check_offset(offset)
            targets.append((partition, offset))
            yield FIND_STEPS
            self._topics.check(topic)
        gather = self._all(peer, message.request, known)

        def move(target: tuple[Partition, int]) -> None:
            partition, offset = target
            verbs.move(partition, group, max(offset, partition.proposed.first), gather.one())
            self._leasing.forget_taken(partition, group)
            self._watching.watch(partition, group)

        yield from spread(targets, gather, move)

    def delete(self, peer: Peer, message: DeleteQueue, payload: Payload, now: Now) -> Work:
        """Delete a group. Raises UnknownGroup, GroupActive, Unavailable, Poisoned."""
        topic = self._topics.get(message.topic)
        known = having(topic, message.group)
        gather = self._all(peer, message.request, known)
        self._leasing.leave(topic, message.group)

        def delete(partition: Partition) -> None:
            verbs.delete(partition, message.group, gather.one())
            self._leasing.forget_taken(partition, message.group)

        yield from spread(known, gather, delete)
        self._leasing.left(topic, message.group)

    def _all(self, peer: Peer, request: int, partitions: Sequence[Partition]) -> Gather:
        """Answers Done once all is committed. Raises Unavailable, Poisoned before anything is proposed."""
        for partition in partitions:
            check_serves(partition)
        return Gather.reply(self._port, peer, request, Done(request))

    def topic_grown(self, topic: Topic, partition: Partition) -> None:
        """A partition was added: every group of the topic works on it, from its first record on."""
        names = {name for each in topic.readable for name in each.proposed.queues.by_name}
        for group in sorted(names - set(partition.proposed.queues.by_name)):
            verbs.configure(partition, group, queue_settings(topic, group), -1)

    def _check_dead_topic(self, topic: Topic, group: str, name: str) -> None:
        """Raise InvalidSettings, InvalidTopic unless a topic may be a group's dead-letter topic."""
        if not name:
            return
        check_topic_name(name)
        if name == topic.name:
            raise InvalidSettings(
                f"queue setting dead_topic={name} is the topic that group {group} works on: name another one, or none"
            )
        if name not in self._topics.by_name:
            raise InvalidSettings(f"queue setting dead_topic={name} names no topic: create it first")


def queue_names(topic: Topic) -> list[str]:
    """All queue groups of a topic, sorted."""
    return sorted({name for each in topic.readable for name in each.committed.queues.by_name})
