"""Tasks through their lives, over a queue that is a list in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from perf.lab.harness import Lab
from perf.lab.rows import Absent
from perf.load import work
from perf.systems.queue import One, Queue, Work


class Kept(Queue):
    """Finishes what is put in at the next look; `loses` of them never."""

    name = "kept"
    durabilities = frozenset({"durable"})
    chunk = 10

    def __init__(self, missing: str = "", loses: int = 0) -> None:
        self.missing = missing
        self.loses = loses
        self.put: dict[str, int] = {}
        self.workers_seen: list[tuple[int, int]] = []
        self.lives: list[bytes] = []

    def absent(self) -> str:
        return self.missing

    def versions(self) -> dict[str, str]:
        return {}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        assert directory.is_dir()
        yield "address"

    def create(self, address: str, queue: str) -> None:
        assert queue not in self.put
        self.put[queue] = 0

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        self.put[queue] += len(values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        raise AssertionError("the workers are processes of its own")
        yield

    @contextmanager
    def workers(self, address: str, queue: str, batch: int, count: int) -> Iterator[Callable[[], int]]:
        self.workers_seen.append((batch, count))
        yield lambda: self.put[queue] - self.loses

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        yield self.lives.append


def test_a_life_is_counted_when_it_is_finished():
    kept = Kept()
    assert work.lives_per_s(kept, "address", 50) > 0
    assert work.lives_per_s(kept, "address", 50) > 0
    assert list(kept.put.values()) == [work.BATCH + 50] * 2
    assert kept.workers_seen == [(work.BATCH, work.WORKERS)] * 2


def test_tasks_that_are_never_finished_are_an_error(monkeypatch):
    monkeypatch.setattr(work, "PATIENCE_S", 0.01)
    with pytest.raises(TimeoutError, match="99 of 100 tasks were finished"):
        work.lives_per_s(Kept(loses=1), "address", 50)


def test_one_by_one_begins_with_some_that_do_not_count():
    kept = Kept()
    assert work.one_by_one_per_s(kept, "address", 5) > 0
    assert len(kept.lives) == 15


def test_a_peer_is_served_for_its_samples_and_absent_where_it_cannot_be(tmp_path, monkeypatch):
    lab = Lab(tmp_path, 1, 1.0)
    monkeypatch.setattr(work, "every_queue", lambda: [Kept()])
    entered = work.beside(lab, "durable", lambda queue, address: float(len(address)))
    with entered["kept"]() as sample:
        assert sample() == len("address")
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())
    for queue, durability in ((Kept(), "written"), (Kept("it is not installed"), "durable")):
        with pytest.raises(Absent, match=r"durable|installed"), work.served(lab, queue, durability):
            pass


def test_penstock_is_no_peer_of_itself(tmp_path):
    assert not [name for name in work.beside(Lab(tmp_path, 1, 1.0), "durable", lambda *_: 0.0) if "penstock" in name]
