"""A timeout that a call is given holds whatever the broker does, and however long the client waits otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.connection.steps import Steps
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.errors import TimedOut
from penstock.clients.queues import verbs
from penstock.clients.verbs import Verbs
from penstock.transport.messages import Stage
from support.worker_bench import Bench

PATIENCE_S = 60.0
EVER_S = 3600.0
SHORT_S = 0.05


def calls(client: Any) -> dict[str, Callable[[], object]]:
    """What takes a timeout, each with something that the broker has yet to answer."""
    topic = client.create_topic("t").id
    producer, full = client.producer("t"), client.producer("t", window_bytes="1MB")
    producer.send(b"a task")
    worker, staging, transaction = client.worker("t", group="g"), client.staging(), client.transaction()
    (task,) = worker.fetch()
    staged, dropped, published = (each.producer("t") for each in (staging, client.staging(), transaction))
    go_away(client)
    future, settled = producer.send_nowait(b"x"), worker.ack_nowait(task)
    for each in (staged, dropped, published):
        each.send_nowait(b"x")
    while full._core.jammed is None:
        full.send_nowait(bytes(100_000))
    stages = [Stage(bytes.fromhex(topic), 0, 1, 1)]
    return {
        "send": lambda: producer.send(b"y", timeout=SHORT_S),
        "send into a full window": lambda: full.send(b"y", timeout=SHORT_S),
        "room": lambda: full.room(SHORT_S),
        "flush": lambda: producer.flush(SHORT_S),
        "future.result": lambda: future.result(SHORT_S),
        "future.exception": lambda: future.exception(SHORT_S),
        "wait_task": lambda: client.wait_task("t-0-0", "g", timeout=SHORT_S),
        "worker.flush": lambda: worker.flush(SHORT_S),
        "settled.result": lambda: settled.result(SHORT_S),
        "settled.exception": lambda: settled.exception(SHORT_S),
        "staging.stages": lambda: staging.stages(SHORT_S),
        "staging.drop": lambda: staging.drop(SHORT_S),
        "transaction.commit": lambda: transaction.commit(SHORT_S),
        "commit_stages": lambda: client.commit_stages("name", 1, stages, SHORT_S),
        "drop_stages": lambda: client.drop_stages(stages, SHORT_S),
    }


def go_away(client: Any) -> None:
    """The broker answers nothing more, over a connection that stands."""
    channel: LocalChannel = client._connection.channel
    with client._driver.lock:
        channel.send = lambda *_: True  # type: ignore[method-assign]
        channel.receive = lambda: None  # type: ignore[method-assign]
        channel.due = lambda: float("inf")  # type: ignore[method-assign]


@pytest.fixture
def client(penstock_broker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(verbs, "LATE_S", SHORT_S)
    client = connect(penstock_broker.url, timeout=EVER_S)
    yield client
    client._connection.timeout = 0.0
    client._driver.close()


def test_a_greeting_and_the_answer_behind_it_have_one_timeout(penstock_broker: Any) -> None:
    """As `connect` waits for them."""
    bench = Bench(penstock_broker)

    def late(deadline: float) -> Steps[None]:
        penstock_broker.clock.advance(bench.connection.timeout - 1)
        bench.cut = True
        return
        yield

    bench.connection.ready = late  # type: ignore[method-assign,assignment]
    pinging = Verbs(bench.connection).ping()
    next(pinging)
    penstock_broker.clock.advance(1)
    with pytest.raises(TimedOut):
        next(pinging)
    bench.connection.close()


NAMES = (
    *("send", "send into a full window", "room", "flush", "future.result", "future.exception", "wait_task"),
    *("worker.flush", "settled.result", "settled.exception", "staging.stages", "staging.drop", "transaction.commit"),
    *("commit_stages", "drop_stages"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_call_ends_after_its_own_timeout(client: Any, name: str) -> None:
    known = calls(client)
    assert known.keys() == set(NAMES)
    ended: list[object] = []

    def call() -> None:
        try:
            ended.append(known[name]())
        except TimedOut as error:
            ended.append(error)

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(PATIENCE_S)
    assert not calling.is_alive(), "it waits on"
    assert isinstance(ended[0], TimedOut)
