"""Values between a callback and a waiting coroutine."""

from __future__ import annotations

import asyncio

import pytest

from perf.systems import servers
from perf.systems.arrived import Arrived


def test_values_are_given_once_and_in_order():
    async def scenario() -> None:
        arrived = Arrived(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(arrived.add, b"one")
        await arrived.some()
        arrived.add(b"two")
        assert arrived.taken() == [b"one", b"two"]
        assert arrived.taken() == []

    asyncio.run(scenario())


def test_waiting_goes_on_until_there_are_enough():
    async def scenario() -> None:
        arrived = Arrived(asyncio.get_running_loop())
        waiting = asyncio.ensure_future(arrived.at_least(3))
        for value in (b"one", b"two", b"three"):
            await asyncio.sleep(0)
            assert not waiting.done()
            arrived.add(value)
        assert await waiting == [b"one", b"two", b"three"]

    asyncio.run(scenario())


@pytest.mark.parametrize("early", [True, False])
def test_a_failure_reaches_the_present_or_next_waiter(early):
    async def scenario() -> None:
        arrived = Arrived(asyncio.get_running_loop())
        when = (lambda call, *args: call(*args)) if early else asyncio.get_running_loop().call_soon
        when(arrived.fail, ConnectionError("gone"))
        with pytest.raises(ConnectionError):
            await arrived.some()

    asyncio.run(scenario())


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(servers, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        with pytest.raises(TimeoutError, match="nothing came"):
            await Arrived(asyncio.get_running_loop()).some()

    asyncio.run(scenario())
