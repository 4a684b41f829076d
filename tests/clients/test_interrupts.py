"""Ctrl-C may come with the return of any call: no message goes out by halves, and nothing asked is left unanswered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.consuming import together

PATIENCE_S = 60.0
LARGE = b"interrupted" * 20_000  # of several frames and buffers


class Interrupted:
    """A socket, or what waits for one; Ctrl-C comes in the main thread, before or after the nth call of one kind."""

    def __init__(self, real: Any, name: str, nth: int, *, after: bool) -> None:
        self._real, self._name, self._left, self._after = real, name, nth, after

    @property
    def came(self) -> bool:
        return self._left <= 0

    def __bool__(self) -> bool:
        return bool(self._real)

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real)

    def __getitem__(self, place: int) -> Any:
        return self._real[place]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name != self._name or threading.current_thread() is not threading.main_thread():
            return found

        def interrupted(*how: Any) -> Any:
            self._left -= 1
            if self._left != 0:
                return found(*how)
            if self._after:
                found(*how)
            raise KeyboardInterrupt

        return interrupted


def place_of(client: Any, scheme: str, call: str) -> tuple[Any, str]:
    """The object of a client's channel that has a call of the operating system, and the name of its attribute."""
    channel = client._connection.channel
    if scheme == "tcp":
        return channel._dealer, "raw"
    return channel._socket._connection, "_out" if call == "append" else "_socket"


def use_until(came: Callable[[], bool], *verbs: Callable[[], object]) -> None:
    for verb in cycle(verbs):
        if came():
            return
        verb()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(
    ("scheme", "call"),
    [("tcp", "send"), ("tcp", "recv"), ("unix", "append"), ("unix", "sendmsg"), ("unix", "recv_into")],
)
def test_an_interrupt_costs_a_connection_and_no_record(serving, topic, scheme, call, nth, after) -> None:
    url = next(address for address in serving.ready["listen"] if address.startswith(scheme))
    with connect(url, timeout=PATIENCE_S) as client:
        client.create_topic(topic)
        producer = client.producer(topic)
        producer.send(LARGE)
        place, name = place_of(client, scheme, call)
        interrupted = Interrupted(getattr(place, name), call, nth, after=after)
        setattr(place, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            use_until(lambda: interrupted.came, lambda: client.read(topic, 0, 0), lambda: producer.send(LARGE))
        assert [found.name for found in client.topics() if found.name == topic] == [topic]
        last = producer.send(b"after")
        found = [record.value for record in client.read(topic, 0, 0)]
        assert found == [*([LARGE] * last), b"after"]
        assert client._connection.channel.connections == 2
        setattr(place, name, interrupted._real)


@pytest.mark.parametrize("several", [False, True])
def test_an_interrupt_as_a_consumer_joins_again_does_not_leave_it_without_a_session(several, monkeypatch) -> None:
    """It came before the question was posted, so no answer will come to it."""
    with connect(f"mem://joins-{several}") as client:
        client.create_topic("t")
        client.producer("t").send(b"one")
        with client.consumer(["t"] if several else "t", group="g") as consumer:
            assert [record.value for record in consumer.fetch()] == [b"one"]
            consumer.commit()
            core = consumer._core.cores["t"] if several else consumer._core
            monkeypatch.setattr(client._connection, "post", interrupting)
            core.life.rejoin()
            with pytest.raises(KeyboardInterrupt):
                consumer.fetch(wait=PATIENCE_S)
            monkeypatch.undo()
            client.producer("t").send(b"two")
            assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"two"]


def interrupting(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_as_topics_are_looked_for_does_not_end_the_looking(monkeypatch) -> None:
    monkeypatch.setattr(together, "TOPICS_PERIOD_S", 0.01)
    with connect("mem://looks") as client, client.consumer(["s-*"], group="g") as consumer:
        monkeypatch.setattr(client._connection, "post", interrupting)
        with pytest.raises(KeyboardInterrupt):
            consumer.fetch(wait=PATIENCE_S)
        monkeypatch.delattr(client._connection, "post")
        client.create_topic("s-1")
        client.producer("s-1").send(b"one")
        assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"one"]
