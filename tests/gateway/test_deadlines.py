"""What is left of a wait, as doors tell it to the broker: never below 0, however long it takes to get there."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.gateway import reading
from penstock.gateway.resp import streams
from penstock.transport.codec import decode_request, encode
from penstock.transport.messages import AskEnds, Request


class Session:
    """Of a client of Redis, with no topic that has anything new."""

    executing = 0
    door = SimpleNamespace(link=None)

    def blocks(self, waits: bool) -> None:
        pass


@pytest.mark.parametrize("pace_s", [0.0001, 0.0003, 0.0007, 0.002])
def test_xread_never_waits_for_less_than_nothing(monkeypatch: pytest.MonkeyPatch, pace_s: float):
    """Each look at the clock takes a while, as on a busy machine."""
    ticks, waited = count(), list[float]()

    async def find(*_: object) -> None:
        return None

    async def wait(link: object, places: object, seconds: float) -> None:
        waited.append(seconds)

    slow = SimpleNamespace(time=lambda: next(ticks) * pace_s)
    monkeypatch.setattr(streams, "asyncio", SimpleNamespace(get_running_loop=lambda: slow))
    monkeypatch.setattr(streams, "find", find)
    monkeypatch.setattr(streams, "_wait", wait)
    session: Any = Session()
    asyncio.run(streams.xread(session, [b"BLOCK", b"1", b"STREAMS", b"k", b"$"]))
    assert all(seconds > 0.0 for seconds in waited), waited


@pytest.mark.parametrize(("seconds", "wait_ms"), [(-0.001, 0), (-5.0, 0), (0.0, 0), (0.0015, 2), (5.0, 5000)])
def test_the_broker_is_asked_to_wait_for_nothing_less_than_0(seconds: float, wait_ms: int):
    asked: list[Request] = []

    class Connection:
        def deadline(self) -> float:
            return 0.0

        def ask(self, make: Any, kind: type, **_: object) -> None:
            asked.append(make(1))

    async def run(steps: object) -> None:
        pass

    link: Any = SimpleNamespace(driver=SimpleNamespace(connection=Connection(), run=run))
    asyncio.run(reading.news(link, [], seconds))
    (message,) = asked
    assert isinstance(message, AskEnds)
    assert message.wait_ms == wait_ms
    assert decode_request([encode(message)])[0] == message
