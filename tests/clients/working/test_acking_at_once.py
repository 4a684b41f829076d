"""A worker that acks each task right after it came asks for the next one with the ack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from penstock.clients.connection.driver import PUMP_PERIOD_S
from penstock.clients.connection.steps import FOREVER
from penstock.clients.working.settling import GATHER_S
from penstock.transport.queue_messages import Lease, SettleTasks, Verb
from support.worker_bench import Bench

END = "end"


@pytest.fixture
def bench(penstock_broker: Any) -> Iterator[Bench]:
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(100)])
    bench = Bench(penstock_broker)
    channel = bench.connection.channel

    @contextmanager
    def together() -> Iterator[None]:
        yield
        bench.sent.append(END)

    channel.together = together  # type: ignore[method-assign]
    yield bench
    bench.connection.close()


@pytest.fixture
def core(bench: Bench) -> Any:
    """A worker that has fetched a task and acked it at once."""
    core = bench.worker(prefetch=1)
    ack(bench, core, bench.fetch(core, 1))
    bench.sent.clear()
    return core


def ack(bench: Bench, core: Any, tasks: list[Any]) -> None:
    bench.run(core.settle_now(tasks, Verb.ACK))


def kinds(bench: Bench) -> list[Any]:
    """What was sent, forgotten then."""
    found = [message if message is END else type(message) for message in bench.sent]
    bench.sent.clear()
    return found


def test_the_next_request_leaves_together_with_the_ack_and_behind_it(bench, core):
    for offset in range(1, 6):
        (task,) = bench.fetch(core, 1)
        assert (task.offset, kinds(bench)) == (offset, [])
        ack(bench, core, [task])
        assert kinds(bench) == [SettleTasks, Lease, END]


def test_a_worker_that_never_acked_at_once_asks_while_it_works(bench):
    core = bench.worker(prefetch=1)
    tasks = bench.fetch(core, 1)
    assert kinds(bench)[-2:] == [Lease, Lease], "for these tasks, and ahead"
    bench.broker.advance(GATHER_S)
    ack(bench, core, tasks)
    tasks = bench.fetch(core, 1)
    assert kinds(bench) == [SettleTasks, Lease]


def test_an_ack_that_comes_later_has_the_next_request_leave_before_it(bench, core):
    tasks = bench.fetch(core, 1)
    bench.broker.advance(GATHER_S)
    assert core.due() <= bench.connection.clock()
    bench.connection.turn()
    assert kinds(bench) == [Lease]
    assert core.due() > bench.connection.clock()
    ack(bench, core, tasks)
    assert kinds(bench) == [SettleTasks]
    bench.fetch(core, 1)
    assert kinds(bench) == [Lease]


def test_it_is_not_asked_before_the_time(bench, core):
    bench.fetch(core, 1)
    bench.broker.advance(GATHER_S / 2)
    bench.connection.turn()
    assert kinds(bench) == []


def test_another_fetch_without_an_ack_asks_first_and_the_one_after_it_does_not_wait(bench, core):
    bench.fetch(core, 1)
    bench.fetch(core, 1)
    assert kinds(bench) == [Lease, Lease]


def test_outcomes_that_no_call_waits_for_ride_on_the_next_request_as_before(bench, core):
    (task,) = bench.fetch(core, 1)
    bench.run(core.ack_later(task, None))
    bench.fetch(core, 1)
    (lease,) = [message for message in bench.sent if type(message) is Lease and message.settles]
    assert lease.wait_ms == 0


def test_who_settles_with_the_next_request_asks_at_once(bench, core):
    tasks = bench.fetch(core, 1)
    bench.run(core.ack_and_fetch(tasks, 1, bench.connection.clock()))
    assert SettleTasks not in kinds(bench)
    assert core.leasing.put_off_until == FOREVER


def test_a_worker_that_closes_asks_for_nothing_any_more(bench, core):
    bench.fetch(core, 1)
    core.leasing.recall()
    bench.pass_time(0.01, step=0.001)
    bench.run(core.close())
    assert Lease not in kinds(bench)


def test_an_empty_fetch_puts_nothing_off(bench):
    core = bench.worker()
    ack(bench, core, bench.fetch(core, 100))
    assert bench.fetch(core, 1) == []
    assert core.leasing.put_off_until == FOREVER


def test_an_empty_fetch_between_does_not_count(bench):
    core = bench.worker()
    tasks = bench.fetch(core, 100)
    bench.broker.advance(GATHER_S)
    assert bench.fetch(core, 1) == []
    ack(bench, core, tasks)
    assert END not in kinds(bench)
    with bench.broker.connect() as client:
        client.producer("t").send_many([b"a", b"b"])
    assert bench.fetch(core, 1)
    assert core.leasing.put_off_until == FOREVER


def test_the_pump_does_not_rest_while_a_request_waits_for_an_ack(penstock_broker, monkeypatch):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(10)])
        with client.worker("t", group="g") as worker, monkeypatch.context() as patched:
            now = worker._driver.connection.clock()
            patched.setattr(worker._driver.connection, "clock", lambda: now)
            worker.ack(worker.fetch(1))
            worker.fetch(1)
            driver = worker._driver
            assert worker._core.leasing.put_off_until < FOREVER
            assert not driver.connection.asking
            assert driver.pump._look(driver, -1) == (driver.connection.turns, False, PUMP_PERIOD_S)
