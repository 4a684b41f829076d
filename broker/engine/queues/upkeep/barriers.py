"""Barriers: appends the record of a callback once all members have ended, exactly once.

Idea: a barrier is set in the partition that its callback's record goes to, before any of its members is sent. Firing is
one batch, the record with BarrierFired beside it, so a crash leaves both or neither. The value of the record is a
msgpack array of [state, result, reason], one for each member in their order; nothing in it is parsed here.

Contract: a barrier that is ready is fired when that is committed, or when a node opens. A record that cannot be
appended now is tried again after a pause, and holds up no other barrier. Setting a barrier again changes nothing. The
barriers of a partition have `max_barrier_bytes`: a new one may use the first half, results the whole. Times are log
time.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from .....storage.batch import encode, parse
from .....storage.encoding import PRIORITY_MAX
from .....storage.errors import Error
from .....transport.barrier_messages import MEMBERS_MAX, DeleteBarrier, SetBarrier
from .....transport.messages import Done
from ....errors import InvalidRequest, LimitReached, Unavailable, UnknownBarrier
from ...tables import effects as fx
from ...tables.barriers import MEMBER_BYTES, BarrierBody, silent_size
from ...tables.entry import Entry
from ...tables.producers import Place
from ...tables.queues.placing import intake_of
from ...turns.replies import Gather
from ..topic_queues import check_serves, check_there, serves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...guard import Guard
    from ...logs.clock import LogTime
    from ...logs.log_registry import LogRegistry
    from ...logs.partition import Partition
    from ...logs.topics import Topic
    from ...ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
    from ...tables.ties import MemberEnd
    from ...turns.alarms import Alarms

BARRIER_BYTES_MAX = 4 << 20
"""Limit of one barrier, whose words are in the state of the partition; a lower `max_record_bytes` counts."""

LIFETIME_MOST_MS = 11 * 366 * 86_400_000
"""The longest life of a barrier: records are delayed by ten years at most."""

LOOKS = 16
"""Queues of members looked for in one step."""

FIRED = 16
"""Barriers fired at once."""

RETRY_US = 1_000_000
"""Delay before retrying a partition that could not take a record."""


class Barriers:
    """Handlers of SetBarrier and DeleteBarrier, and what fires barriers."""

    def __init__(
        self, registry: LogRegistry, port: Port, config: NodeConfig, time: LogTime, alarms: Alarms[int], guard: Guard
    ) -> None:
        """`alarms` are of log time."""
        self.handlers: Handlers = {SetBarrier: self.set, DeleteBarrier: self.delete}
        self._fired = self._expired = self._deleted = 0
        self._registry = registry
        self._port = port
        self._config = config
        self._time = time
        self._alarms = alarms
        self._guard = guard
        for partition in registry.partitions.values():
            if partition.committed.barriers.ready:
                self._look_at(partition, 0)

    # -- requests -----------------------------------------------------------------------------------

    def set(self, peer: Peer, message: SetBarrier, payload: Payload, now: Now) -> Work | None:
        """Set a barrier: at once, so before what its connection asks next, unless its members have many queues.

        Raises InvalidRequest, UnknownTopic, UnknownGroup, LimitReached, Unavailable, Poisoned.
        """
        principal = self._guard.principal
        work = self._set(peer, message, now, "" if principal is None else principal.name)
        if len(message.queues) > LOOKS:
            return work
        for _ in work:
            pass
        return None

    def _set(self, peer: Peer, message: SetBarrier, now: Now, owner: str) -> Work:
        topics = self._registry.topics
        partition = topics.partition(message.topic, message.partition)
        if message.barrier not in partition.proposed.barriers.by_id:
            for looks, queue in enumerate(message.queues, 1):
                check_there(topics.get(queue.topic), queue.group)
                if looks % LOOKS == 0:
                    yield
            partition = topics.partition(message.topic, message.partition)  # it may be gone by now
        self._propose(partition, peer, message, now, owner)

    def _propose(self, partition: Partition, peer: Peer, message: SetBarrier, now: Now, owner: str) -> None:
        _check(message, partition)
        check_serves(partition)
        gather = Gather.reply(self._port, peer, message.request, Done(message.request))
        if message.barrier in partition.proposed.barriers.by_id:
            partition.barrier(gather.one())
            gather.ready()
            return
        self._check_room(partition, message)
        time_us = max(self._time.read(now), partition.log.last_time_us)
        effect = fx.BarrierSet(
            message.barrier, message.members, message.ended, message.headers, message.priority,
            time_us + message.lifetime_ms * 1000, owner,
        )  # fmt: skip
        partition.propose(effect, gather.one())
        gather.ready()

    def delete(self, peer: Peer, message: DeleteBarrier, payload: Payload, now: Now) -> None:
        """Forget a barrier. Raises UnknownBarrier, Forbidden, Unavailable, Poisoned."""
        topic = self._registry.topics.get(message.topic)
        partition = _home(topic, message.barrier)
        check_serves(partition)
        owner = partition.proposed.barriers.by_id[message.barrier].owner
        guard, what = self._guard, f"barrier {message.barrier.hex()}"
        guard.check_owner(guard.principal, owner, what, f"topic:{topic.name}")
        gather = Gather.reply(self._port, peer, message.request, Done(message.request))
        partition.propose(fx.BarriersForgotten([message.barrier]), gather.one())
        gather.ready()
        self._deleted += 1

    def _check_room(self, partition: Partition, message: SetBarrier) -> None:
        """Raise LimitReached where the partition has room for no more barriers."""
        standing, config = partition.proposed.barriers, self._config
        ways = "let some of their tasks end, delete those that wait in vain, {}, or use more partitions"
        if len(standing.by_id) >= config.max_barriers:
            raise LimitReached(
                f"{partition!r} has {config.max_barriers} barriers, which is the limit: "
                + ways.format("raise max_barriers")
            )
        size = standing.bytes + silent_size(message.members, message.headers)
        if size > config.max_barrier_bytes // 2:
            raise LimitReached(
                f"the barriers of {partition!r} would have {size} bytes with the results that they know. A new one is "
                f"refused above {config.max_barrier_bytes // 2}, which is half of max_barrier_bytes, as further "
                f"results need room: {ways.format('raise max_barrier_bytes')}"
            )

    def tell(
        self, partition: Partition, origin: tuple[bytes, int], tellings: Iterable[MemberEnd], waiter: Gather
    ) -> None:
        """Propose to tell the barriers of a partition; those that are over need no word.

        `origin`: the topic and partition in which the members are.
        """
        words: dict[bytes, list[MemberEnd]] = {}
        for telling in tellings:
            words.setdefault(telling.barrier, []).append(telling)
        for id_, found in words.items():
            standing = partition.proposed.barriers
            barrier = standing.by_id.get(id_)
            if barrier is not None:
                room = min(_most(partition) - barrier.size, self._config.max_barrier_bytes - standing.bytes)
                tasks = [(*origin, each.offset) for each in found]
                partition.propose(fx.BarrierTold(id_, list(_fitting(found, max(room, 0))), tasks), waiter.one())

    # -- firing -------------------------------------------------------------------------------------

    def fire(self, partition: Partition) -> None:
        """Append the records of barriers that are ready."""
        if not serves(partition) or not self._registry.holds(partition):
            return
        standing = partition.proposed.barriers.by_id
        ready = (standing[each] for each in partition.committed.barriers.ready if each in standing)
        for barrier in list(islice(ready, FIRED)):  # the commit of these looks for more
            try:
                _append(partition, barrier, Gather(self._count, lambda error: self._again(partition)))
            except Error:
                self._again(partition)

    def _count(self) -> None:
        self._fired += 1

    def stats(self) -> dict[str, int]:
        """Numbers for people."""
        return {
            "barriers.fired": self._fired,
            "barriers.expired": self._expired,
            "barriers.deleted": self._deleted,
        }

    def _again(self, partition: Partition) -> None:
        self._look_at(partition, self._time.last_us + RETRY_US)

    def _look_at(self, partition: Partition, time_us: int) -> None:
        self._alarms.set((self, partition), time_us, lambda now_us: self.fire(partition))

    def look(self, partition: Partition, time_us: int) -> None:
        """Forget barriers whose time is over."""
        if partition.committed.barriers.by_id and serves(partition):
            expired = partition.proposed.barriers.expired(time_us)
            if expired:
                self._expired += len(expired)
                partition.propose(fx.BarriersForgotten(expired))


def _home(topic: Topic, barrier: bytes) -> Partition:
    """The partition of a barrier. Raises UnknownBarrier, Unavailable."""
    for partition in topic.readable:
        if barrier in partition.latest.barriers.by_id:
            return partition
    if topic.closed:
        raise Unavailable(
            f"some partitions of topic {topic.name} cannot be opened, and barrier {barrier.hex()} may be in one of "
            "them: repair them first"
        )
    raise UnknownBarrier(
        f"topic {topic.name} has no barrier {barrier.hex()}: its callback has come, its time is over, or it was "
        "deleted; list barriers to see which it has"
    )


def _most(partition: Partition) -> int:
    """The bytes of one barrier."""
    return min(BARRIER_BYTES_MAX, partition.settings.max_record_bytes)


def _fitting(tellings: Iterable[MemberEnd], room: int) -> Iterable[tuple[int, str, bytes, str]]:
    """The words of members, as far as there is room for what they have."""
    for telling in tellings:
        word = telling.word
        if word.size > room:
            word = word.silent
        room -= word.size
        yield telling.member, word.state, word.result, word.reason


def _append(partition: Partition, barrier: BarrierBody, waiter: Gather) -> None:
    """Propose the record of a barrier that is ready. Raises BatchTooLarge."""
    words = [barrier.words[member] for member in range(barrier.members)]
    value = msgspec.msgpack.encode([(word.state, word.result, word.reason) for word in words])
    batch = encode([value], headers=[barrier.headers] if barrier.headers else None, priorities=[barrier.priority])
    entry = Entry(Place(0, 1), effects=(fx.BarrierFired(barrier.barrier),), intake=intake_of(parse(batch)))
    partition.propose_records(batch, entry, waiter)


def _check(message: SetBarrier, partition: Partition) -> None:
    if not 1 <= message.members <= MEMBERS_MAX:
        raise InvalidRequest(f"a barrier of {message.members} members is not allowed: 1 to {MEMBERS_MAX}")
    if message.priority > PRIORITY_MAX:
        raise InvalidRequest(f"priority {message.priority} is out of range: 0 to {PRIORITY_MAX}")
    if message.lifetime_ms > LIFETIME_MOST_MS:
        raise InvalidRequest(f"a lifetime of {message.lifetime_ms} ms is not allowed: {LIFETIME_MOST_MS} at most")
    if silent_size(message.members, message.headers) > _most(partition):
        raise InvalidRequest(
            f"a barrier of {message.members} members does not fit into a record of {partition!r}, which has "
            f"max_record_bytes={partition.settings.max_record_bytes}: {MEMBER_BYTES} for each member and the headers "
            "are needed, so use fewer members or raise it"
        )
