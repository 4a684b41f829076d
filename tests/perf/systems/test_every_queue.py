"""Every task queue does what queue.py says, or says why it cannot run here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf import systems
from perf.lab.rows import Absent
from perf.systems import servers
from perf.systems.queue import Queue

BATCH, TASKS = 10, 35
VALUES = [b"%0100d" % number for number in range(TASKS)]


@pytest.fixture(params=systems.every_queue(), ids=lambda queue: queue.name)
def queue(request) -> Queue:
    if reason := request.param.absent():
        pytest.skip(reason)
    return request.param


def test_every_task_is_finished_by_worker_processes_and_no_process_is_left(queue, tmp_path):
    before = _children()
    with queue.serve(tmp_path, "durable") as address:
        queue.create(address, "work")
        with queue.workers(address, "work", BATCH, 2) as finished:
            for total in (BATCH, BATCH + TASKS):
                queue.enqueue(address, "work", VALUES[: total if total == BATCH else TASKS])
                servers.wait_until(lambda total=total: finished() >= total, f"{total} tasks are finished")
                assert finished() == total
    assert _children() == before


def test_one_client_takes_a_task_through_its_whole_life(queue, tmp_path):
    with queue.serve(tmp_path, "written") as address:
        queue.create(address, "one")
        if queue.name.startswith("Celery on") or queue.name == "penstock.Tasks":
            with pytest.raises(Absent, match=r"store of results|process of its own"):
                queue.one(address, "one")
            return
        with queue.one(address, "one") as life:
            for value in VALUES[:3]:
                life(value)
        with queue.worker(address, "one", BATCH) as work:
            assert work() == 0


def test_a_queue_says_what_it_is(queue):
    assert queue.versions()
    assert "durable" in queue.durabilities
    assert systems.queue_named(queue.name) is queue


def test_a_worker_that_cannot_connect_is_an_error_and_not_a_wait(tmp_path):
    beanstalkd = systems.queue_named("beanstalkd")
    if reason := beanstalkd.absent():
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="did not start"), beanstalkd.workers(f"{tmp_path}/nowhere", "q", 1, 1):
        pass


def _children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()
