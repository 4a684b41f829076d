"""Real worker processes of Celery over a served broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError
from penstock.broker import ServeConfig
from support.celery_shop import WAIT_S, CeleryWorker, Held, make
from support.noted import noted
from support.processes import Serving, until


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[Serving]:
    place = tmp_path_factory.mktemp("served")
    with Serving(ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=256)) as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(serving) -> Iterator[Celery]:
    made = make(f"penstock+{serving.url}")
    yield made
    made.close()


@pytest.fixture(scope="module", params=["prefork", "threads", "solo"])
def worker(request, shop, tmp_path_factory) -> Iterator[CeleryWorker]:
    with CeleryWorker(shop, request.param, tmp_path_factory.mktemp("log") / request.param) as running:
        yield running
        running.stop()


def test_results_retries_and_failures_come_back(worker, shop):
    tasks = shop.tasks
    assert tasks["add"].delay(2, 3).get(timeout=WAIT_S) == 5
    assert tasks["flaky"].delay(2).get(timeout=WAIT_S) == 2
    with pytest.raises(KeyError, match="broken"):
        tasks["broken"].delay().get(timeout=WAIT_S)
    eta = datetime.now(UTC) + timedelta(seconds=0.2)
    assert tasks["add"].apply_async((1, 1), eta=eta).get(timeout=WAIT_S) == 2


def test_chains_groups_and_chords_complete(worker, shop):
    add, total = shop.tasks["add"], shop.tasks["total"]
    assert chain(add.s(1, 1), add.s(2), add.s(3)).delay().get(timeout=WAIT_S) == 7
    assert group(add.s(n, n) for n in range(5)).delay().get(timeout=WAIT_S) == [0, 2, 4, 6, 8]
    assert chord([add.s(n, n) for n in range(5)], total.s()).delay().get(timeout=WAIT_S) == 20


def test_remote_control_answers_and_revokes(worker, shop):
    name = f"{worker.log.name}@test"
    inspect = shop.control.inspect(destination=[name], timeout=WAIT_S, limit=1)
    assert inspect.ping() == {name: {"ok": "pong"}}
    assert "add" in inspect.registered()[name]
    result = shop.tasks["add"].apply_async((1, 1), countdown=3600)
    shop.control.revoke(result.id, destination=[name], reply=True, timeout=WAIT_S, limit=1)
    again = shop.tasks["add"].apply_async((1, 1), task_id=result.id)
    with pytest.raises(TaskRevokedError):
        again.get(timeout=WAIT_S)


@pytest.fixture
def held(tmp_path) -> Iterator[Held]:
    with closing(Held(tmp_path)) as made:
        yield made


def test_a_task_with_late_acks_survives_its_worker(serving, shop, tmp_path, held):
    with CeleryWorker(shop, "prefork", tmp_path / "first", f"--queues={tmp_path.name}") as first:
        result = shop.tasks["hold"].apply_async([str(tmp_path)], queue=tmp_path.name)
        assert until(lambda: len(noted(tmp_path / "begun")) == 1, serving)
        first.kill()
    with CeleryWorker(shop, "prefork", tmp_path / "second", f"--queues={tmp_path.name}") as second:
        held.close()
        assert result.get(timeout=WAIT_S) == 2
        second.stop()
