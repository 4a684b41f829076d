"""The RESP door of the gateway: appending by redis-benchmark, and groups of consumers by redis-py, beside Redis.

`written` has a Redis that keeps nothing on disk beside it, `durable` one with `appendfsync always`. Both servers get
the same commands over a Unix socket; ENQUEUE, which Redis has not, stands beside its XADD. Processor time is that of
each process of penstock while redis-benchmark ran. Beside the unpipelined XADD is one native `send` after the other.
"""

from __future__ import annotations

import json
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import penstock

from ..lab.harness import Lab
from ..lab.rows import Absent, Row, Sample
from ..systems import servers
from ..systems.broker import START, Served, cpu_s, serve

PIPELINE, CONNECTIONS = 100, 50
COMMANDS, ALONE = 300_000, 2_000
IDLE = 10_000
SPARE_FILES = 500
"""Descriptors of this process that are not for idle connections."""

VALUE = "x" * 100
NATIVE = "native send"
REDIS = {"written": "Redis in memory", "durable": "Redis, appendfsync always"}
KEEPS = {"written": ("no", "no"), "durable": ("yes", "always")}
COMMAND = {"XADD": ("*", "value", VALUE), "ENQUEUE": (VALUE,)}
ROUNDS = {1: 200, 100: 100, 1_000: 40}
RATIOS = {("written", 100): 1.0, ("written", 1_000): 1.0, ("durable", 1_000): 1.0}


def rows(lab: Lab) -> Iterator[Row]:
    with lab.place() as place, serve(place) as broker, _gateway(broker.url) as (door, pid):
        with penstock.connect(broker.url) as client:
            for durability in REDIS:
                client.create_topic(durability, commit=durability)
        for durability in REDIS:
            yield from _appending(lab, durability, broker, door)
        yield from _costs(lab, {"gateway": pid, **broker.pids}, door)
        for durability in REDIS:
            yield from _groups(lab, durability, door)
        yield Row(
            f"resp: memory of the gateway with {_idle():,} idle connections", "MiB", partial(_idling, broker.url),
            more_is_better=False, full=True, note=f"{resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} files allowed",
        )  # fmt: skip


def _appending(lab: Lab, durability: str, broker: Served, door: Path) -> Iterator[Row]:
    peer, commands, alone = REDIS[durability], round(COMMANDS * lab.scale), round(ALONE * lab.scale)
    adding = COMMAND["XADD"]
    for verb, words in COMMAND.items():
        yield Row(
            f"resp: {verb}, {CONNECTIONS} connections with {PIPELINE} commands under way each", "commands/s",
            partial(_rate, door, commands, verb, durability, *words),
            goal=250_000.0 if durability == "written" else None,
            peers={peer: lambda: _beside(lab, durability, lambda at: _rate(at, commands, "XADD", "s", *adding))},
            ratio_goals={peer: 0.9 if durability == "written" else 1.5}, durability=durability,
        )  # fmt: skip
    yield Row(
        "resp: XADD, one after the other, median", "us", partial(_median, door, alone, durability),
        more_is_better=False, limits={NATIVE: lambda: _native(broker.url, durability, alone)},
        peers={peer: lambda: _beside(lab, durability, lambda at: _median(at, alone, "s"))},
        ratio_goals={NATIVE: 1.3} if durability == "written" else {peer: 2.0}, durability=durability,
    )  # fmt: skip


def _costs(lab: Lab, pids: dict[str, int], door: Path) -> Iterator[Row]:
    for name in ("gateway", "broker", "keeper"):
        yield Row(
            f"resp: processor time of the {name} for an XADD, pipelined", "us",
            lambda pid=pids[name]: _cost(door, pid, round(COMMANDS * lab.scale)), more_is_better=False,
            durability="written",
        )  # fmt: skip


def _groups(lab: Lab, durability: str, door: Path) -> Iterator[Row]:
    peer = REDIS[durability]
    for count, rounds in ROUNDS.items():
        goal = RATIOS.get((durability, count))
        sample = partial(_taken, durability=durability, count=count, rounds=max(round(rounds * lab.scale), 3))
        yield Row(
            f"resp: XREADGROUP with COUNT {count:,} and XACK", "entries/s", partial(sample, door),
            peers={peer: lambda sample=sample: _beside(lab, durability, sample)},
            ratio_goals={} if goal is None else {peer: goal}, durability=durability,
        )  # fmt: skip


# -- servers ---------------------------------------------------------------------------------------------


@contextmanager
def _gateway(url: str) -> Iterator[tuple[Path, int]]:
    """A gateway of this broker: its socket and process."""
    with servers.short_path() as place:
        door = place / "resp"
        command = [sys.executable, "-c", START, "gateway", "--json", "--url", url, "--resp", f"unix://{door}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            try:
                json.loads(process.stdout.readline())
                yield door, process.pid
            finally:
                process.terminate()


@contextmanager
def _beside(lab: Lab, durability: str, measure: Callable[[Path], float]) -> Iterator[Sample]:
    """A sample of a Redis that keeps as much as `durability` says."""
    if reason := servers.absence("redis-server", "redis", "hiredis"):
        raise Absent(reason)
    keeps, fsync = KEEPS[durability]
    with lab.place() as directory, servers.short_path() as place:
        at = place / "redis"
        command = [
            servers.program("redis-server"), "--port", "0", "--unixsocket", str(at), "--dir", str(directory),
            "--save", "", "--appendonly", keeps, "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip
        with servers.running(command, directory / "redis.log", [at]):
            yield lambda: measure(at)


# -- samples ---------------------------------------------------------------------------------------------


def _benchmark(at: Path, commands: int, pipeline: int, connections: int, *words: str) -> list[float]:
    """What redis-benchmark says: commands a second, and milliseconds: average, least, median ..."""
    found = subprocess.run(
        [
            servers.program("redis-benchmark"), "-s", str(at), "-n", str(commands), "-P", str(pipeline),
            "-c", str(connections), "--csv", *words,
        ],
        capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip
    return [float(field.strip('"')) for field in found.splitlines()[-1].split(",")[-7:]]


def _rate(at: Path, commands: int, *words: str) -> float:
    return _benchmark(at, commands, PIPELINE, CONNECTIONS, *words)[0]


def _median(at: Path, commands: int, key: str) -> float:
    return 1000 * _benchmark(at, commands, 1, 1, "XADD", key, *COMMAND["XADD"])[3]


def _cost(at: Path, pid: int, commands: int) -> float:
    before = cpu_s(pid)
    _rate(at, commands, "XADD", "written", *COMMAND["XADD"])
    return (cpu_s(pid) - before) / commands * 1e6


def _native(url: str, topic: str, records: int) -> float:
    with penstock.connect(url) as client, client.producer(topic) as producer:
        value, took = VALUE.encode(), list[float]()
        for _ in range(records):
            began = time.perf_counter()
            producer.send(value)
            took.append(time.perf_counter() - began)
        return statistics.median(took) * 1e6


def _taken(at: Path, durability: str, count: int, rounds: int) -> float:
    """Entries that a consumer gets and acknowledges a second, of a stream that is there."""
    import redis

    with closing(redis.Redis(unix_socket_path=str(at))) as client:
        stream = _filled(client, durability, count * rounds)
        began = time.perf_counter()
        for _ in range(rounds):
            ((_, entries),) = client.xreadgroup("g", "c", {stream: ">"}, count=count)
            assert client.xack(stream, "g", *(id_ for id_, _ in entries)) == count
        took = time.perf_counter() - began
        client.delete(stream)
        return count * rounds / took


def _filled(client: Any, durability: str, entries: int) -> str:
    """A stream with a group."""
    stream = f"{durability}-{time.monotonic_ns()}"
    if "penstock_broker" in client.info("server"):
        client.execute_command("CREATE", stream, "commit", durability)
    for start in range(0, entries, 1_000):
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(1_000, entries - start)):
            pipeline.xadd(stream, {"value": VALUE})
        pipeline.execute()
    client.xgroup_create(stream, "g", "0")
    return stream


def _idle() -> int:
    return min(IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE_FILES)


def _idling(url: str) -> float:
    """Memory of a gateway beside connections that asked once."""
    with _gateway(url) as (door, pid), ExitStack() as peers:
        for _ in range(_idle()):
            peer = peers.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(str(door))
            peer.sendall(b"PING\r\n")
            assert peer.recv(100) == b"+PONG\r\n"
        status = Path(f"/proc/{pid}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
