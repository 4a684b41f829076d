"""One bench from its first row to its files, written after every row, so that an early end loses none.

Contract: files go to the lab's outcome alone; the caller decides what becomes of them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

from . import stores, systems
from .lab import archive, harness, machine
from .lab.harness import Lab, Tell
from .lab.measured import Measured, Result
from .lab.rows import Curve, Latency, Row


def begun(name: str, about: str, lab: Lab, subject: str = "penstock") -> Measured:
    """A bench of which nothing has been measured yet; `subject` is whose figures they will be."""
    return Measured(name, about, machine.facts(lab.directory), subject=subject)


def gather(measured: Measured, rows: Generator[Row | Latency | Curve], lab: Lab, tell: Tell) -> Iterator[Result]:
    """Measure rows, yielding each result when it is in `measured` and on disk."""
    start = time.monotonic()
    for result in harness.measure_all(rows, lab, tell):
        measured.add(result)
        measured.peers = _versions_of(measured.names_beside())
        measured.facts["minutes"] = round((time.monotonic() - start) / 60, 1)
        archive.write(lab.outcome, measured)
        yield result


def _versions_of(names: set[str]) -> dict[str, str]:
    """Versions of the named systems and stores, and of their clients."""
    named = [(system.name, system) for system in systems.every()]
    named += [(queue.name, queue) for queue in systems.every_queue()]
    named += [(stores.label(store), store) for store in stores.every_store()]
    there = [one for name, one in named if name in names and not one.absent()]
    return {name: version for one in there for name, version in one.versions().items()}
