"""Real workers of Celery whose broker is killed and comes back while tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from celery import Task
from kombu.exceptions import OperationalError
from penstock.adapters.celery.names import GROUP
from penstock.broker import ServeConfig
from penstock.clients import connect
from support.celery_shop import LEASE_S, WAIT_S, CeleryWorker, Held, make
from support.noted import noted
from support.processes import Serving, until

TASKS = 20

Restart = Callable[[Task], None]
"""Kill the broker, and have one serve again; given a task to try."""


@pytest.fixture
def config(tmp_path_factory) -> ServeConfig:
    place = tmp_path_factory.mktemp("served")
    return ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=64)


@pytest.fixture
def serving(config) -> Iterator[Serving]:
    with Serving(config) as opened:
        yield opened


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_goes_on_when_its_broker_was_killed(serving, tmp_path, pool):
    run(serving, tmp_path, pool, lambda _: serving.kill_broker(), timeout=20.0)


def test_a_worker_goes_on_when_its_broker_was_away_for_longer_than_requests_and_leases_last(serving, config, tmp_path):
    with ExitStack() as stack:

        def restart(note: Task) -> None:
            serving.process.kill()
            serving.process.wait()
            with pytest.raises(OperationalError, match="timed out"):
                note.apply_async([str(tmp_path), 0], retry=False)  # it may be sent later
            stack.enter_context(Serving(config))

        run(serving, tmp_path, "prefork", restart, timeout=2 * LEASE_S)


def run(serving: Serving, folder: Path, pool: str, restart: Restart, timeout: float) -> None:
    """Tasks of which one runs while the broker is killed: none is lost, and all results arrive."""
    shop = make(f"penstock+{serving.url}", timeout)
    note = shop.tasks["note"]
    with closing(Held(folder)) as held, CeleryWorker(shop, pool, folder / "worker") as worker:
        running = shop.tasks["hold"].delay(str(folder))
        before = [note.delay(str(folder), number) for number in range(TASKS)]
        assert until(lambda: bool(noted(folder / "begun")), serving)
        restart(note)
        after = [note.delay(str(folder), number) for number in range(TASKS, 2 * TASKS)]
        held.close()
        assert running.get(timeout=WAIT_S) >= 1
        assert [each.get(timeout=WAIT_S) for each in [*before, *after]] == list(range(2 * TASKS))
        worker.stop()
    shop.close()
    with connect(serving.url) as client:
        left = client.queue("celery", GROUP)
    assert (left.ready, left.in_flight, left.dead_lettered) == (0, 0, 0)
    assert {int(line) for line in noted(folder / "ran")} == set(range(2 * TASKS))
