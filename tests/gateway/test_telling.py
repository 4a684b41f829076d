"""Refusals are told of at once where a line is allowed, and those after it by a line a little later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from penstock.gateway import telling
from penstock.gateway.telling import ToldRefusals


def test_what_comes_within_a_period_is_told_of_in_one_line_after_it_again_and_again(monkeypatch: pytest.MonkeyPatch):
    async def note() -> list[str]:
        told: list[str] = []
        refusals = ToldRefusals("refused", told.append)
        refusals.note("one")
        assert told == ["refused: 1, the last: one"]
        timers: list[Any] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda after, call: timers.append((after, call)) or timers)
        for round_ in range(2):
            refusals.note("two")
            refusals.note("three")
            assert len(timers) == round_ + 1, "one timer at a time"
            after, call = timers[-1]
            assert after == telling.PERIOD_S
            refusals._due_s = 0.0  # it has passed
            call()
        return told

    assert asyncio.run(note()) == ["refused: 1, the last: one", *["refused: 2, the last: three"] * 2]
