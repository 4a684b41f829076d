"""Leasing: requests for work, answered at once or when records come.

Idea: a request that finds records becomes a lease. Others wait in their group's line until records come, a retry is
due, or their time is up. Whenever a partition has proposals to append, waiting requests are offered its records, so
that a record and its first lease share one write.

Contract: a lease is sent once, with its records, when it is committed. Records that cannot be handed out (the peer is
gone, no room in the frame) go back, and the attempt does not count. Unreadable records are dead-lettered, and the
request goes on with the others. Memory: one entry per waiting request, up to a limit.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from .....storage.errors import Corrupt, Error, InvalidBatch, ReadFailed
from .....transport.messages import Lease, Leased
from .....transport.queue_messages import FOREVER_US, NOWHERE
from ....errors import InvalidRequest, LimitReached, UnknownGroup
from ...logs.partition import EARLIEST, Partition, check_time
from ...tables.names import check_name
from ...turns.marks import take
from ...turns.replies import Gather, failure
from .. import verbs
from ..choosing.lease_reading import LeaseReading
from ..lines import Demand
from ..topic_queues import check_length, check_no_stream, check_serves, find, having, queue_settings, serves, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...logs.clock import LogTime
    from ...logs.topics import Topic, Topics
    from ...ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
    from ...tables.producers import Place
    from ...tables.queues.leases import Lease as TakenRecords
    from ...tables.queues.leases import Range, Run
    from ..choosing.answering import Answering
    from ..choosing.key_scheduler import KeySchedulers
    from ..group_rates import GroupRates
    from ..lines import Line, Lines
    from ..topic_queues import StreamGroups
    from ..verbs import Granted
    from ..wakeups import Watching
    from .settling import SettleRequests


RECORDS_MAX = 100_000
"""Most records of one lease."""

PORTION = 16
"""Leases that are given to requests that wait, of one partition and at once."""

WARMING_S = 1.0
"""How long a request waits for keys to be read from the disk, whatever its `wait_ms`."""

WORKER_MAX = 200
"""Characters of a worker's name."""


class LeaseRequests:
    """Handler of Lease, and the requests that wait."""

    def __init__(
        self,
        topics: Topics,
        port: Port,
        config: NodeConfig,
        time: LogTime,
        answering: Answering,
        schedulers: KeySchedulers,
        group_rates: GroupRates,
        lines: Lines,
        watching: Watching,
        settling: SettleRequests,
        streams: StreamGroups,
    ) -> None:
        self.handlers: Handlers = {Lease: self.lease}
        self._topics = topics
        self._port = port
        self._config = config
        self._time = time
        self._answering = answering
        self._numbers = count(1)
        self._schedulers = schedulers
        self._group_rates = group_rates
        self._lines = lines
        self._watching = watching
        self._settling = settling
        self._streams = streams
        self.more: dict[Partition, None] = {}
        """Has more to lease than one portion gave: for `go_on`."""
        self._taken: dict[Demand, TakenRecords] = {}  # without a lease, by requests that are not answered yet

    # -- a request ----------------------------------------------------------------------------------

    def lease(self, peer: Peer, message: Lease, payload: Payload, now: Now) -> Work:
        """Settle, then answer or wait.

        Raises InvalidRequest, LimitReached, UnknownGroup, UnknownPartition, Unavailable, Poisoned.
        """
        topic = self._topics.get(message.topic)
        self._check(topic, message)
        if message.wait_ms:
            self._lines.parked.check(peer)
        line = self._lines.of(topic, message.group)
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        demand = Demand(next(self._numbers), peer, topic, message, now.monotonic_s + wait_s)
        demand.gather = self._gather(demand)
        self._prepare(topic, line, message, demand.gather)
        now_us = self._time.read(now)
        line.asks(message.worker, now_us)
        if message.settles:
            propose = self._settling.propose
            demand.refused = yield from propose(topic, message.group, message.settles, now, demand.gather)
        for partition in self._in_turn(topic, line, message.partition):
            if self._try(demand, partition, now_us):
                return
        if self._is_cold(demand, line):
            demand.deadline_s = max(demand.deadline_s, now.monotonic_s + WARMING_S)
        if message.remember:
            self._remember(topic, message)
        self._wait(demand, line, now)

    def _gather(self, demand: Demand) -> Gather:
        return Gather(
            lambda: self._finish(demand),
            lambda error: self._failed(demand, error),
            lambda: self._wait_no_more(demand),
            lambda place: self._answer_ahead(demand, place),
        )

    def _is_cold(self, demand: Demand, line: Line) -> bool:
        """Whether there may be something, but its keys are not in memory."""
        group, partitions = demand.message.group, self._in_turn(demand.topic, line, demand.message.partition)
        return any(self._schedulers.is_cold(partition, group) for partition in partitions)

    def _check(self, topic: Topic, message: Lease) -> None:
        check_name("group", message.group)
        if message.start != NOWHERE:
            check_time("start", message.start)
        check_worker(message.worker)
        if not message.max_records:
            raise InvalidRequest("max_records 0 is not allowed: ask for 1 or more; to settle only there is SettleTasks")
        if message.max_records > RECORDS_MAX:
            raise LimitReached(f"max_records {message.max_records} is too many: {RECORDS_MAX} at most in one lease")
        if message.partition != -1:
            check_serves(topic.partition(message.partition))
        elif not any(map(serves, topic.readable)):
            check_serves(topic.readable[0] if topic.readable else topic.partition(0))
        if message.lease_ms:
            check_length(topic, message.group, message.lease_ms)

    def _prepare(self, topic: Topic, line: Line, message: Lease, gather: Gather) -> None:
        """Create the group on every partition now: created later, it would begin later."""
        if line.prepared == len(topic.readable):
            return
        check_no_stream(self._streams, topic, message.group)
        settings, start = queue_settings(topic, message.group), message.start
        if start == NOWHERE:
            try:
                having(topic, message.group)
            except UnknownGroup:
                self._lines.forget(topic, message.group)
                raise
            start = EARLIEST  # on partitions that came after it
        for partition in serving(topic):
            if find(partition, message.group) is None:
                verbs.configure(partition, message.group, settings, start, gather.one())
        line.prepared = len(topic.readable)

    def _remember(self, topic: Topic, message: Lease) -> None:
        """Remember a worker that there is nothing for: on the partition that it asks about, or the first that works."""
        asked = topic.readable if message.partition == -1 else [topic.partition(message.partition)]
        partition = next(filter(serves, asked), None)
        if partition is not None:
            verbs.remember(partition, message.group, message.worker)

    def _in_turn(self, topic: Topic, line: Line, number: int) -> Iterator[Partition]:
        """The partitions that a request may take from, the one whose turn it is first."""
        if number != -1:
            yield topic.partition(number)
            return
        count = len(topic.readable)
        for index in range(line.turn, line.turn + count):
            yield topic.readable[index % count]

    def _try(self, demand: Demand, partition: Partition, now_us: int) -> bool:
        """Lease from a partition if it has something. The request then waits for its commit."""
        message = demand.message
        queue = find(partition, message.group)
        if queue is None or not serves(partition) or verbs.is_dry(partition, queue):
            return False
        limit = self._limit(partition, message)
        granted = verbs.lease(
            partition, message.group, message.worker, limit, message.lease_ms, now_us, demand.gather,
            self._schedulers, self._group_rates, takes=message.takes,
        )  # fmt: skip
        if granted is None:
            again_us = self._schedulers.next_us(partition, message.group)
            if again_us < FOREVER_US:
                self._watching.ring_at(partition, message.group, again_us)
            self._group_rates.wait(partition, queue, now_us)
            return False
        demand.partition, demand.granted = partition, granted
        if granted.taken is not None:
            self._taken[demand] = granted.taken
        self._lines.of(demand.topic, message.group).turn = partition.number + 1
        self._watching.watch(partition, message.group)
        return True

    def _limit(self, partition: Partition, message: Lease) -> int:
        """An estimate of how many records will fit, from earlier ones."""
        record_bytes = self._answering.record_bytes(partition, message.group)
        if not record_bytes:
            return message.max_records
        return min(message.max_records, max(1, int(self._most_bytes(message) / record_bytes)))

    def _most_bytes(self, message: Lease) -> int:
        return min(message.max_bytes, self._config.max_frame_bytes)

    # -- waiting ------------------------------------------------------------------------------------

    def _wait(self, demand: Demand, line: Line, now: Now) -> None:
        if demand.deadline_s <= now.monotonic_s:
            demand.gather.ready()
            return
        self._stand(demand, line)

    def _stand(self, demand: Demand, line: Line) -> None:
        """Stand in line, unless the topic was deleted meanwhile."""
        if self._topics.by_id.get(demand.topic.id) is not demand.topic:
            demand.gather.ready()
            return
        self._lines.stand(demand)
        for partition in self._in_turn(demand.topic, line, demand.message.partition):
            self._watching.watch(partition, demand.message.group)

    def offer(self, partition: Partition, now_us: int) -> None:
        """Lease new records to waiting requests."""
        granted = 0
        for line in self._lines.at(partition):
            for demand in list(line.demands.values()):
                if demand.message.partition in (-1, partition.number):
                    if granted == PORTION:
                        self.more[partition] = None
                        return
                    if not self._try(demand, partition, now_us):
                        break
                    self._lines.leave(demand)
                    granted += 1

    @property
    def due(self) -> bool:
        """Whether there is something for `go_on`."""
        return bool(self._watching.rung or self._group_rates.refilled or self.more)

    def go_on(self) -> None:
        """Lease where an alarm rang or a portion left more."""
        for name, group in take(self._group_rates.refilled):
            self._refilled(name, group)
        for partition, group in self._watching.take_rung():
            self.offer(partition, self._time.last_us)
            self._watching.watch(partition, group)
        for partition in take(self.more):
            self.offer(partition, self._time.last_us)

    def _refilled(self, name: str, group: str) -> None:
        """The rate of a group admits more: look at the partitions that have some, from the one whose turn it is."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            return
        for partition in self._in_turn(topic, self._lines.of(topic, group), -1):
            queue = find(partition, group)
            if queue is not None and not verbs.is_dry(partition, queue):
                self.more[partition] = None

    def _wait_no_more(self, demand: Demand) -> None:
        """Settles of a waiting request failed: answer it with the error now, not later with its records."""
        if demand in self._lines.parked:
            self._lines.give_up(demand)

    # -- the answer ---------------------------------------------------------------------------------

    def _finish(self, demand: Demand) -> None:
        """Everything is committed: read, and answer."""
        if demand.granted is None or demand.partition is None:
            number = max(demand.message.partition, 0)
            self._port.reply(demand.peer, Leased(demand.message.request, number, 0, 0, 0, [], demand.refused))
            return
        demand.reading = LeaseReading(demand.partition, demand.granted.runs, self._most_bytes(demand.message))
        self._read(demand)

    def _read(self, demand: Demand) -> None:
        reading = demand.reading
        assert reading is not None
        if _is_gone(reading):
            self._go_around(demand, lambda: None)
            return
        try:
            if self._answering.read(reading, demand.message.group, demand):
                self._hand_out(demand, reading)
        except Error as error:
            self._unreadable(demand, error)
        except OSError as error:
            self._unread(demand, error)

    def warmed(self, demand: Demand) -> None:
        """Pages are in memory now."""
        self._read(demand)

    def _hand_out(self, demand: Demand, reading: LeaseReading) -> None:
        granted, partition, message = demand.granted, demand.partition, demand.message
        assert granted is not None
        assert partition is not None
        answer = self._leased(demand, partition, granted, without(granted.runs, reading.rest))
        if not self._port.reply(demand.peer, answer, reading.payload):
            self._take_back(demand)
        elif reading.rest:
            verbs.release(partition, message.group, granted, reading.rest, self._time.last_us)
        self._taken.pop(demand, None)

    def _leased(self, demand: Demand, partition: Partition, granted: Granted, runs: list[Run]) -> Leased:
        request, left_us = demand.message.request, max(0, granted.until_us - self._time.last_us)
        return Leased(request, partition.number, granted.token, granted.until_us, left_us // 1000, runs, demand.refused)

    def _answer_ahead(self, demand: Demand, place: Place) -> bool:
        """Answer with a batch that was leased as it came, whole, and is in memory. A worker that takes no answer has
        had its only one: what it was to get goes back."""
        granted, partition = demand.granted, demand.partition
        if granted is None or partition is None or granted.taken is not None:
            return False
        if granted.runs[0][:2] != (place.offset, place.count):  # all of it, or something else
            return False
        batch = partition.log.newest(place.seq)
        if batch is None or len(batch) > self._most_bytes(demand.message):
            return False
        if not self._port.reply(demand.peer, self._leased(demand, partition, granted, granted.runs), batch):
            self._take_back(demand)
        return True

    def _take_back(self, demand: Demand) -> None:
        """Return the records of a lease that cannot be delivered."""
        granted, partition = demand.granted, demand.partition
        if granted is not None and partition is not None:
            verbs.release(partition, demand.message.group, granted, [], self._time.last_us)
            self._taken.pop(demand, None)

    def _unreadable(self, demand: Demand, error: Error) -> None:
        """Dead-letter unreadable records with that reason, and lease others for the request."""
        partition, granted, reading = demand.partition, demand.granted, demand.reading
        assert partition is not None
        if not isinstance(error, Corrupt | InvalidBatch) or granted is None or reading is None or not reading.rest:
            self._refuse(demand, error)
            return
        partition.damaged = True
        if isinstance(error, Corrupt):
            partition.met(error)
        first, group = reading.rest[-1][0], demand.message.group
        beyond = error.next_offset if isinstance(error, Corrupt) else None
        end = beyond if beyond is not None and beyond > first else first + 1
        reason = f"it cannot be read: {error.message}"
        self._go_around(demand, lambda: verbs.bury(partition, group, granted, first, end, reason))

    def _unread(self, demand: Demand, error: OSError) -> None:
        """Count an I/O error as a failed attempt: the record is retried, and dead-lettered after its last attempt."""
        partition, granted, reading = demand.partition, demand.granted, demand.reading
        assert partition is not None
        if granted is None or reading is None or not reading.rest:
            self._refuse(demand, ReadFailed.of(partition, error))
            return
        first, group, now_us = reading.rest[-1][0], demand.message.group, self._time.last_us
        reason, chance = f"it cannot be read: {error}", self._settling.chance
        self._go_around(demand, lambda: verbs.put_off(partition, group, granted, first, reason, now_us, chance))

    def _go_around(self, demand: Demand, settle: Callable[[], None]) -> None:
        """Settle the unreadable records, return the rest of the lease, and lease again."""
        try:
            settle()
            self._take_back(demand)
            self._try_again(demand)
        except Error as refused:
            self._refuse(demand, refused)

    def _try_again(self, demand: Demand) -> None:
        """Lease something else, or stand in line: for no time, when its time is up."""
        topic, message = demand.topic, demand.message
        line = self._lines.of(topic, message.group)
        demand.partition = demand.granted = demand.reading = None
        demand.gather = self._gather(demand)
        now_us = self._time.last_us
        if not any(self._try(demand, partition, now_us) for partition in self._in_turn(topic, line, message.partition)):
            self._stand(demand, line)

    def _failed(self, demand: Demand, error: Error) -> None:
        """Something of a request was not committed, so nothing that it took is."""
        taken = self._taken.get(demand)
        if taken is not None:
            taken.finish()
        self._refuse(demand, error)

    def _refuse(self, demand: Demand, error: Error) -> None:
        message = demand.message
        self._take_back(demand)
        if demand.partition is not None:
            self._watching.watch(demand.partition, message.group)
        self._settling.failed(demand.topic, message.group, (settle.partition for settle in message.settles))
        self._lines.unprepared(demand.topic, message.group)  # that may be what failed
        self._port.reply(demand.peer, failure(message.request, error))

    # -- cancelling ---------------------------------------------------------------------------------

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        for demand in self._lines.parked.of(peer):
            self._lines.leave(demand)

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """Fail the requests that wait for records of a deleted topic."""
        for demand in self._lines.drop(topic):
            self._port.reply(demand.peer, failure(demand.message.request, error))
        self._group_rates.forget(topic.name)
        for partition in topic.readable:
            self.more.pop(partition, None)
            self._answering.forget(partition)
            self._schedulers.forget(partition)
            self._watching.forget(partition)

    def leave(self, topic: Topic, group: str) -> None:
        """A group is about to be deleted. Raises GroupActive while a request waits for its records."""
        self._lines.close(topic, group)
        self._group_rates.leave(topic.name, group)
        for partition in topic.readable:
            self._schedulers.leave(partition, group)

    def forget_taken(self, partition: Partition, group: str) -> None:
        """A group is deleted or moved: what was taken without a lease before does not come back to it."""
        for demand, taken in self._taken.items():
            if demand.partition is partition and demand.message.group == group:
                taken.finish()

    def left(self, topic: Topic, group: str) -> None:
        """A group is deleted. A request that came meanwhile made it again only where it was deleted already."""
        self._lines.unprepared(topic, group)


def _is_gone(reading: LeaseReading) -> bool:
    """Whether records were trimmed since they were leased; so they are not leased any more, and leave none behind."""
    partition = reading.partition
    kept, first = partition.committed.kept, partition.first
    return any(offset < first and not kept.seq(offset) for offset, _ in reading.rest)


def check_worker(name: str) -> None:
    """Raise InvalidRequest for a worker's name that is too long."""
    if len(name) > WORKER_MAX:
        raise InvalidRequest(f"a worker's name of {len(name)} characters is not allowed: {WORKER_MAX} at most")


def without(runs: list[Run], rest: list[Range]) -> list[Run]:
    """Runs without what is left of them; `rest` holds the end of one and whole ones."""
    if not rest:
        return runs
    gone = {first + count: count for first, count in rest}
    kept = [(first, count - gone.get(first + count, 0), attempt) for first, count, attempt in runs]
    return [run for run in kept if run[1] > 0]
