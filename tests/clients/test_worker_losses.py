"""What workers make of the death of brokers and of each other, with real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import LeaseLost
from penstock.clients import connect
from support.processes import Serving

WAIT = 60.0

LEASE_S = 6.0
"""A lease whose answer died with the broker stands for so long. A broker is back sooner, unless the machine is busy."""

HELD_S = 600.0
"""A lease that outlasts any start of a broker."""

KILLED_WORKER = """
import sys, time
import penstock

with penstock.connect(sys.argv[1]) as client:
    worker = client.worker("t", group="jobs", lease=float(sys.argv[2]), prefetch=0)
    first = worker.fetch(3, wait=60)
    first[0].ack()
    print([task.offset for task in first], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["unix", "ipc"])
def own(request, tmp_path):
    """A broker of the test's own, to be killed."""
    config = ServeConfig(
        data=str(tmp_path / "data"), listen=(f"{request.param}://{tmp_path}/b.sock",), restart_first_s=0.01
    )
    with Serving(config) as serving:
        yield serving


def test_the_tasks_of_a_killed_worker_go_to_another_when_its_lease_is_over(own):
    with connect(own.url, timeout=WAIT) as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(4)])
        command = [sys.executable, "-c", KILLED_WORKER, own.url, "1.0"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            assert killed.stdout.readline() == "[0, 1, 2]\n"
            with client.worker("t", group="jobs", prefetch=0) as worker:
                (untouched,) = worker.fetch(10, wait=WAIT)
                assert (untouched.offset, untouched.attempt) == (3, 1)
                killed.kill()
                killed.wait()
                again = []
                while len(again) < 2:
                    again += worker.fetch(10, wait=WAIT)
                assert [(task.offset, task.attempt) for task in again] == [(1, 2), (2, 2)]
                worker.ack([*again, untouched])
                assert client.queue("t", "jobs").depth == 0


def acked(worker, tasks):
    """The values of those that it acks. A task whose lease is over comes again."""
    errors = [future.exception(WAIT) for future in [worker.ack_nowait(task) for task in tasks]]
    assert {type(error) for error in errors} <= {type(None), LeaseLost}
    return [task.value for task, error in zip(tasks, errors, strict=True) if error is None]


def test_workers_go_on_over_the_death_of_their_broker(own):
    """Nothing acked comes again, nothing unacked is lost, and what is in hand stays in hand as long as its lease."""
    count = 3000
    with connect(own.url, timeout=WAIT) as client:
        client.create_topic("t", partitions=2)
        client.producer("t").send_many([b"%d" % number for number in range(count)])
        done = []
        how = {"group": "jobs", "lease": LEASE_S}
        with (
            client.worker("t", group="jobs", lease=HELD_S, lease_records=1, prefetch=0) as holder,
            client.worker("t", **how) as one,
            client.worker("t", **how) as two,
        ):
            (held,) = holder.fetch(1, wait=WAIT)
            kills = [500, 1500]
            while len(done) < count - 1:
                for worker in (one, two):
                    done += acked(worker, worker.fetch(50, wait=0.1))
                if kills and len(done) > kills[0]:
                    kills.pop(0)
                    own.kill_broker()
            held.ack()
        assert sorted([*done, held.value], key=int) == [b"%d" % number for number in range(count)]
        assert client.queue("t", "jobs").depth == 0


def test_outcomes_that_were_on_their_way_when_the_broker_died_arrive(own):
    with connect(own.url, timeout=WAIT) as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(2000)])
        with client.worker("t", group="jobs", lease=LEASE_S, lease_records=500) as worker:
            futures, killer = [], threading.Thread(target=own.kill_broker)
            for task in worker:
                futures.append(worker.ack_nowait(task))
                if len(futures) == 700:
                    killer.start()
                if len(futures) == 2000:
                    break
            killer.join()
            worker.flush()
            assert [future.exception() for future in futures] == [None] * 2000
        assert client.queue("t", "jobs").depth == 0


def test_a_worker_closes_without_its_broker(own):
    with connect(own.url, timeout=WAIT) as client:
        client.create_topic("t")
        client.producer("t").send(b"x")
        worker = client.worker("t", group="jobs")
        (task,) = worker.fetch(1, wait=WAIT)
        own.end()
        worker.close()
        assert worker.closed
        assert not task.lost


# -- threads ------------------------------------------------------------------------------------------------


def test_one_thread_fetches_any_settles_and_another_closes(penstock_broker):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(60)])
        worker = client.worker("t", group="jobs")
        done, ended = threading.Semaphore(0), threading.Event()

        def settle(task):
            task.ack()
            done.release()

        def work():
            with ThreadPoolExecutor(4) as pool:
                for task in worker:
                    pool.submit(settle, task)
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(60):
            assert done.acquire(timeout=WAIT)
        assert not ended.is_set(), "iterating waits for tasks to come"
        worker.close()
        assert ended.wait(WAIT), "and ends with its worker"
        thread.join()
        assert client.queue("t", "jobs").depth == 0
