"""The broker's loop: what it holds of clients of a node that rests, while it hears its peers; and what leaves first."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
from penstock.broker.broker import Broker
from penstock.broker.broker_process import GRACE_S, Assembly
from penstock.broker.config import ServeConfig
from penstock.broker.intake import TURN_BYTES
from penstock.broker.latencies import Latencies
from penstock.broker.poller import Poller
from penstock.broker.request_names import RequestNames
from penstock.storage.data_directory import FORMAT, Identity
from penstock.transport import codec
from penstock.transport import messages as m

BOUND = 32 << 20
BATCH = bytes(1 << 20)
PRODUCE = codec.encode(m.Produce(1, bytes(16), 0))


class Descriptor:
    """Readable from the start."""

    def __init__(self) -> None:
        self.fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def close(self) -> None:
        os.close(self.fd)


class Clients(Descriptor):
    """A socket on which clients send batches without an end, as fast as they are taken."""

    has_news = False
    refreshed = 0

    def __init__(self) -> None:
        super().__init__()
        self.sent = deque((number % 7, [PRODUCE, BATCH]) for number in range(200))

    @property
    def readable(self) -> bool:
        return bool(self.sent)

    def patience_s(self) -> float:
        return inf

    def refresh(self) -> None:
        self.refreshed += 1

    def guards(self) -> dict[int, Any]:
        return {}

    def receive(self) -> Any:
        return self.sent.popleft() if self.sent else None


class Holding:
    """A node that holds all that it was sent, and rests while that is more than BOUND."""

    def __init__(self) -> None:
        self.guard = SimpleNamespace(refused=0)
        self.portions = SimpleNamespace(worked={})
        self.held = 0

    @property
    def rests(self) -> bool:
        return self.held > BOUND

    def receive(self, peer: Any, message: Any, payload: Any, *_: Any) -> None:
        self.held += len(payload)

    def flush(self, now: Any, *, hurry: bool) -> list[Any]:
        return []

    def advance(self, now: Any) -> None:
        pass

    def tick(self, now: Any) -> float:
        return 0.0


class Loop:
    """A broker of which only the loop is real."""

    def __init__(self) -> None:
        self.node, self.clients, self.poller = Holding(), Clients(), Poller()
        self.peers, self.silent = Descriptor(), [Descriptor() for _ in range(4)]
        for each in self.silent:
            os.eventfd_read(each.fd)
        port, warmer, supervisor, signals = (each.fd for each in self.silent)
        any_ = cast("Any", SimpleNamespace)
        self.broker = Broker(
            any_(), node=cast("Any", self.node), servers=[cast("Any", self.clients)], poller=self.poller, jobs=any_(),
            port=any_(fd=port, names=RequestNames(), counting=[], holds=False, latencies=Latencies()),
            watermarks=any_(stats=dict, after_answers=lambda now_s: inf, waiting=False),
            warmer=any_(fd=warmer), supervisor=any_(fd=supervisor), signals=signals, lock=-1, room=any_(refused=0),
            lenders=any_(logs={}, refusals=any_(count=0)), watched=(self.peers.fd,),
        )  # fmt: skip
        self.broker._intake._clock = lambda: 1.0  # however slow the machine is, no connection takes more than its share

    def turn(self) -> list[Any]:
        """One turn. Returns what was readable."""
        ready = self.poller.poll(0)
        self.broker.turn(ready)
        return ready

    def close(self) -> None:
        self.poller.close()
        for each in (self.clients, self.peers, *self.silent):
            each.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with closing(Loop()) as made:
        yield made


def test_a_node_that_rests_holds_no_more_than_its_bound_and_what_one_turn_takes(loop: Loop):
    turns = 0
    while not loop.node.rests:
        loop.turn()
        turns += 1
    assert turns > 1
    held = loop.node.held
    assert BOUND < held <= BOUND + TURN_BYTES + len(BATCH)
    for _ in range(10):
        assert loop.turn() == [loop.peers.fd], "clients are not asked, and peers are"
    assert loop.node.held == held


def test_clients_are_heard_again_where_they_were_left(loop: Loop):
    while not loop.node.rests:
        loop.turn()
    left = list(loop.clients.sent)
    loop.turn()
    refreshed = loop.clients.refreshed
    loop.node.held = 0
    loop.turn()
    assert loop.clients.refreshed == refreshed + 1, "what came meanwhile may have no other sign"
    loop.turn()
    taken = loop.node.held // len(BATCH)
    assert taken
    assert list(loop.clients.sent) == left[taken:]


def test_a_broker_gives_its_clients_a_grace_after_each_start() -> None:
    assembly = Assembly.__new__(Assembly)
    assembly._config, assembly.advertise = ServeConfig(data="/data"), ["unix:///data/broker.sock"]
    assert assembly._node_config(Identity(FORMAT, "n", "c"), cast("Any", SimpleNamespace(name="b"))).grace_s == GRACE_S


class Syncing(Holding):
    """A node that appends to one log in each turn, and has an answer to it that may leave ahead."""

    def __init__(self, events: list[str], log: object) -> None:
        super().__init__()
        self._events, self._logs = events, [log]

    def flush(self, now: Any, *, hurry: bool) -> list[Any]:
        self._events.append("flush, to be synced at once" if hurry else "flush")
        logs, self._logs = self._logs, []
        return logs

    def answer_ahead(self) -> bool:
        self._events.append("answer ahead")
        return True

    def advance(self, now: Any) -> None:
        self._events.append("advance")


@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "busy"])
@pytest.mark.parametrize("is_synced", [True, False], ids=["by itself", "by the keeper"])
def test_answers_of_a_sync_of_its_own_are_sent_before_what_they_say_is_applied(loop, is_idle: bool, is_synced: bool):
    events: list[str] = []

    def flushed(logs: Any, *, idle: bool, **_: Any) -> bool:
        assert idle is is_idle
        return is_synced

    loop.broker._node = Syncing(events, object())
    loop.broker._watermarks.flushed = flushed
    loop.broker._port.send_answers = lambda: events.append("send")
    loop.broker._intake.messages = 0 if is_idle else 1000
    loop.broker._settle(cast("Any", SimpleNamespace(monotonic_s=1.0)))
    ahead = ["answer ahead", "send"] if is_synced else []
    assert events == ["flush, to be synced at once" if is_idle else "flush", *ahead, "advance"]
    events.clear()
    loop.broker._settle(cast("Any", SimpleNamespace(monotonic_s=1.0)))
    assert events[1:] == ["advance"], "nothing was appended"
