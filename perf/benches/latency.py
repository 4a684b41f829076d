"""Time for one record: until it is acknowledged, until an idle reader has it, and until a reader has it under load.

Closed loops first. The disk is measured at the same pace: an fdatasync right after another is cheaper than one after a
pause, so the limit beside a round trip of L is the median fdatasync of a loop that makes one every L.

Then open loops, from the moment each record was due to the moment a consumer in another process had it. At the lowest
rate everything sleeps in between, so the row measures waking up. The tail is that of a broker at half of its sustained
rate, while its keeper syncs and retention removes segments.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import penstock

from ..bare import limits, unix_sockets, zeromq
from ..bare.other_process import peer, wait_until
from ..lab.harness import Lab
from ..lab.rows import BEST_PEER, Latency, Row
from ..load import capacity, loads, peers
from ..load.loads import Load
from ..systems import bare
from ..systems.broker import LOCAL, Served, serve
from ..systems.penstock import DELIVERIES, Direct, DirectCommitting, Penstock, TwoProducers, connected
from ..systems.redis_streams import SYSTEMS as REDIS

PACE_S = 0.001
SAME_PACE = "fdatasync at the same pace"
BARE_ZEROMQ, BARE_UNIX = "bare ZeroMQ ipc one way", "bare Unix socket one way"
PING_PONG = "bare Unix socket, ping-pong"
IDLE = 20
RATES = {"1 k/s": (1_000, 0.8), "10 k/s": (10_000, 0.4)}
"""How many in a second, and how many seconds of a sample: in the short run each peer takes a quarter of a minute."""
FULL_S = 1.5
"""Of each of five samples. Some 700 of them take most of the 40 minutes that the bench takes."""
STATED = "mapped"
"""The delivery that local readers are for; peers stand beside it."""
SEGMENT, RETAINED = "1MB", "32MB"
"""A second and more of half the rate: a reader that the machine holds up for less is not overtaken."""
TWO_PRODUCERS = 1.5
"""The most that the median may be of the best peer's where two producers share a partition, which the broker orders."""
TAIL_S, TAIL_FULL_S = 7.0, 20.0
"""Long enough for a pass of retention, which a broker makes every five seconds."""
TAIL_PRECISION = 0.5
"""Of the rate whose half is offered."""


def rows(lab: Lab) -> Iterator[Row | Latency]:
    yield from _closed_loops(lab)
    yield from _closed_loop_over_ipc(lab)
    runs = loads.Runs(lab)
    with lab.place() as place, bare.SYSTEM.serve(place, "") as socket:
        for system in _systems(lab):
            with peers.served(lab, system, "written") as address:
                yield from _open_loops(lab, runs, system, address, socket)
        yield from _tail(lab, runs, socket)


def _systems(lab: Lab) -> list[Penstock]:
    """Penstock over unix:// with every delivery, appending directly, from two, and in the full run over ZeroMQ."""
    over_zeromq = [Penstock("ipc", "push"), Penstock("ipc", "control")] if lab.full else []
    local = (Penstock(LOCAL, delivery) for delivery in DELIVERIES)
    return [*local, Direct(), DirectCommitting(), TwoProducers(), *over_zeromq]


# -- closed loops ---------------------------------------------------------------------------------


def _closed_loops(lab: Lab) -> Iterator[Row]:
    rounds = lab.count(1000, least=100)
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("durable")
        client.create_topic("written", commit="written")
        client.create_topic("direct", commit="written")
        with client.producer("durable") as producer:
            yield _durable(lab, producer, rounds)
        with client.producer("direct", direct=True) as producer:
            yield _direct(lab, producer, rounds)
        yield from _idle_reader(broker, client, rounds)
        with client.producer("written") as producer:
            yield _idle_follower(lab, lambda: _one_way_us(broker, producer, "mapped", rounds), rounds)


def _closed_loop_over_ipc(lab: Lab) -> Iterator[Row]:
    with lab.place() as place, serve(place, "ipc") as broker, penstock.connect(broker.url) as client:
        client.create_topic("durable")
        with client.producer("durable") as producer:
            row = _durable(lab, producer, lab.count(1000, least=100))
            yield replace(row, name=f"{row.name}, over ipc://", peers={}, ratio_goals={}, stated="")


def _durable(lab: Lab, producer: penstock.Producer, rounds: int) -> Row:
    taken = [_closed_loop_us(producer, 100)]

    def durable() -> float:
        taken.append(_closed_loop_us(producer, rounds))
        return taken[-1]

    return Row(
        "latency: one durable record, closed loop",
        "us",
        durable,
        more_is_better=False,
        limits={SAME_PACE: lambda: limits.fdatasync_us(lab.directory, taken[-1] / 1e6)},
        peers=peers.acknowledging(lab, "durable", rounds // 4),
        ratio_goals={SAME_PACE: 1.5},
        durability="durable",
        stated="durable record",
    )


def _direct(lab: Lab, producer: penstock.Producer, rounds: int) -> Row:
    """Its goal is to be ahead of an XADD without persistence, through redis-py."""

    def direct() -> float:
        took = _closed_loop_us(producer, rounds)
        if not producer.direct:
            raise RuntimeError(f"records went through the broker: {producer.direct.reasons}")
        return took

    return Row(
        "latency: one written record, appended directly, closed loop",
        "us",
        direct,
        more_is_better=False,
        peers=peers.acknowledging(lab, "written", rounds),
        ratio_goals={REDIS[0].name: 1.0},
        durability="written",
    )


def _closed_loop_us(producer: penstock.Producer, rounds: int) -> float:
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        producer.send(bytes(peers.RECORD_BYTES))
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def _idle_reader(broker: Served, client: penstock.Client, rounds: int) -> Iterator[Row]:
    """Latency to an idle reader. The goal, 1.2 times bare one-way plus 40 us, is judged less those 40 us."""
    for delivery, goal in (("mapped", 1.2), ("push", None)):
        with client.producer("written") as producer:
            yield Row(
                f"latency: send to an idle {delivery} reader, one way, less 40 us",
                "us",
                lambda producer=producer, delivery=delivery: _one_way_us(broker, producer, delivery, rounds) - 40,
                more_is_better=False,
                limits={BARE_ZEROMQ: zeromq.one_way_us, BARE_UNIX: unix_sockets.one_way_us},
                ratio_goals={} if goal is None else {BARE_ZEROMQ: goal},
                durability="written",
            )


def _one_way_us(broker: Served, producer: penstock.Producer, delivery: str, rounds: int) -> float:
    """Median time from before `send` to after the reader's `fetch`; the reader is idle in between."""
    with peer("reader", broker.url, "written", delivery, str(rounds)) as reader:
        for _ in range(rounds):
            wait_until(time.perf_counter() + PACE_S)
            producer.send(time.perf_counter_ns().to_bytes(8, "little") + bytes(92))
        return float(np.median(reader.ages_ns())) / 1e3


def _idle_follower(lab: Lab, mapped: Callable[[], float], rounds: int) -> Row:
    """A follower of a `penstock.Log` beside a mapped reader, both over the same way: written, nothing but waking up."""

    def followed() -> float:
        with lab.place() as place, penstock.Log(place / "log", commit="written") as log:
            log.append(b"first")
            with peer("follower", str(place / "log"), str(rounds)) as follower:
                for _ in range(rounds):
                    wait_until(time.perf_counter() + PACE_S)
                    log.append(time.perf_counter_ns().to_bytes(8, "little") + bytes(92))
                return float(np.median(follower.ages_ns())) / 1e3

    return Row(
        "latency: append to an idle follower of a Log, one way",
        "us",
        followed,
        more_is_better=False,
        limits={"mapped reader": mapped},
        ratio_goals={"mapped reader": 2.0},
        durability="written",
    )


# -- open loops -----------------------------------------------------------------------------------


def _open_loops(lab: Lab, runs: loads.Runs, system: Penstock, address: str, socket: str) -> Iterator[Latency]:
    idle = Load(IDLE, 2 * (FULL_S if lab.full else 0.8))
    yield _latency(runs, f"wake-up, {system.way}", "20/s", idle, system, address, socket)
    for text, (rate, seconds) in RATES.items():
        load = Load(rate, FULL_S if lab.full else seconds, warm_s=0.2)
        row = _latency(runs, f"send to receive, {system.way}", text, load, system, address, socket)
        if system.delivery == STATED and system.scheme == LOCAL:  # peers are as fast whichever way we deliver
            told = lambda peer, outcome, text=text: runs.kept(f"{peer.name}, written, {text}", outcome)  # noqa: E731
            row.peers = peers.delivering(lab, "written", load, told)
            row.ratio_goals = {("p50", BEST_PEER): 0.5, ("p99", BEST_PEER): 0.5}
            if isinstance(system, TwoProducers):
                row.ratio_goals = {("p50", BEST_PEER): TWO_PRODUCERS}
            elif not isinstance(system, Direct):
                row.stated = "send to receive"
        yield row


def _latency(
    runs: loads.Runs, name: str, text: str, load: Load, system: Penstock, address: str, socket: str
) -> Latency:
    forwarded = f"{bare.SYSTEM.name}, {text}"
    return Latency(
        name,
        text,
        lambda: runs.kept(f"{system.name}, written, {text}", loads.run(system, address, load)),
        limits={bare.SYSTEM.name: lambda: runs.kept(forwarded, loads.run(bare.SYSTEM, socket, load))},
        durability="written",
    )


def _tail(lab: Lab, runs: loads.Runs, socket: str) -> Iterator[Latency]:
    """Latency tails: after a search for the rate, penstock and the ping-pong are offered half of it."""
    system = Penstock(LOCAL, STATED, segment_bytes=SEGMENT, retention_bytes=RETAINED)
    with peers.served(lab, system, "written") as address:
        # Beyond the rate, retention would overtake the reader, which is an error and no answer to the search.
        rate = capacity.rate_of(Penstock(LOCAL, STATED, segment_bytes=SEGMENT), address, precision=TAIL_PRECISION)
        if not rate:
            raise RuntimeError(f"{system.name} sustains no rate at all")
        load = Load(rate // 2, TAIL_FULL_S if lab.full else TAIL_S)
        yield Latency(
            "send to receive at half of the sustained rate, keeper and retention running",
            "50 %",
            lambda: runs.kept(f"{system.name}, written, half load", _retained(system, address, load)),
            limits={PING_PONG: lambda: runs.kept(f"{PING_PONG}, half load", loads.ping_pong(socket, load))},
            ratio_goals={("p999", PING_PONG): 3.0},
            durability="written",
            note=f"{rate // 2:,} records/s; segments of {SEGMENT}, {RETAINED} kept",
            stated="tail",
        )


def _retained(system: Penstock, address: str, load: Load) -> loads.Outcome:
    """Run while retention works; without retention the run is no figure."""
    outcome = loads.run(system, address, load)
    with connected(address) as client:
        if not client.offsets(outcome.stream, "earliest")[0]:
            raise RuntimeError("retention removed nothing during the run: it was too short or too slow")
    return outcome
