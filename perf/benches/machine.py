"""This machine without penstock: processor, memory, disk, bare ZeroMQ, bare Unix sockets, waking up.

Every other bench has the limits of its own rows beside them; here they are together. Where one is beside another, the
ratio is the price of something: of CURVE, of a mapping, of ZeroMQ on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..bare import limits, unix_sockets, wakeups, zeromq
from ..bare.zeromq import Wire
from ..lab.harness import Lab
from ..lab.rows import Latency, Percentiles, Row
from ..load import histograms, peers

SUBJECT = "this machine"
RECORDS = 480_000
PIECES = 2_000
LESS: dict[Wire, Wire] = {"tcp": "ipc", "tcp with CURVE": "tcp"}
"""What a wire is compared with: what it does without what it adds."""


def rows(lab: Lab) -> Iterator[Row | Latency]:
    yield Row("machine: empty Python loop", "ns/turn", limits.empty_loop_ns, more_is_better=False)
    yield from _memory_and_disk(lab)
    yield from _zeromq(lab)
    yield from _unix_sockets(lab)
    yield from _in_turn_and_paced(lab)


# -- throughput -----------------------------------------------------------------------------------


def _memory_and_disk(lab: Lab) -> Iterator[Row]:
    """Copy and write rates: batches of 256 KiB on disk, 64 MiB at once in memory."""
    memcpy = _mb_per_s(limits.memcpy_ns_per_record)
    yield Row("machine: memcpy", "MB/s", memcpy)
    for name, ns_per_byte in (
        ("memcpy into a mapped file", limits.memcpy_mapped_ns_per_record),
        ("write", limits.write_ns_per_record),
        ("pwrite", limits.pwrite_ns_per_record),
    ):
        measure = _mb_per_s(partial(ns_per_byte, lab.directory))
        yield Row(f"machine: {name}", "MB/s", measure, limits={"memcpy": memcpy}, durability="written")


def _mb_per_s(ns_per_record: Callable[..., float]) -> Callable[[], float]:
    return lambda: 1e3 / ns_per_record(record_bytes=1)


def _zeromq(lab: Lab) -> Iterator[Row]:
    """ZeroMQ's rates with the batches, encoder and window of produce and consume."""
    records = lab.count(RECORDS, least=zeromq.RECORDS)
    values = peers.values(records)
    for name, measure in (
        ("DEALER/ROUTER", partial(zeromq.dealer_router_records_per_s, values)),
        ("PUSH/PULL", partial(zeromq.push_pull_records_per_s, records)),
    ):
        for wire in ("ipc", "tcp", "tcp with CURVE"):
            yield Row(
                f"machine: bare ZeroMQ, {name} over {wire}",
                "records/s",
                partial(measure, wire=wire),
                limits={f"over {less}": partial(measure, wire=less)} if (less := LESS.get(wire)) else {},
            )


def _unix_sockets(lab: Lab) -> Iterator[Row]:
    records = lab.count(RECORDS, least=zeromq.RECORDS)
    values = peers.values(records)
    yield Row(
        "machine: bare Unix socket, acknowledged batches",
        "records/s",
        lambda: unix_sockets.acknowledged_records_per_s(values),
        limits={"ZeroMQ, DEALER/ROUTER over ipc": lambda: zeromq.dealer_router_records_per_s(values)},
    )
    yield Row(
        "machine: bare Unix socket, delivered batches",
        "records/s",
        lambda: unix_sockets.delivered_records_per_s(records),
        limits={"ZeroMQ, PUSH/PULL over ipc": lambda: zeromq.push_pull_records_per_s(records)},
    )
    yield Row(
        "machine: bare Unix socket, bulk in pieces of 256 KiB",
        "MB/s",
        lambda: unix_sockets.bulk_mb_per_s(lab.count(PIECES, least=100)),
        limits={"memcpy": _mb_per_s(limits.memcpy_ns_per_record)},
    )


# -- latency --------------------------------------------------------------------------------------


def _in_turn_and_paced(lab: Lab) -> Iterator[Latency]:
    often, paced = lab.count(5_000, least=200), lab.count(500, least=100)
    syncs = lab.count(300, least=50)
    back_to_back, a_ms_apart = "one after the other", "1 ms apart"
    for load, pause_s in ((back_to_back, 0.0), (a_ms_apart, 0.001)):
        sync = partial(limits.fdatasync_ns, lab.directory, pause_s, syncs)
        yield Latency("machine: pwrite and fdatasync of 512 B", load, _percentiles(sync), durability="durable")
    for name, load, measure in (
        ("bare Unix socket, ping-pong of 100 B", back_to_back, partial(unix_sockets.ping_pong_ns, often)),
        ("eventfd, there and back", back_to_back, partial(wakeups.eventfd_ns, often)),
        ("semaphore wake-up, one way", a_ms_apart, partial(wakeups.semaphore_ages_ns, paced)),
        ("futex wake-up, one way", a_ms_apart, partial(wakeups.futex_ages_ns, paced)),
        ("bare Unix socket, one way", a_ms_apart, partial(unix_sockets.one_way_ages_ns, paced)),
        ("bare ZeroMQ over ipc, one way", a_ms_apart, partial(zeromq.one_way_ages_ns, paced)),
    ):
        yield Latency(f"machine: {name}", load, _percentiles(measure))


def _percentiles(measure: Callable[[], np.ndarray]) -> Callable[[], Percentiles]:
    return lambda: histograms.percentiles(histograms.histogram(measure()))
