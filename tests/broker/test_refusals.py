"""The log of refusals: a line a second, of all since the one before."""

from __future__ import annotations

from penstock.broker.refusals import SHOWN_MOST, Refusals


def test_a_line_a_second_counts_all_and_shows_the_last():
    told: list[str] = []
    refusals = Refusals("refused clients", told.append)
    refusals.show(0.0)
    assert told == []
    refusals.note("ann")
    refusals.show(0.0)
    for number in range(1000):
        refusals.note(f"eve {number}")
        refusals.show(0.999)
    assert (told, refusals.untold) == (["refused clients: 1, the last: ann"], True)
    refusals.show(1.0)
    assert not refusals.untold
    refusals.show(9.0)
    assert told[1:] == ["refused clients: 1000, the last: eve 999"]
    assert (refusals.count, refusals.untold) == (1001, False)


def test_a_hostile_name_makes_no_line_of_its_own_and_no_long_one():
    told: list[str] = []
    refusals = Refusals("refused", told.append)
    refusals.note("a\nforged: line\x1b[2J" + "x" * 10_000)
    refusals.show(0.0)
    assert told[0].startswith("refused: 1, the last: a?forged: line?[2Jxxx")
    assert len(told[0]) < SHOWN_MOST + 30
