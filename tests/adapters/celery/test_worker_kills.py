"""Real workers of Celery, and their children, killed at many points: no task with late acks is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from celery import Celery, chord
from celery.exceptions import TimeoutError
from celery.result import AsyncResult
from penstock.adapters.celery.names import GROUP
from penstock.broker import ServeConfig
from penstock.clients import connect
from support.celery_kills import MOMENTS, STEPS, Kills
from support.celery_shop import WAIT_S, CeleryWorker, make
from support.noted import noted
from support.processes import Serving, until

QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")
ANYWHERE = [f"{step}.{moment}" for step in STEPS if step != "given back" for moment in MOMENTS]
"""Of a process that does all itself. It gives nothing back: it is gone."""
CELERYS = {"stored.after", "counted.before", "counted.after", "published.before"}
"""Of a child, Celery takes its task for done once the result is stored, with every backend: a chord may wait on."""
PREFORK = [
    ("stored.before:3", "given back.before:1"),
    ("stored.before:2", "given back.after:1"),
    ("published.after:1", "acked.before:6"),
]
"""Of a child, and of the main process, which gives back what a dead child was at."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[Serving]:
    place = tmp_path_factory.mktemp("served")
    with Serving(ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=64)) as opened:
        yield opened


class Orders:
    """Tasks of all kinds that were sent, and what is to become of them."""

    def __init__(self, shop: Celery, folder: Path, rounds: int) -> None:
        self._shop, self._folder, self._numbers = shop, folder, count()
        self._expected: list[tuple[AsyncResult, int]] = []
        for _ in range(rounds):
            self._send()

    def _send(self) -> None:
        note, total, flaky = (self._shop.tasks[name] for name in ("note", "total", "flaky"))
        numbers = [next(self._numbers) for _ in range(4)]
        parts = [note.s(str(self._folder), number) for number in numbers[1:]]
        self._expected += [
            (note.delay(str(self._folder), numbers[0]), numbers[0]),
            (chord(parts, total.s()).delay(), sum(numbers[1:])),
            (flaky.delay(1), 1),
        ]

    def _got(self, result: AsyncResult) -> int:
        """A result. Chords end behind all that was sent before, so patience counts from the last task that ran."""
        ran = -1
        while (noticed := len(noted(self._folder / "ran"))) > ran:
            ran = noticed
            with suppress(TimeoutError):
                return result.get(timeout=WAIT_S)
        return result.get(timeout=0)

    def check(self) -> None:
        """All results are there and right, all tasks ran, and the queue is empty."""
        for result, value in self._expected:
            assert self._got(result) == value
        ran = {int(line) for line in noted(self._folder / "ran")}
        assert ran == set(range(next(self._numbers)))


def live(serving: Serving, pool: str, folder: Path, places: list[str]) -> None:
    """Kill workers until each place had its kill, then let one finish."""
    shop = make(f"penstock+{serving.url}")
    orders, kills = Orders(shop, folder, rounds=3 * len(places)), Kills(folder, places)
    for number in range(len(places) + 1):
        with CeleryWorker(shop, pool, folder / f"worker-{number}", *QUIET, kills=kills) as worker:
            assert until(partial(_over, worker, kills), serving, WAIT_S), f"{kills.left()}\n{worker.log.read_text()}"
        if not kills.left():
            break
    with CeleryWorker(shop, pool, folder / "last", *QUIET) as worker:
        orders.check()
        worker.stop()
    shop.close()
    with connect(serving.url) as client:
        left = client.queue("celery", GROUP)
    assert (left.ready, left.retrying, left.in_flight, left.dead_lettered) == (0, 0, 0, 0)


def _over(worker: CeleryWorker, kills: Kills) -> bool:
    return worker.process.poll() is not None or not kills.left()


def test_a_worker_killed_at_any_step_loses_no_task(serving, tmp_path):
    live(serving, "solo", tmp_path, [f"{place}:2" for place in ANYWHERE])


@pytest.mark.parametrize(("of_child", "of_main"), PREFORK)
def test_a_child_and_its_worker_killed_at_their_steps_lose_no_task(serving, tmp_path, of_child, of_main):
    live(serving, "prefork", tmp_path, [of_child, of_main])


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_workers_killed_at_random_steps_lose_no_task(serving, tmp_path, pool, seed):
    chance = random.Random(seed)
    possible = [place for place in ANYWHERE if pool != "prefork" or place not in CELERYS]
    places = {f"{chance.choice(possible)}:{chance.randint(1, 3)}" for _ in range(8)}
    live(serving, pool, tmp_path, sorted(places))
