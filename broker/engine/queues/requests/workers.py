"""The workers of a queue group: listed with what they hold, remembered, forgotten.

Idea: each partition remembers the workers that it has seen (tables/queues/workers.py), and an answer has them as one
list. Forgetting a worker settles what it holds first, a page of its leases at a time.

Contract: lists are as committed. A worker that is given something while it is forgotten is remembered again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from .....transport import messages as m
from .....transport.queue_messages import ListWorkers, Settle, SetWorker
from ....errors import UnknownGroup
from ...tables.queues.outcomes import check_settle
from ...turns.replies import Gather, refusing
from .. import verbs
from ..topic_queues import check_serves, committed, having, proposed, unknown
from .leasing import check_worker
from .pending import PendingChoice, look

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ...logs.clock import LogTime
    from ...logs.partition import Partition
    from ...logs.topics import Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Work
    from ...tables.queues.backoff import Chance
    from ...tables.queues.queue import Queue
    from ..lines import Lines
    from ..wakeups import Watching

COUNTED = 256
"""Workers that are counted in one step."""

TOGETHER = 256
"""Records of a forgotten worker that are settled in one step."""


class WorkerRequests:
    """Handlers of ListWorkers and SetWorker."""

    def __init__(
        self, topics: Topics, port: Port, time: LogTime, chance: Chance, lines: Lines, watching: Watching
    ) -> None:
        self.handlers: Handlers = {ListWorkers: self.list, SetWorker: self.set}
        self._topics = topics
        self._port = port
        self._time = time
        self._chance = chance
        self._lines = lines
        self._watching = watching

    def list(self, peer: Peer, message: ListWorkers, payload: Payload, now: Now) -> Work:
        """List the workers of a group, and count the leased records of each partition. Raises UnknownGroup."""
        topic, group = self._topics.get(message.topic), message.group
        known = [partition for partition in topic.readable if group in partition.committed.queues.by_name]
        if not known:
            raise unknown(f"topic {topic.name}", group)
        partitions: list[m.PendingPartition] = []
        found: dict[str, m.QueueWorker] = {}
        for partition in known:
            queue = committed(partition, group)
            leases = queue.leases
            partitions.append(m.PendingPartition(partition.number, leases.records, leases.first(), leases.last()))
            for looks, worker in enumerate(list(_workers(queue)), 1):
                found[worker.name] = _merged(found.get(worker.name), worker)
                if looks % COUNTED == 0:
                    yield
            yield
        now_us = self._time.read(now)
        askers = self._lines.askers(topic, group, now_us)
        workers: list[m.QueueWorker] = []
        for name in sorted(found):
            asked_us, waits = askers.get(name, (-1, False))
            workers.append(structs.replace(found[name], asked_us=asked_us, waits=waits))
        self._port.reply(peer, m.Workers(message.request, partitions, workers, now_us))

    def set(self, peer: Peer, message: SetWorker, payload: Payload, now: Now) -> Work:
        """Remember a worker, or forget it. Raises UnknownGroup, InvalidRequest, Unavailable, Poisoned."""
        topic, group, worker = self._topics.get(message.topic), message.group, message.worker
        check_worker(worker)
        check_settle(Settle(0, 0, message.verb))
        known = having(topic, group)
        for partition in known:
            check_serves(partition)
        count, refuse = 0, refusing(self._port, peer, message.request)
        gather = Gather(lambda: self._port.reply(peer, m.Counted(message.request, count)), refuse)
        has_it = [partition for partition in known if proposed(partition, group).knows(worker)]
        if message.known:
            count = int(not has_it)
            for partition in has_it or known[:1]:
                verbs.remember(partition, group, worker)
                partition.barrier(gather.one())
        else:
            for partition in has_it:
                count += yield from self._settle(partition, message, now, gather)
                verbs.forget(partition, group, worker, gather.one())
                self._watching.watch(partition, group)
        gather.ready()

    def _settle(
        self, partition: Partition, message: SetWorker, now: Now, gather: Gather
    ) -> Generator[int | None, None, int]:
        """Settle what a worker holds on a partition. Returns how much."""
        group, choice, now_us = message.group, PendingChoice(worker=message.worker), self._time.read(now)
        outcome, count, offset = Settle(partition.number, 0, message.verb), 0, 0
        while offset >= 0:
            try:
                runs, offset = yield from look(partial(proposed, partition, group), offset, choice, TOGETHER)
            except UnknownGroup:
                break  # it was deleted meanwhile, with all that its workers held
            held: dict[int, list[tuple[int, int]]] = {}
            for run in runs:
                held.setdefault(run.lease.token, []).append((run.offset, run.many))
            for token, ranges in held.items():
                settle = structs.replace(outcome, token=token, ranges=ranges)
                done = verbs.settle_held(partition, group, settle, now_us, self._chance)
                count += sum([many for _, many in done])
            partition.barrier(gather.one())  # each portion is in a write of its own, which may fail
            yield
        return count


def _workers(queue: Queue) -> Iterator[m.QueueWorker]:
    """The workers that a group remembers, and those that hold something all the same."""
    held = queue.leases.by_worker
    for name, worker in queue.workers.items():
        yield m.QueueWorker(name, held.get(name, 0), worker.first_us, worker.last_us or -1)
    for name in held.keys() - queue.workers.keys():
        yield m.QueueWorker(name, held[name])


def _merged(one: m.QueueWorker | None, other: m.QueueWorker) -> m.QueueWorker:
    """A worker as two partitions have it."""
    if one is None:
        return other
    first_us = min((each.first_us for each in (one, other) if each.first_us >= 0), default=-1)
    return m.QueueWorker(one.name, one.pending + other.pending, first_us, max(one.last_us, other.last_us))
