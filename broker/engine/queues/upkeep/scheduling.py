"""Scheduling: appends the records of schedules at their times, each exactly once.

Idea: a schedule lives in the partition that its name chose when it was set, also after the topic grows. Firing is one
batch, the record with ScheduleFired beside it, so a crash leaves both or neither. If times were missed while no node
ran, the schedule fires once and goes on from now. A schedule that coalesces appends nothing while its last record waits
for a lease; ScheduleCoalesced logs that it went on.

Contract: times are log time, never before the partition's last batch, so a clock that goes back fires nothing twice. A
schedule whose record cannot be appended, or whose next time is not known here, is retried after a pause and holds up no
other; a poisoned or damaged partition is left alone. Setting a schedule again with the same times does not change when
it is due.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .....storage.batch import encode, parse
from .....storage.encoding import PRIORITY_MAX
from .....storage.errors import Error
from .....transport.messages import DeleteSchedule, Done, Schedules, SetSchedule
from .....transport.partitioner import partition_of
from .....transport.queue_messages import FOREVER_US
from ....errors import InvalidRequest, LimitReached, Unavailable, UnknownSchedule
from ...logs.partition import Partition
from ...ports import Handlers, NodeConfig, Now, Payload, Peer, Port
from ...tables import effects as fx
from ...tables.entry import Entry
from ...tables.names import check_name
from ...tables.producers import Place
from ...tables.queues import schedules
from ...tables.queues.placing import intake_of
from ...tables.queues.status import waits
from ...tables.timetable import ScheduleBody
from ...turns.replies import Gather
from ..requests.schedule_list import describe
from ..topic_queues import serves

if TYPE_CHECKING:
    from ...logs.clock import LogTime
    from ...logs.log_registry import LogRegistry
    from ...logs.topics import Topic
    from ...turns.alarms import Alarms

RECORD_BYTES_MAX = 64 << 10
"""Limit of a schedule's record: value, key and headers are in the state of the partition."""

RETRY_US = 1_000_000
"""Delay before retrying a partition that could not take a record, or a schedule whose next time is unknown."""


class Scheduling:
    """Handlers of SetSchedule and DeleteSchedule, and what fires schedules."""

    def __init__(
        self, registry: LogRegistry, port: Port, config: NodeConfig, time: LogTime, alarms: Alarms[int]
    ) -> None:
        """`alarms` are of log time."""
        self.handlers: Handlers = {SetSchedule: self.set, DeleteSchedule: self.delete}
        self.fired = self.coalesced = 0
        self._registry = registry
        self._port = port
        self._config = config
        self._time = time
        self._alarms = alarms
        for partition in registry.partitions.values():
            self.arm(partition)

    # -- requests -----------------------------------------------------------------------------------

    def set(self, peer: Peer, message: SetSchedule, payload: Payload, now: Now) -> None:
        """Set a schedule. Raises InvalidRequest, LimitReached, Unavailable, Poisoned."""
        topic = self._registry.topics.get(message.topic)
        check_name("schedule", message.name)
        partition = _home(topic, message.name)
        _check_record(message, partition)
        _check_usable(partition)
        known = partition.proposed.schedules.by_name.get(message.name)
        if known is None and len(partition.proposed.schedules.by_name) >= self._config.max_schedules:
            raise LimitReached(
                f"{partition!r} has {self._config.max_schedules} schedules, which is the limit: delete some, "
                "raise max_schedules, or use another topic"
            )
        next_us = schedules.check(message.spec, message.zone, self._time_us(partition, now))
        if known is not None and (known.spec, known.zone) == (message.spec, message.zone):
            next_us = known.next_us
        effect = fx.ScheduleSet(
            message.name, message.spec, message.zone, message.value, message.key, message.headers, message.priority,
            next_us, message.coalesce,
        )  # fmt: skip

        def stands() -> Schedules:
            schedule = partition.committed.schedules.by_name[message.name]
            return Schedules(message.request, [describe(topic, partition, schedule)])

        gather = Gather.answering(self._port, peer, message.request, stands)
        partition.propose_in_order(effect, gather.one())
        gather.ready()
        self.arm(partition)

    def delete(self, peer: Peer, message: DeleteSchedule, payload: Payload, now: Now) -> None:
        """Delete a schedule. Raises UnknownSchedule, Unavailable, Poisoned."""
        topic = self._registry.topics.get(message.topic)
        partition = _home(topic, message.name)
        _check_usable(partition)
        if message.name not in partition.proposed.schedules.by_name:
            raise UnknownSchedule(f"topic {topic.name} has no schedule {message.name!r}: list those that it has")
        gather = Gather.reply(self._port, peer, message.request, Done(message.request))
        partition.propose_in_order(fx.ScheduleDeleted(message.name), gather.one())
        gather.ready()
        self.arm(partition)

    # -- firing -------------------------------------------------------------------------------------

    def arm(self, partition: Partition, after_us: int = -1) -> None:
        """Look at a partition when its next schedule is due, of those that are due after a time."""
        due_us = partition.latest.schedules.next_us(after_us)
        if due_us < FOREVER_US:
            self._look_at(partition, due_us)

    def forget(self, partition: Partition) -> None:
        """The partition is closed."""
        self._alarms.cancel((Scheduling, partition))

    def _again(self, partition: Partition, time_us: int) -> None:
        """A due record could not be appended: retry soon."""
        self._look_at(partition, time_us + RETRY_US)

    def _fire(self, partition: Partition, now_us: int) -> None:
        """Append the due records of a partition, one per schedule."""
        if not serves(partition) or not self._registry.holds(partition):
            return
        time_us = max(now_us, partition.log.last_time_us)
        for schedule in partition.proposed.schedules.due(time_us):
            try:
                next_us = schedules.next_us(schedule.spec, schedule.zone, time_us, schedule.next_us)
                waiter = Gather(lambda: None, lambda error: self._again(partition, time_us))
                self._take_turn(partition, schedule, time_us, next_us, waiter)
            except Error:
                self._again(partition, time_us)
        self.arm(partition, time_us)

    def _take_turn(
        self, partition: Partition, schedule: ScheduleBody, time_us: int, next_us: int, waiter: Gather
    ) -> None:
        """Append the record of a schedule that is due, unless it coalesces and the last one waits."""
        if schedule.offset >= 0 and waits(partition.proposed, schedule.offset, time_us):
            partition.propose_in_order(fx.ScheduleCoalesced(schedule.name, next_us), waiter)
            self.coalesced += 1
        else:
            _propose(partition, schedule, time_us, next_us, waiter)
            self.fired += 1

    def _look_at(self, partition: Partition, due_us: int) -> None:
        self._alarms.set((Scheduling, partition), due_us, partial(self._fire, partition))

    def _time_us(self, partition: Partition, now: Now) -> int:
        return max(self._time.read(now), partition.log.last_time_us)


def _propose(partition: Partition, schedule: ScheduleBody, time_us: int, next_us: int, waiter: Gather) -> None:
    """Propose the record of a schedule that is due. Its event time is when it was due. Raises BatchTooLarge."""
    batch = encode(
        [schedule.value],
        keys=[schedule.key],
        headers=[schedule.headers] if schedule.headers else None,
        event_times=[schedule.next_us],
        priorities=[schedule.priority],
    )
    offset = partition.predicted_end if schedule.coalesce else -1
    effects = (fx.ScheduleFired(schedule.name, time_us, next_us, offset),)
    partition.propose_records(batch, Entry(Place(0, 1), effects=effects, intake=intake_of(parse(batch))), waiter)


def _home(topic: Topic, name: str) -> Partition:
    """The partition of a schedule, existing or not. Raises Unavailable."""
    for partition in topic.readable:
        if name in partition.proposed.schedules.by_name:
            return partition
    if len(topic.readable) < len(topic.partitions):
        raise Unavailable(
            f"some partitions of topic {topic.name} cannot be opened, and schedule {name!r} may be in one of them: "
            "repair them first"
        )
    return topic.partition(partition_of(name.encode(), len(topic.partitions)))


def _check_usable(partition: Partition) -> None:
    partition.check_writable()
    if partition.state_damaged:
        raise Unavailable(
            f"{partition!r} is damaged and may have lost schedules: none fires or changes there until it is "
            "repaired (penstock log repair)"
        )


def _check_record(message: SetSchedule, partition: Partition) -> None:
    if message.priority > PRIORITY_MAX:
        raise InvalidRequest(f"priority {message.priority} is out of range: 0 to {PRIORITY_MAX}")
    size = len(message.value) + len(message.key or b"")
    size += sum(len(name) + len(value) for name, value in message.headers.items())
    limit = min(RECORD_BYTES_MAX, partition.settings.max_record_bytes)
    if size > limit:
        raise InvalidRequest(
            f"the record of schedule {message.name} has {size} bytes with key and headers, the limit is {limit}: "
            "let it say where the rest is"
        )
