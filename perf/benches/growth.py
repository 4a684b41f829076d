"""How cost grows: with the log, topics, consumers, the backlog, and records in flight.

Each curve grows one thing and keeps everything else. The default run has few small points, the full one goes to the
end: 50 GiB of log where the disk has room for it, 10,000 topics, 1,000 consumers, 10 million records behind and a
million in flight. The setup of one point stays and grows for the next.
"""

from __future__ import annotations

import random
import resource
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import penstock

from ..lab.harness import Lab
from ..lab.rows import Curve
from ..load import peers
from ..systems.broker import Served, serve

MIB, GIB = 1 << 20, 1 << 30
LOG_SIZES = (MIB, 16 * MIB, 256 * MIB)
LOG_SIZES_FULL = (*LOG_SIZES, GIB, 4 * GIB, 16 * GIB, 50 * GIB)
SPARE_BYTES = 10 * GIB
"""The space a log must leave free on the disk."""
TOPICS, TOPICS_FULL = (1, 100), (1, 100, 1_000, 10_000)
OTHER_FILES = 2_500
"""A broker leaves some 2,200 to readers and connections (broker/frugal_files.py), and has a few of its own."""
CONSUMERS, CONSUMERS_FULL = (1, 10), (1, 10, 100, 1_000)
BACKLOGS, BACKLOGS_FULL = (1_000, 100_000), (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
IN_FLIGHT, IN_FLIGHT_FULL = (1, 100, 10_000), (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
BIG = 1000
"""Bytes of a record in the curves over the size of a log."""
TURNS = 3
WATCHED_S = 2.0


def rows(lab: Lab) -> Iterator[Curve]:
    yield from _log(lab)
    yield from _topics(lab)
    yield from _consumers(lab)
    yield from _backlog(lab)
    yield from _in_flight(lab)


# -- the log --------------------------------------------------------------------------------------


def _log(lab: Lab) -> Iterator[Curve]:
    room = shutil.disk_usage(lab.directory).free - SPARE_BYTES
    sizes = [size for size in (LOG_SIZES_FULL if lab.full else LOG_SIZES) if size <= room]
    with lab.place() as place:
        log = GrowingLog(place / "log")
        for what, unit in (("append", "ns/record"), ("open", "ms"), ("seek and read one record", "us")):
            yield Curve(
                f"{what}, by size of the log",
                unit,
                "bytes",
                sizes,
                lambda size, what=what: log.figure(what, int(size)),
                turns=TURNS,
                durability="written",
                note=f"records of {BIG} B",
            )


class Once:
    """A thing that only grows: at each size it is measured as often as will be asked, before it grows on.

    So the curves over one thing need it once, where growing is what takes the time.
    """

    def __init__(self, grow: Callable[[int], None], measures: Mapping[str, Callable[[], float]]) -> None:
        self._grow = grow
        self._measures = measures
        self._taken: dict[int, dict[str, deque[float]]] = {}

    def figure(self, what: str, size: int) -> float:
        """One more sample of what was measured at a size."""
        if size not in self._taken:
            self._grow(size)
            samples = {name: deque(measure() for _ in range(TURNS + 1)) for name, measure in self._measures.items()}
            self._taken[size] = samples
        return self._taken[size][what].popleft()


class GrowingLog(Once):
    """A log with at least as many bytes as asked for last."""

    def __init__(self, path: Path) -> None:
        measures = {"append": self._append_ns, "open": self._open_ms, "seek and read one record": self._seek_us}
        super().__init__(self._fill, measures)
        self._path = path
        self._batch = peers.values(256, BIG)

    def _fill(self, size: int) -> None:
        with self._opened() as log:
            while log.end_offset * BIG < size:
                log.append(self._batch)

    def _append_ns(self) -> float:
        """Time to append a megabyte, after a first batch that makes a segment."""
        with self._opened() as log:
            log.append(self._batch)
            begun = time.perf_counter()
            for _ in range(4):
                log.append(self._batch)
            return (time.perf_counter() - begun) / (4 * len(self._batch)) * 1e9

    def _open_ms(self) -> float:
        begun = time.perf_counter()
        with self._opened():
            return (time.perf_counter() - begun) * 1e3

    def _seek_us(self) -> float:
        """Median time to seek to places drawn with the same seed each time."""
        draw, took = random.Random(1), []
        with penstock.Log(self._path, read_only=True) as log:
            for _ in range(200):
                place = draw.randrange(log.end_offset)
                begun = time.perf_counter()
                log.seek(place)
                next(iter(log))
                took.append(time.perf_counter() - begun)
        return statistics.median(took) * 1e6

    def _opened(self) -> penstock.Log:
        return penstock.Log(self._path, commit="written", segment_bytes="256MB")


# -- topics ---------------------------------------------------------------------------------------


def _topics(lab: Lab) -> Iterator[Curve]:
    """Cost per topic. A broker keeps two files open per partition, up to the machine's hard limit."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = (files - OTHER_FILES) // 2
    counts = sorted({min(count, most) for count in (TOPICS_FULL if lab.full else TOPICS)})
    note = "" if counts[-1] < most else f"{counts[-1]:,} topics, because a process may have {files:,} files open here"
    with lab.place() as place, ExitStack() as stack:
        topics = GrowingTopics(stack, place, counts[-1])
        for what, unit in (("idle processor time", "% of a core"), ("one record acknowledged", "us")):
            yield Curve(
                f"{what}, by topics",
                unit,
                "topics",
                counts,
                lambda count, what=what: topics.figure(what, int(count)),
                turns=TURNS,
                durability="written",
                note=note,
            )


class GrowingTopics(Once):
    """A broker with as many topics as asked for last, each with one record."""

    def __init__(self, stack: ExitStack, place: Path, most: int) -> None:
        measures = {"idle processor time": self._idle_share, "one record acknowledged": self._send_us}
        super().__init__(self._create, measures)
        self._broker = stack.enter_context(serve(place, settings={"board_rows": str(2 * most + 1024)}))
        self._client = stack.enter_context(penstock.connect(self._broker.url))
        self._count = 0

    def _create(self, count: int) -> None:
        for number in range(self._count, count):
            self._client.create_topic(f"topic-{number}", commit="written")
            with self._client.producer(f"topic-{number}") as producer:
                producer.send(bytes(peers.RECORD_BYTES))
        self._count = max(count, self._count)

    def _idle_share(self) -> float:
        before, begun = self._broker.cpu_s(), time.perf_counter()
        time.sleep(WATCHED_S)
        return (self._broker.cpu_s() - before) / (time.perf_counter() - begun) * 100

    def _send_us(self) -> float:
        took = []
        with self._client.producer("topic-0") as producer:
            for _ in range(300):
                begun = time.perf_counter()
                producer.send(bytes(peers.RECORD_BYTES))
                took.append(time.perf_counter() - begun)
        return statistics.median(took) * 1e6


# -- consumers ------------------------------------------------------------------------------------


def _consumers(lab: Lab) -> Iterator[Curve]:
    counts = CONSUMERS_FULL if lab.full else CONSUMERS
    for name, unit, measure in (
        ("one record to all consumers, by consumers", "us", lambda consumers: consumers.delivered_us()),
        ("broker's processor time for one record and consumer", "us", lambda consumers: consumers.broker_us()),
    ):
        with lab.place() as place, ExitStack() as stack:
            consumers = GrowingConsumers(stack, place)
            measured = lambda x, consumers=consumers, measure=measure: measure(consumers.of(int(x)))  # noqa: E731
            yield Curve(
                name,
                unit,
                "consumers",
                counts,
                measured,
                durability="written",
                note="consumers without a group, delivery push, all in one process that asks one after the other",
            )


class GrowingConsumers:
    """As many consumers of one topic as asked for last; each gets every record."""

    def __init__(self, stack: ExitStack, place: Path) -> None:
        self._stack = stack
        self._broker = stack.enter_context(serve(place))
        self._client = stack.enter_context(penstock.connect(self._broker.url))
        self._client.create_topic("fan-out", commit="written")
        self._producer = stack.enter_context(self._client.producer("fan-out"))
        self._consumers: list[penstock.Consumer] = []

    def of(self, count: int) -> GrowingConsumers:
        while len(self._consumers) < count:
            consumer = self._client.consumer("fan-out", start="latest", delivery="push")
            self._consumers.append(self._stack.enter_context(consumer))
        return self

    def delivered_us(self) -> float:
        """Median time from before sending until the last consumer has the record."""
        return statistics.median(self._round_s() for _ in range(20)) * 1e6

    def broker_us(self) -> float:
        """The broker's processor time per delivery; it is counted in ticks of 10 ms, so many rounds are needed."""
        rounds, before = 0, self._broker.cpu_s()
        until = time.perf_counter() + WATCHED_S
        while time.perf_counter() < until:
            self._round_s()
            rounds += 1
        return (self._broker.cpu_s() - before) / (rounds * len(self._consumers)) * 1e6

    def _round_s(self) -> float:
        begun = time.perf_counter()
        self._producer.send(bytes(peers.RECORD_BYTES))
        for consumer in self._consumers:
            if len(consumer.fetch(1, wait=30.0)) != 1:
                raise RuntimeError("a consumer got nothing within half a minute")
        return time.perf_counter() - begun


# -- the backlog ----------------------------------------------------------------------------------


def _backlog(lab: Lab) -> Iterator[Curve]:
    backlogs = [int(count) for count in (BACKLOGS_FULL if lab.full else BACKLOGS)]
    for name, unit, measure in (
        ("read from the start, by backlog", "ns/record", lambda backlog: backlog.read_ns()),
        ("ask for the lag, by backlog", "us", lambda backlog: backlog.lag_us()),
    ):
        with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
            backlog = Backlog(broker, client)
            measured = lambda x, backlog=backlog, measure=measure: measure(backlog.of(int(x)))  # noqa: E731
            yield Curve(name, unit, "records behind", backlogs, measured, durability="written", note="delivery push")


class Backlog:
    """A topic with as many records as asked for last."""

    def __init__(self, broker: Served, client: penstock.Client) -> None:
        self._broker = broker
        self._client = client
        self._count = 0
        client.create_topic("backlog", commit="written", segment_bytes="256MB")

    def of(self, count: int) -> Backlog:
        value = bytes(peers.RECORD_BYTES)
        with self._client.producer("backlog") as producer:
            while self._count < count:
                self._count += producer.send_many([value] * min(100_000, count - self._count))
        return self

    def read_ns(self) -> float:
        """Time until a new consumer has the last record."""
        begun = time.perf_counter()
        with self._client.consumer("backlog", start="earliest", delivery="push") as consumer:
            deque(islice(consumer, self._count), maxlen=0)
            return (time.perf_counter() - begun) / self._count * 1e9

    def lag_us(self) -> float:
        took = []
        with self._client.consumer("backlog", start="earliest", delivery="push") as consumer:
            for _ in range(100):
                begun = time.perf_counter()
                behind = consumer.lag()
                took.append(time.perf_counter() - begun)
                if behind != self._count:
                    raise RuntimeError(f"{self._count} records are behind, and the lag says {behind}")
        return statistics.median(took) * 1e6


# -- in flight ------------------------------------------------------------------------------------


def _in_flight(lab: Lab) -> Iterator[Curve]:
    windows = IN_FLIGHT_FULL if lab.full else IN_FLIGHT
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("in-flight", segment_bytes="256MB", retention_bytes="512MB")
        with client.producer("in-flight", window_bytes="256MB") as producer:
            yield Curve(
                "send_nowait, by records in flight",
                "us/record",
                "records in flight",
                windows,
                lambda window: _windowed_us(producer, int(window)),
                durability="durable",
                note="at most so many are not acknowledged; the oldest is waited for before the next is sent",
            )


def _windowed_us(producer: penstock.Producer, window: int) -> float:
    """Time per record with `window` in flight; sends twice the window, more if it is small."""
    count = max(2 * window, min(100_000, 300 * window))
    flying: deque[penstock.clients.Future] = deque()
    value = bytes(peers.RECORD_BYTES)
    begun = time.perf_counter()
    for _ in range(count):
        if len(flying) == window:
            flying.popleft().result()
        flying.append(producer.send_nowait(value))
    producer.flush()
    return (time.perf_counter() - begun) / count * 1e6
