"""The workers that a queue group remembers on one partition: by name, since when, and when each last had something.

Idea: they stand in the order in which the group last saw them, so the one that has been silent longest is the first.

Contract: applies effects and decides nothing. At most WORKERS_MAX are remembered; for one more, the first that holds no
records is forgotten. The order is that of effects, not of times, so a state that is ahead forgets the same ones. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec import Struct

WORKERS_MAX = 1000
"""Workers that a group remembers on each partition."""


class KnownWorker(Struct, array_like=True):
    """A worker that a group remembers."""

    name: str
    first_us: int  # when it was made, or first given records
    last_us: int = 0  # when it was last given records, or extended a lease; 0: never


class WorkerTable(dict[str, KnownWorker]):
    """Workers by name. Invariant: the one that was seen last is the last."""

    def made(self, name: str, time_us: int, holding: Container[str]) -> None:
        """A worker is there, whether or not there is something for it. `holding` are those that hold records."""
        worker = self.pop(name, None)
        if worker is None:
            worker = KnownWorker(name, time_us)
            self._make_room(holding)
        self[name] = worker

    def given(self, name: str, time_us: int, holding: Container[str]) -> None:
        """A worker was given records."""
        self.made(name, time_us, holding)
        self[name].last_us = time_us

    def extended(self, names: Iterable[str], time_us: int) -> None:
        """Workers extended leases. One that was forgotten stays so."""
        for name in names:
            worker = self.pop(name, None)
            if worker is not None:
                worker.last_us = time_us
                self[name] = worker

    def _make_room(self, holding: Container[str]) -> None:
        if len(self) >= WORKERS_MAX:
            del self[next((name for name in self if name not in holding), next(iter(self)))]

    @classmethod
    def load(cls, workers: Iterable[KnownWorker]) -> WorkerTable:
        """Restore from a snapshot, which has them in order."""
        return cls((worker.name, worker) for worker in workers)
