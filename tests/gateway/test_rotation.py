"""Turns that are shared among sources."""

from __future__ import annotations

import asyncio

from penstock.gateway.rotation import Rotation


def order(*callers: tuple[str, str, int], leaving: tuple[str, ...] = ()) -> str:
    """The names of callers (name, source, wrong) in the order of their turns; `leaving` leave while they wait."""
    rotation, found = Rotation(), list[str]()

    async def call(name: str, source: str, wrong: int) -> None:
        await rotation.enter(source, wrong)
        found.append(name)
        await asyncio.sleep(0)
        rotation.leave()

    async def run() -> None:
        await rotation.enter("before")
        tasks = {caller[0]: asyncio.ensure_future(call(*caller)) for caller in callers}
        await asyncio.sleep(0)
        for name in leaving:
            tasks[name].cancel()
        rotation.leave()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert (rotation._busy, rotation._lines) == (False, {})

    asyncio.run(run())
    return "".join(found)


def test_sources_take_turns_however_many_callers_one_has():
    many = [(name, "attacker", 0) for name in "abcdef"]
    assert order(*many, ("x", "other", 0), ("y", "third", 0), ("z", "other", 0)) == "axybzcdef"


def test_callers_of_one_source_that_were_wrong_come_after_those_that_were_not():
    assert order(("a", "s", 3), ("b", "s", 1), ("c", "s", 0), ("d", "s", 1)) == "cbda"


def test_callers_that_leave_are_not_waited_for():
    callers = [(name, "s", 0) for name in "abc"] + [("x", "t", 0)]
    assert order(*callers, leaving=("a", "c", "x")) == "b"
    assert order(*callers, leaving=tuple("abcx")) == ""


def test_a_caller_that_leaves_as_its_turn_comes_passes_it_on():
    async def run() -> None:
        rotation = Rotation()
        await rotation.enter("s")
        first, second = (asyncio.ensure_future(rotation.enter("s")) for _ in range(2))
        await asyncio.sleep(0)
        rotation.leave()
        first.cancel()
        await asyncio.wait_for(second, 30)
        rotation.leave()
        assert first.cancelled()
        await asyncio.wait_for(rotation.enter("s"), 30)

    asyncio.run(run())
