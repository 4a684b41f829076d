"""Tasks through a queue group: their whole life beside other task queues, memory per waiting task, and cost by backlog.

A life: put in durably, leased, acked durably. Two worker processes take batches of a hundred while one process puts
tasks in; or one client does all three for one task after the other. Peers do the same through their own Python
clients, with a server that syncs each acknowledgement, too. Memory is the broker's own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import penstock

from ..lab.harness import Lab
from ..lab.rows import BEST_PEER, Curve, Row
from ..load import work
from ..load.peers import RECORD_BYTES
from ..systems import queue_named
from ..systems.broker import Served, serve
from ..systems.penstock import GROUP, TASK_QUEUES
from ..systems.queue import Queue
from .growth import Once

STRICT, AHEAD = TASK_QUEUES
TASKS = {STRICT.name: 150_000, AHEAD.name: 300_000}
"""Of a sample; and what a second of them is to bring."""
ONE_BY_ONE = 1000
FUNCTIONS, CELERY = "penstock.Tasks", "Celery on Redis"
CALLS = 2_000
SENT = 100_000
RECORDS = "producer.send_many"
BEHIND, BEHIND_FULL = 200_000, 10_000_000
DELAYED, DELAYED_FULL = 500_000, 10_000_000
BACKLOGS, BACKLOGS_FULL = (1_000, 100_000), (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
DELAYED_BYTES = 400 * (1 << 20) / 10_000_000
"""Ten million delayed records in 400 MiB."""
WARM = 100_000
"""Worked off before the memory of an idle group is looked at: buffers and arenas have their size then."""
ROUNDS = 50
LEASED = 100
NEAR, FAR = "near", "far"
FLAT = 1.5
"""The largest cost of a lease far behind, in parts of one near the end."""


def rows(lab: Lab) -> Iterator[Row | Curve]:
    yield from _lives(lab)
    yield _functions(lab)
    yield from _sends(lab)
    yield from _memory(lab)
    yield from _backlog(lab)


# -- whole lives ----------------------------------------------------------------------------------


def _lives(lab: Lab) -> Iterator[Row]:
    peers = work.beside(lab, "durable", lambda queue, address: work.lives_per_s(queue, address, _share(lab, queue)))
    for queue, stated in ((STRICT, "tasks"), (AHEAD, "tasks, ack and lease")):
        tasks = lab.count(TASKS[queue.name])
        with work.served(lab, queue, "durable") as address:
            yield Row(
                f"tasks: whole life, {queue.name.removeprefix('penstock, ')}",
                "tasks/s",
                partial(work.lives_per_s, queue, address, tasks),
                goal=TASKS[queue.name],
                peers=peers,
                ratio_goals={BEST_PEER: 1.0},
                durability="durable",
                note=f"{tasks:,} of {RECORD_BYTES} B, {work.WORKERS} workers, batches of {work.BATCH}",
                stated=stated,
            )
    with work.served(lab, STRICT, "durable") as address:
        count = lab.count(ONE_BY_ONE, least=20)
        one_by_one = partial(work.one_by_one_per_s, tasks=count)
        yield Row(
            "tasks: whole life, one at a time",
            "tasks/s",
            partial(one_by_one, STRICT, address),
            peers=work.beside(lab, "durable", one_by_one),
            ratio_goals={"beanstalkd": 1.0},
            durability="durable",
            note="closed loop: put in, take, finish, each acknowledged before the next step; one client",
            stated="tasks, one at a time",
        )


def _functions(lab: Lab) -> Row:
    """Functions that do nothing beside Celery's, with workers alike."""
    ours, tasks = queue_named(FUNCTIONS), lab.count(CALLS, least=50)
    measure = partial(work.lives_per_s, tasks=tasks)

    def sample() -> float:
        with work.served(lab, ours, "durable") as address:
            return measure(ours, address)

    return Row(
        "tasks: whole life, functions of penstock.Tasks", "tasks/s", sample,
        peers={CELERY: work.beside(lab, "durable", measure)[CELERY]},
        durability="durable", note=f"{tasks:,} calls that do nothing, {work.WORKERS} workers with one at a time",
    )  # fmt: skip


def _sends(lab: Lab) -> Iterator[Row]:
    """Tasks of a function beside records of a producer that are as long as the tasks' are."""
    count = lab.count(SENT, least=1000)
    calls = [(f"UA {number}", number) for number in range(count)]
    values = [bytes(RECORD_BYTES)] * count
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("records")
        app = penstock.Tasks(broker.url)

        @app.task(queue="notices")
        def notify(flight: str, late: int) -> None:
            raise AssertionError(f"no worker runs, for {flight} {late}")

        with client.producer("records") as producer, app:
            yield Row(
                "tasks: send_many of a function",
                "tasks/s",
                lambda: count / _took_s(partial(notify.send_many, calls)),
                limits={RECORDS: lambda: count / _took_s(partial(producer.send_many, values))},
                ratio_goals={RECORDS: 0.8},
                durability="durable",
                note=f"{count:,} calls with two arguments, beside records of {RECORD_BYTES} B",
            )


def _took_s(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _share(lab: Lab, queue: Queue) -> int:
    """The number of tasks that take about half a second."""
    return lab.count(queue.chunk, least=20)


# -- memory ---------------------------------------------------------------------------------------


def _memory(lab: Lab) -> Iterator[Row]:
    behind = lab.count(BEHIND_FULL if lab.full else BEHIND)
    yield Row(
        "tasks: memory of a plain group far behind",
        "MiB",
        lambda: _on_a_fresh_broker(lab, partial(_behind_mib, count=behind)),
        more_is_better=False,
        goal=1.0,
        note=f"more than an idle one; {behind:,} records behind",
        stated="tasks, memory behind",
    )
    delayed = lab.count(DELAYED_FULL if lab.full else DELAYED)
    yield Row(
        "tasks: memory of delayed records",
        "bytes/record",
        lambda: _on_a_fresh_broker(lab, partial(_delayed_bytes, count=delayed)),
        more_is_better=False,
        goal=DELAYED_BYTES,
        note=f"{delayed:,} of them; the goal is 400 MiB for 10,000,000",
        stated="tasks, memory delayed",
    )


def _on_a_fresh_broker(lab: Lab, measure: Callable[[Served, penstock.Client], float]) -> float:
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("memory", commit="written", segment_bytes="256MB")
        return measure(broker, client)


def _behind_mib(broker: Served, client: penstock.Client, count: int) -> float:
    """Memory of an active group `count` records behind, beyond that of one at the end of the same log."""
    _send(client, "memory", count)
    with (
        client.worker("memory", group="idle", prefetch=0, start="latest") as idle,
        client.worker("memory", group=GROUP, prefetch=0) as behind,
    ):
        idle.fetch(1, wait=0.0)  # from here on the group has something to do
        _send(client, "memory", WARM)
        _work_off(idle, WARM // LEASED)
        before = broker.memory_mib()
        _work_off(behind, ROUNDS)
        return broker.memory_mib() - before


def _work_off(worker: penstock.Worker, rounds: int) -> None:
    """Lease and ack some tasks, to bring into memory what that needs."""
    for _ in range(rounds):
        worker.ack(worker.fetch(LEASED, wait=1.0))


def _delayed_bytes(broker: Served, client: penstock.Client, count: int) -> float:
    """Memory per delayed record; a tenth is sent before the measurement, to size buffers."""
    with client.producer("memory") as producer:
        _delay(producer, count // 10)
        before = broker.memory_mib()
        _delay(producer, count)
    return (broker.memory_mib() - before) * (1 << 20) / count


def _delay(producer: penstock.Producer, count: int) -> None:
    """Send records with a delay of their own each, in no order."""
    value = bytes(RECORD_BYTES)
    for number in range(count):
        producer.send_nowait(value, delay=3600.0 + number * 7919 % count)
    producer.flush()


# -- backlog --------------------------------------------------------------------------------------


def _backlog(lab: Lab) -> Iterator[Row | Curve]:
    sizes = BACKLOGS_FULL if lab.full else BACKLOGS
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        for topic in (NEAR, FAR):
            client.create_topic(topic, commit="written", segment_bytes="256MB")
        _send(client, NEAR, ROUNDS * LEASED)
        backlog = TaskBacklog(client)
        for what in backlog.measures:
            yield Curve(
                f"{what}, by backlog",
                "us",
                "records behind",
                sizes,
                lambda size, what=what: backlog.figure(what, int(size)),
                durability="written",
                note=f"median of {ROUNDS}",
            )
        yield Row(
            "tasks: lease and ack far behind",
            "us",
            lambda: backlog.grown_to(int(sizes[-1])).round_us(FAR),
            more_is_better=False,
            limits={"near the end": lambda: backlog.round_us(NEAR)},
            ratio_goals={"near the end": FLAT},
            durability="written",
            note=f"{sizes[-1]:,} records behind; median of {ROUNDS} leases of {LEASED}",
            stated="tasks, by backlog",
        )


class TaskBacklog(Once):
    """A topic that grows, and groups that begin at its first record."""

    def __init__(self, client: penstock.Client) -> None:
        self.measures = {
            f"lease of {LEASED} tasks": lambda: self._took_us(FAR)[0],
            f"ack of {LEASED} tasks": lambda: self._took_us(FAR)[1],
        }
        super().__init__(self._fill, self.measures)
        self._client = client
        self._groups = 0
        self._end = 0

    def grown_to(self, size: int) -> TaskBacklog:
        """Grow to at least `size` records."""
        self._fill(max(size, self._end))
        return self

    def _fill(self, size: int) -> None:
        _send(self._client, FAR, size - self._end)
        self._end = size

    def round_us(self, topic: str) -> float:
        """Time a lease and its ack."""
        return sum(self._took_us(topic))

    def _took_us(self, topic: str) -> tuple[float, float]:
        """Median times of a lease and of an ack, by a new group that begins at the first record."""
        self._groups += 1
        group, leased, acked = f"{GROUP}-{self._groups}", [], []
        rounds = ROUNDS if topic == NEAR else min(ROUNDS, self._end // LEASED)
        with self._client.worker(topic, group=group, prefetch=0) as worker:
            for _ in range(rounds):
                begun = time.perf_counter()
                tasks = worker.fetch(LEASED, wait=1.0)
                middle = time.perf_counter()
                worker.ack(tasks)
                leased.append(middle - begun)
                acked.append(time.perf_counter() - middle)
        return statistics.median(leased) * 1e6, statistics.median(acked) * 1e6


def _send(client: penstock.Client, topic: str, count: int) -> None:
    """Send small batches of equal records."""
    step = [bytes(RECORD_BYTES)] * 100_000
    with client.producer(topic) as producer:
        for sent in range(0, count, len(step)):
            producer.send_many(step[: count - sent])
