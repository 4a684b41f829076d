"""Requests for leases that no call waits for any more are recalled, so that they lease no task in vain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from penstock.clients.working.core import WorkerCore
from penstock.storage.errors import Closed
from penstock.transport.messages import Failure
from penstock.transport.queue_messages import Lease, Leased, Settled, SettleTasks, Verb
from support.worker_bench import Bench


@pytest.fixture
def bench(penstock_broker: Any) -> Iterator[Bench]:
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send(b"first")
    bench = Bench(penstock_broker)
    yield bench
    bench.connection.close()


def waiting_fetch(bench: Bench, core: WorkerCore) -> Any:
    """A fetch that has asked, and waits for a minute."""
    steps = core.fetch(10, bench.connection.clock() + 60.0)
    for _ in range(5):
        next(steps)
        bench.connection.turn()
    return steps


@pytest.fixture
def idle(bench) -> WorkerCore:
    """A worker of a group that is done with everything."""
    core = bench.worker()
    bench.run(core.settle_now(bench.fetch(core, 100), Verb.ACK))
    bench.asked(Lease)
    return core


def produce(bench: Bench) -> None:
    with bench.broker.connect() as client:
        client.producer("t").send(b"new")


def test_a_fetch_that_is_cancelled_recalls_what_it_asked_for(bench, idle):
    steps = waiting_fetch(bench, idle)
    asked = [lease.request for lease in bench.asked(Lease)]
    steps.close()
    assert [message.recalled for message in bench.asked(SettleTasks)] == [asked]
    bench.connection.turn()
    produce(bench)
    bench.connection.turn()
    assert idle.held == {}
    assert [task.value for task in bench.fetch(idle)] == [b"new"]


def test_a_cancelled_fetch_lets_the_credit_of_prefetching_stand(bench):
    core = bench.worker(prefetch=2)
    bench.run(core.settle_now(bench.fetch(core, 100), Verb.ACK))
    bench.fetch(core)
    assert core.leasing.asks, "credit stands at the broker"
    steps = waiting_fetch(bench, core)
    bench.asked(SettleTasks)
    steps.close()
    assert bench.asked(SettleTasks) == []
    assert core.leasing.asks


def test_a_closing_worker_waits_for_no_request_of_its_own(bench, idle):
    steps = waiting_fetch(bench, idle)
    bench.run(idle.close())
    with pytest.raises(Closed):
        next(steps)
    assert not idle.leasing.asks
    produce(bench)
    other = bench.worker()
    assert [(task.value, task.attempt) for task in bench.fetch(other)] == [(b"new", 1)]


def test_a_closing_worker_sends_nothing_that_has_not_left(bench, idle):
    bench.cut = True
    steps = waiting_fetch(bench, idle)
    bench.cut = False
    steps.close()
    bench.run(idle.close())
    bench.connection.turn()
    assert bench.asked(Lease) == []


def test_what_is_leased_to_a_closing_worker_meanwhile_goes_back_uncounted(bench, idle):
    waiting_fetch(bench, idle)
    bench.cut = True
    produce(bench)
    bench.cut = False
    bench.run(idle.close())
    assert [(task.value, task.attempt) for task in bench.fetch(bench.worker())] == [(b"new", 1)]


def test_a_lease_asked_again_for_a_closed_worker_does_not_wait(bench, idle):
    """It carries outcomes, so it is said again over a new connection."""
    produce(bench)
    tasks = bench.fetch(idle)
    steps = idle.ack_and_fetch(tasks, 10, bench.connection.clock() + 60.0)
    bench.answers[Leased] = bench.answers[Settled] = lambda answer: Failure(0, "lost", "an answer that is lost")
    next(steps)
    bench.connection.turn()
    del bench.answers[Leased], bench.answers[Settled]
    bench.asked(Lease)
    bench.connection.channel.break_off()
    bench.run(idle.close())
    assert [(lease.wait_ms, len(lease.settles)) for lease in bench.asked(Lease)] == [(0, 1)]
