"""Ticks come one at a time, however late."""

from __future__ import annotations

from penstock.broker.member.pace import TICK_S, Ticks


def test_a_tick_is_due_after_each_interval() -> None:
    ticks = Ticks(100.0)
    assert not ticks.due(100.0 + TICK_S / 2)
    assert ticks.wait(100.0 + TICK_S / 2) == 100.0 + TICK_S - (100.0 + TICK_S / 2)
    assert ticks.due(100.0 + TICK_S)
    assert not ticks.due(100.0 + TICK_S)
    assert ticks.due(100.0 + 2.5 * TICK_S), "a little late"
    assert ticks.due(100.0 + 3.1 * TICK_S), "which the next one is not"
    assert ticks.wait(100.0 + 100 * TICK_S) == 0.0


def test_a_long_pause_is_one_tick() -> None:
    ticks = Ticks(0.0)
    assert ticks.due(60.0)
    assert not ticks.due(60.0 + TICK_S / 2)
    assert ticks.due(60.0 + TICK_S)
