"""The thread that keeps a client going: what an application does in it, and to it, ends no other work."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.channels.several import SeveralChannel
from penstock.clients.connection.connection import Connection
from penstock.clients.connection.driver import Driver
from penstock.clients.opening import open_channel

PATIENCE_S = 60.0


@pytest.fixture
def producer(penstock_client: Any) -> Any:
    penstock_client.create_topic("t")
    return penstock_client.producer("t")


def called(send: Callable[[Callable[[], object]], object]) -> bool:
    """Whether a callback runs while the application is away."""
    done = threading.Event()
    send(done.set)
    return done.wait(PATIENCE_S)


def test_a_callback_that_ends_its_thread_ends_no_other_work(producer: Any) -> None:
    def leave(_: object) -> None:
        sys.exit(3)

    pump = producer._driver.pump
    heard: list[object] = []
    with producer._driver.lock:  # one batch, whose outcomes the pump tells
        for number in range(3):
            producer.post(b"%d" % number, on_done=leave)
            producer.post(b"%d" % number, on_done=heard.append)
        producer.send_nowait(b"x").add_done_callback(leave)
    assert called(lambda done: producer.post(b"y", on_done=lambda _: done()))
    assert len(heard) == 3
    pump = pump or producer._driver.pump
    assert pump is producer._driver.pump
    assert pump._thread.is_alive()


def test_a_client_that_can_start_no_thread_keeps_what_it_takes(
    producer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error would come after the record was taken, and the application would send it again."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    assert producer._driver.pump is None
    with monkeypatch.context() as patch:
        patch.setattr(threading, "_start_new_thread", refuse)
        futures = [producer.send_nowait(b"%d" % number) for number in range(3)]
        assert [future.result() for future in futures] == [0, 1, 2]
    assert [record.message for record in caplog.records if "can't start" in record.message] != []
    assert len(caplog.records) == 1
    assert called(lambda done: producer.post(b"x", on_done=lambda _: done()))


def test_a_pump_that_an_error_ended_is_made_anew(producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, told = producer._driver, []
    turn, first = driver.connection.turn, threading.Event()

    def failing() -> bool:
        if threading.current_thread().name == "penstock-pump" and not first.is_set():
            first.set()
            raise RuntimeError("a fault of ours")
        return turn()

    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    monkeypatch.setattr(driver.connection, "turn", failing)
    driver.need_pump()
    ended = driver.pump
    assert first.wait(PATIENCE_S)
    ended._thread.join(PATIENCE_S)
    assert told == [RuntimeError]
    assert called(lambda done: producer.post(b"x", on_done=lambda _: done()))
    assert driver.pump is not ended


def test_a_close_waits_no_longer_than_other_verbs_for_a_callback(penstock_broker: Any) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        inside.set()
        go_on.wait(PATIENCE_S)

    client = connect(penstock_broker.url, timeout=0.1)
    client.create_topic("t")
    client.producer("t").post(b"x", on_done=hang)
    assert inside.wait(PATIENCE_S)
    pump = client._driver.pump._thread
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert pump.is_alive()
    go_on.set()
    pump.join(PATIENCE_S)
    assert not pump.is_alive()


def test_a_search_for_a_leader_that_nothing_waits_for_fills_no_memory(tmp_path: Any) -> None:
    nodes, clock = [f"unix://{tmp_path}/{name}" for name in "ab"], time.monotonic
    channel = SeveralChannel(nodes[0], lambda address: open_channel(address, clock=clock))
    driver = Driver(
        Connection(channel, url="", name="", timeout=1.0, clock=clock, addresses=nodes, turn_to=channel.turn_to)
    )
    missed, enough = [], threading.Event()
    miss = driver.connection._seeking.missed

    def counted(*how: Any, **said: Any) -> float:
        missed.append(how)
        if len(missed) > 6:
            enough.set()
        return miss(*how, **said)

    driver.connection._seeking.missed = counted  # type: ignore[method-assign]
    driver.need_pump()
    assert enough.wait(PATIENCE_S)
    with driver.lock:
        assert driver.connection.ended == []
    driver.close()
