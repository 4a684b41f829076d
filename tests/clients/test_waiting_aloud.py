"""A client that waits for its broker says so after a moment, once, and names what it waits for."""

from __future__ import annotations

import logging

import pytest
from penstock.clients import connect
from penstock.clients.connection import connection as module
from penstock.clients.connection.steps import FOREVER
from penstock.errors import TimedOut
from support.worker_bench import Bench


def test_waiting_for_a_broker_is_said_once(penstock_broker, caplog):
    bench = Bench(penstock_broker)
    connection = bench.connection
    connection._ready = False
    steps, deadline = connection.ready(connection.deadline()), connection.deadline()
    assert next(steps).until == connection.clock() + module.SILENT_S < deadline
    assert not caplog.records
    bench.broker.clock.advance(module.SILENT_S)
    assert next(steps).until == deadline
    bench.broker.clock.advance(1.0)
    next(steps)
    (said,) = caplog.records
    assert (said.name, said.levelno) == ("penstock.clients.connection", logging.WARNING)
    assert said.getMessage().startswith(f"waiting for the broker at {penstock_broker.url}, for up to 5 s: the broker")
    connection.close()


def test_who_connects_to_nothing_is_told_before_it_times_out(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "SILENT_S", 0.01)
    with pytest.raises(TimedOut):
        connect(f"unix://{tmp_path}/none", timeout=0.1)
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for the broker at unix://{tmp_path}/none, for up to 0.1 s: "
        f"no connection to unix://{tmp_path}/none; is a broker running there?"
    ]


def test_what_is_ready_is_not_waited_for(penstock_broker):
    bench = Bench(penstock_broker)
    assert bench.connection.due() == FOREVER
    with pytest.raises(StopIteration):
        next(bench.connection.ready(0.0))
    bench.connection.close()
