"""A worker with more leases and outcomes than one request takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from penstock.clients.working import core as working_core
from penstock.clients.working.leases import Held, SettleFuture
from penstock.clients.working.settling import RANGES_MAX
from penstock.transport.message import LIST_MAX
from penstock.transport.queue_messages import BY_GROUP, ExtendLeases, SettleTasks, Verb
from support.worker_bench import LEASE_S, Bench


@pytest.fixture
def bench(penstock_broker: Any) -> Iterator[Bench]:
    with penstock_broker.connect() as client:
        client.create_topic("t")
        client.producer("t").send_many([b"%d" % number for number in range(10)])
    bench = Bench(penstock_broker)
    yield bench
    bench.connection.close()


def test_leases_that_one_heartbeat_has_no_room_for_are_extended_by_the_next(bench, monkeypatch):
    monkeypatch.setattr(working_core, "TOGETHER", 3)
    core, other = bench.worker(max_processing=3600.0), bench.worker()
    held = [task for _ in range(7) for task in bench.fetch(core, 1)]
    bench.asked(ExtendLeases)
    bench.pass_time(5 * LEASE_S)
    assert max(len(beat.leases) for beat in bench.asked(ExtendLeases)) == 3
    assert [task.offset for task in bench.fetch(other, 1)] == [len(held)]
    assert not any(task.lost for task in held)


def test_no_heartbeat_names_more_leases_than_a_broker_takes(bench):
    core = bench.worker(max_processing=3600.0)
    (task,) = bench.fetch(core, 1)
    for number in range(LIST_MAX):
        lease = Held(core, 0, task._lease.token + 1 + number, task._lease.lease_ms, {number})
        lease.handed = True
        lease.keep(bench.connection.clock(), lease.lease_ms)
        core.held[lease.place] = lease
    bench.asked(ExtendLeases)
    bench.pass_time(LEASE_S / 3 + 1)
    assert [len(beat.leases) for beat in bench.asked(ExtendLeases)] == [LIST_MAX]


def test_outcomes_of_one_lease_that_are_told_one_after_the_other_fit_into_a_request(bench):
    core = bench.worker()
    (task,) = bench.fetch(core, 1)
    lease, future = Held(core, 0, task._lease.token, 30_000, set(range(9 * RANGES_MAX))), SettleFuture(core)
    bench.asked(SettleTasks)
    for some in (range(0, 2000, 2), range(2001, 2001 + 4 * RANGES_MAX, 2)):
        core.settling.gather(lease, Verb.ACK, BY_GROUP, "", some, [], future)
    core.settling.send()
    said = [settle.ranges for message in bench.asked(SettleTasks) for settle in message.settles]
    assert sum(map(len, said)) == 1000 + 2 * RANGES_MAX
    assert max(map(len, said)) <= LIST_MAX
    assert future._error is None
