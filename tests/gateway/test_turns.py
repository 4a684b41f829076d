"""Portions of long work: one in each turn of the loop, in the order of asking."""

from __future__ import annotations

import asyncio

from penstock.gateway.turns import Turns


async def count_turns(turns: list[int]) -> None:
    """Count turns of the loop, for as long as this runs."""
    loop = asyncio.get_running_loop()

    def tick() -> None:
        turns[0] += 1
        loop.call_soon(tick)

    loop.call_soon(tick)


def test_each_portion_has_a_turn_of_its_own_and_all_go_round():
    async def run() -> list[tuple[int, str]]:
        turns, ticks, done = Turns(), [0], list[tuple[int, str]]()
        await count_turns(ticks)

        async def work(name: str) -> None:
            for _ in range(3):
                await turns.turn()
                done.append((ticks[0], name))

        await asyncio.gather(*(work(name) for name in "abc"))
        return done

    done = asyncio.run(run())
    assert "".join(name for _, name in done) == "aabcabcbc"  # the first one asks again before the others ask
    assert len({turn for turn, _ in done}) == len(done)


def test_a_turn_is_free_once_the_one_before_is_over():
    async def run() -> list[bool]:
        turns = Turns()
        found = [turns.take(), turns.take()]
        await asyncio.sleep(0)
        return [*found, turns.take()]

    assert asyncio.run(run()) == [True, False, True]


def test_a_callback_has_the_turn_in_which_it_comes():
    async def run() -> list[bool]:
        turns, found = Turns(), list[bool]()
        turns.take()
        turns.wait(lambda: found.append(turns.take()))
        while not found:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [*found, turns.take()]

    assert asyncio.run(run()) == [False, True]


def test_who_gives_up_leaves_the_turn_to_the_next():
    async def run() -> None:
        turns = Turns()
        turns.take()
        leaver, stayer = asyncio.ensure_future(turns.turn()), asyncio.ensure_future(turns.turn())
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.wait_for(stayer, 30)

    asyncio.run(run())
