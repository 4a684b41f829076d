"""Ctrl-C at any moment of a close: a second one finishes what the first began, so nothing is left open."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.connection import driver
from support.interrupts import interrupts, left_open

PATIENCE_S = 60.0
STRIDE = 7
"""Of moments that are tried where each costs a session."""

pytestmark = pytest.mark.usefixtures("quick_collections", "no_wait_without_end")
INSIDE = ("clients", "transport", "storage", "broker")


def test_a_second_close_of_a_client_finishes_the_first(url: str, topic: str) -> None:
    with connect(url) as client:
        client.create_topic(topic)
    before = left_open()
    for interrupt in interrupts(INSIDE, above=20):
        client = connect(url)
        client._driver.need_pump()
        with interrupt:
            client.close()
        client.close()
        assert left_open() == before, f"interrupted at moment {interrupt.nth}"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_pump_whose_start_is_interrupted_is_made_again(
    unix: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run already when Ctrl-C takes it from the call that was starting it."""
    started: list[threading.Thread] = []
    start = threading._start_new_thread  # pyright: ignore[reportAttributeAccessIssue]

    def interrupted(bootstrap: Any, arguments: tuple[object, ...]) -> None:
        if after:
            started.append(bootstrap.__self__)
            start(bootstrap, arguments)
        raise KeyboardInterrupt

    before = left_open()
    with connect(unix) as client, monkeypatch.context() as patch:
        patch.setattr(threading, "_start_new_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client._driver.need_pump()
        patch.undo()
        client._driver.need_pump()
        for lost in started:
            assert lost._started.wait(PATIENCE_S)  # pyright: ignore[reportAttributeAccessIssue]
            lost.join(PATIENCE_S)
            assert not lost.is_alive(), "two pumps run"
        assert client._driver.pump._thread.is_alive()
    assert left_open() == before


def test_a_client_that_is_dropped_ends_its_idle_pump(unix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = threading.Event()

    class Watched(SimpleQueue[None]):
        def get(self, block: bool = True, timeout: float | None = None) -> None:
            if timeout is None:
                idle.set()
            return super().get(block, timeout)

    monkeypatch.setattr(driver, "SimpleQueue", Watched)
    before = left_open()
    client = connect(unix)
    client._driver.need_pump()
    assert idle.wait(PATIENCE_S)
    pump = client._driver.pump._thread
    del client
    pump.join(PATIENCE_S)
    assert left_open() == before


@pytest.mark.parametrize("delivery", ["control", "auto"])
def test_a_second_close_of_a_consumer_finishes_the_first(url: str, topic: str, delivery: Any) -> None:
    with connect(url) as client:
        client.create_topic(topic)
        client.producer(topic).send_many([b"x"] * 1000)
        parts = len(client._driver.connection.parts)
        for interrupt in interrupts(INSIDE, stride=STRIDE, above=5 * STRIDE):
            consumer = client.consumer(topic, group="g", delivery=delivery, auto_commit=60)
            assert consumer.fetch(1, wait=PATIENCE_S)
            with interrupt:
                consumer.close()
            consumer.close()
            assert consumer.closed
            assert client.group(topic, "g").members == [], f"interrupted at moment {interrupt.nth}"
            assert len(client._driver.connection.parts) == parts


def test_a_second_close_of_a_worker_finishes_the_first(url: str, topic: str) -> None:
    with connect(url) as client:
        client.create_topic(topic)
        client.producer(topic).send_many([b"x"] * 3)
        parts = len(client._driver.connection.parts)
        for interrupt in interrupts(INSIDE, stride=STRIDE, above=5 * STRIDE):
            worker = client.worker(topic, group="g")
            assert len(worker.fetch(3, wait=PATIENCE_S)) == 3
            with interrupt:
                worker.close()
            worker.close()
            assert worker.closed
            assert client.queue(topic, "g").in_flight == 0, f"interrupted at moment {interrupt.nth}"
            assert len(client._driver.connection.parts) == parts


@pytest.mark.parametrize("joining", [False, True], ids=["lost", "joining"])
def test_a_consumer_that_is_closed_without_a_session_is_no_member(url: str, topic: str, joining: bool) -> None:
    """The broker still has the session that was lost, or has one soon: the answer to a join is on its way."""
    with connect(url) as client:
        client.create_topic(topic)
        consumer = client.consumer(topic, group="g", auto_commit=None)
        consumer.fetch(1, wait=0)
        life = consumer._core.life
        with client._driver.lock:
            life.rejoin()
            if joining:
                life.turn(client._driver.connection.clock())
            assert consumer._core.session is None
        consumer.close()
        assert client.group(topic, "g").members == []
        assert not client._driver.connection.asking
