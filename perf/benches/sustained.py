"""The rate each system sustains in an open loop, and its latency at 10, 50, 80 and 90 % of that.

Each system is offered shares of its own rate: one rate for all would only show how the queues of slower ones grow. The
rate of each system is searched for once, at the level `written`. A search takes half a minute, so the short run has
penstock's own shares only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..lab.harness import Lab
from ..lab.rows import Absent, Curve, Latency
from ..load import capacity, loads, peers
from ..load.loads import Load
from ..systems import bare
from ..systems.broker import LOCAL
from ..systems.penstock import DELIVERIES, Penstock
from ..systems.system import System

LEVEL = "written"
SIZES = (100, 1 << 10, 64 << 10)
PRECISION = 0.2
SHARES = (10, 50, 80, 90)
SECONDS, SHORT_SECONDS = 3.0, 1.5


def rows(lab: Lab) -> Iterator[Curve | Latency]:
    found = Found(lab)
    ours, *others = [Penstock(LOCAL, delivery) for delivery in reversed(DELIVERIES)]
    beside: list[System] = [*others, *peers.peers()]
    yield from _shares(lab, found, ours)
    yield from _rates(lab, found, ours, beside)
    yield from _shares_beside(lab, found, ours, beside)


class Found:
    """The sustained rate of each system, searched for when first asked for."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._rates: dict[tuple[str, int], int] = {}

    def rate(self, system: System, size: int = peers.RECORD_BYTES) -> int:
        """The rate that a server started for it sustains. Raises Absent when the system sustains none."""
        key = system.name, size
        if key not in self._rates:
            with peers.served(self._lab, system, LEVEL) as address:
                seconds = max(capacity.SHORTEST_S, capacity.SECONDS * self._lab.scale)
                self._rates[key] = capacity.rate_of(system, address, size, PRECISION, seconds)
        if not self._rates[key]:
            raise Absent(f"{system.name} sustains no rate with records of {size} bytes")
        return self._rates[key]


def _rates(lab: Lab, found: Found, ours: System, beside: list[System]) -> Iterator[Curve]:
    def measure(system: System) -> Callable[[float], float]:
        return lambda size: found.rate(system, int(size))

    yield Curve(
        "sustained rate, by record size",
        "records/s",
        "bytes of a record",
        SIZES,
        measure(ours),
        beside={system.name: measure(system) for system in beside},
        turns=1,
        durability=LEVEL,
        note=f"penstock is {ours.name}; everything received, p99 below {capacity.P99_MOST_US / 1000:.0f} ms, no growth",
        full=True,
    )


def _shares(lab: Lab, found: Found, ours: System) -> Iterator[Latency]:
    """Sample penstock as often as every figure, beside a bare socket at the same rate."""
    runs = loads.Runs(lab)
    with lab.place() as place, bare.SYSTEM.serve(place, "") as socket, peers.served(lab, ours, LEVEL) as address:
        for share in SHARES:
            load = _load(lab, found, ours, share)
            text = f"{share} % of the sustained rate"
            yield Latency(
                "send to receive, shares of the sustained rate",
                f"{share} %",
                lambda load=load, text=text: runs.kept(f"{ours.name}, {text}", loads.run(ours, address, load)),
                limits={
                    bare.SYSTEM.name: lambda load=load, text=text: runs.kept(
                        f"{bare.SYSTEM.name}, {text} of penstock", loads.run(bare.SYSTEM, socket, load)
                    )
                },
                durability=LEVEL,
                note=f"{load.rate:,} records/s, delivery of {ours.name}",
            )


def _shares_beside(lab: Lab, found: Found, ours: System, beside: list[System]) -> Iterator[Curve]:
    """Sample each system once, at shares of its own rate."""
    runs = loads.Runs(lab)

    def measure(system: System) -> Callable[[float], float]:
        def p99_us(share: float) -> float:
            load = _load(lab, found, system, int(share))
            with peers.served(lab, system, LEVEL) as address:
                outcome = loads.run(system, address, load)
            return runs.kept(f"{system.name}, {share:.0f} % of its own rate", outcome).p99

        return p99_us

    yield Curve(
        "p99, by share of the own sustained rate",
        "us",
        "% of the rate that the system sustains",
        SHARES,
        measure(ours),
        beside={system.name: measure(system) for system in beside},
        turns=1,
        durability=LEVEL,
        note=f"penstock is {ours.name}; the rates are those of the curve over record sizes at 100 B",
        full=True,
    )


def _load(lab: Lab, found: Found, system: System, share: int) -> Load:
    seconds = SECONDS if lab.full else SHORT_SECONDS
    return Load(max(1, found.rate(system) * share // 100), seconds, warm_s=seconds / 3)
