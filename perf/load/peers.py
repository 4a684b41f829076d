"""The peers of a figure: every other message system, at the same level of durability, sampled in its own way.

Idea: a bench names a load and a durability, and gets for each peer what the harness enters before its samples: a
server of its own in a fresh directory, stopped when the block ends. A peer that cannot run here says so by itself.

Contract: durability is never mixed: a peer is absent beside a figure at a level that it has not really got. Every
sample has a stream of its own, so that queues, which forget what was read, and logs, which do not, do the same work.
The number of records follows each peer's own speed (System.chunk), so that no sample takes much longer than the others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import TypeVar

from .. import systems
from ..lab.harness import Lab
from ..lab.rows import Absent, Beside, LatencySample, Percentiles, Sample
from ..systems.penstock import Penstock
from ..systems.system import System
from . import loads

T = TypeVar("T")

RECORD_BYTES = 100
RECORD_COSTS_BYTES = 1000
"""What a record costs beside its bytes, as bytes: a larger one takes longer, but not as much as it is larger."""

_streams = count()


def peers() -> list[System]:
    """All peers, whether or not they can run here. A bare socket is none: it acknowledges nothing."""
    return [system for system in systems.every() if system.durabilities and not isinstance(system, Penstock)]


def values(records: int, size: int = RECORD_BYTES) -> list[bytes]:
    """`records` different values of `size` bytes."""
    return [b"%0*d" % (size, number) for number in range(records)]


def producing(lab: Lab, durability: str, size: int = RECORD_BYTES) -> dict[str, Beside[Sample]]:
    """Records per second, sent and acknowledged."""
    return _beside(lab, durability, lambda system, address: _produced(system, address, _values_of(lab, system, size)))


def consuming(lab: Lab, durability: str, size: int = RECORD_BYTES) -> dict[str, Beside[Sample]]:
    """Records per second, read from the oldest; stored before the clock starts."""
    return _beside(lab, durability, lambda system, address: _consumed(system, address, _values_of(lab, system, size)))


def acknowledging(lab: Lab, durability: str, rounds: int) -> dict[str, Beside[Sample]]:
    """Median of microseconds from one record to its acknowledgement, one after the other."""
    return _beside(lab, durability, lambda system, address: _acknowledged(system, address, rounds))


def delivering(
    lab: Lab, durability: str, load: loads.Load, told: Callable[[System, loads.Outcome], Percentiles]
) -> dict[str, Beside[LatencySample]]:
    """Latency from due to received; `told` keeps each run."""
    return _beside(lab, durability, lambda system, address: told(system, loads.run(system, address, load)))


@contextmanager
def served(lab: Lab, system: System, durability: str) -> Iterator[str]:
    """A server of a system in a fresh directory. Raises Absent when there can be none at this level."""
    if system.durabilities and durability not in system.durabilities:
        raise Absent(f"it acknowledges only what is {', '.join(sorted(system.durabilities))}")
    if reason := system.absent():
        raise Absent(reason)
    with lab.place() as place, system.serve(place, durability) as address:
        yield address


def _beside(
    lab: Lab, durability: str, measure: Callable[[System, str], T]
) -> dict[str, Callable[[], AbstractContextManager[Callable[[], T]]]]:
    @contextmanager
    def enter(system: System) -> Iterator[Callable[[], T]]:
        with served(lab, system, durability) as address:
            yield lambda: measure(system, address)

    return {system.name: lambda system=system: enter(system) for system in peers()}


def _values_of(lab: Lab, system: System, size: int) -> list[bytes]:
    """The number of records that take this system about half a second."""
    share = (RECORD_BYTES + RECORD_COSTS_BYTES) / (size + RECORD_COSTS_BYTES)
    return values(lab.count(int(system.chunk * share), least=20), size)


def _fresh(system: System, address: str) -> str:
    stream = f"peer-{next(_streams)}"
    system.create(address, stream)
    return stream


def _produced(system: System, address: str, records: Sequence[bytes]) -> float:
    stream = _fresh(system, address)
    begun = time.perf_counter()
    system.produce(address, stream, records)
    return len(records) / (time.perf_counter() - begun)


def _consumed(system: System, address: str, records: Sequence[bytes]) -> float:
    stream = _fresh(system, address)
    system.produce(address, stream, records)
    begun = time.perf_counter()
    got = system.consume(address, stream, len(records))
    elapsed = time.perf_counter() - begun
    if len(got) < len(records):
        raise RuntimeError(f"{system.name} gave back {len(got)} of {len(records)} records")
    return len(got) / elapsed


def _acknowledged(system: System, address: str, rounds: int) -> float:
    took = []
    with system.acknowledged(address, _fresh(system, address)) as send:
        for _ in range(rounds):
            begun = time.perf_counter()
            send([bytes(RECORD_BYTES)])
            took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6
