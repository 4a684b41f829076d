"""Ids of many entries at once: as they are read one by one."""

from __future__ import annotations

import random

import pytest
from penstock.gateway.resp.entries import EntryId, entry_id
from penstock.gateway.resp.id_runs import FEW, IdRun, id_runs
from penstock.gateway.resp.refusals import CommandRefused

TIME_MS = 1_700_000_000_000
HIGHEST = (1 << 64) - 1


def texts(*runs: tuple[int, int, int]) -> list[bytes]:
    return [b"%d-%d" % (time_ms, first + more) for time_ms, first, many in runs for more in range(many)]


def ids(runs: list[IdRun]) -> list[EntryId]:
    return [EntryId(run.time_ms, run.first + more) for run in runs for more in range(run.many)]


@pytest.mark.parametrize("many", [1, FEW, FEW + 1, 5000])
def test_ids_that_go_on_from_each_other_are_one_run(many: int):
    assert id_runs(texts((TIME_MS, 95, many))) == [IdRun(TIME_MS, 95, many)]


@pytest.mark.parametrize("many", [2, FEW])
def test_a_gap_another_time_and_an_id_again_begin_a_run(many: int):
    runs = [
        IdRun(TIME_MS, 9, many), IdRun(TIME_MS + 1, 9 + many, many), IdRun(TIME_MS + 1, 10 + 2 * many, 1),
        IdRun(TIME_MS + 1, 10 + 2 * many, 1), IdRun(0, 0, 1), IdRun(TIME_MS, 8, 1),
    ]  # fmt: skip
    assert id_runs(texts(*runs)) == runs


def test_no_ids_are_no_runs():
    assert id_runs([]) == []


ODD = [
    b"5", b"0-0", b"7-00012", b"%d-%d" % (HIGHEST, HIGHEST), b"%d-1" % 10**17, b"%d-1" % 10**18, b"1-%d" % (10**19),
]  # fmt: skip
BAD = [
    b"", b"-", b"1-", b"-1", b"1-2-3", b"A-1", b"1-1A",
    b"1,2", b"1-2,3-4", b"x-1", b"1-x", b"1:2", b"1/2", b" 1-2", b"1-2\n", b"+1-2",
    b"1--2", b"\xff-1", b"1-2,", b",1-2", b"%d-1" % (HIGHEST + 1), b"1-%d" % (HIGHEST + 1), b"0" * 21 + b"-1",
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("at", [0, 1, 2 * FEW])
def test_an_unusual_id_among_many_is_read_as_one_alone(odd: bytes, at: int):
    given = texts((TIME_MS, 100, 2 * FEW))
    given.insert(at, odd)
    assert ids(id_runs(given)) == [entry_id(text, 0) for text in given]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [0, 1, 2 * FEW])
def test_what_is_no_id_is_refused_among_many_as_alone(bad: bytes, at: int):
    given = texts((TIME_MS, 100, 2 * FEW))
    given.insert(at, bad)
    for some in (given, [bad]):
        with pytest.raises(CommandRefused):
            id_runs(some)


def test_a_missing_dash_in_one_and_one_too_many_in_the_next_are_no_ids():
    given = texts((TIME_MS, 100, 2 * FEW))
    for pair in ([b"1", b"2-3-4"], [b"1-2-3", b"4"], [b"1-2,3-4", b""], [b"1", b"2,3-4"]):
        with pytest.raises(CommandRefused):
            id_runs([*given, *pair])
        with pytest.raises(CommandRefused):
            id_runs([*pair, *given])


@pytest.mark.parametrize("seed", range(50))
def test_any_ids_are_read_as_one_by_one(seed: int):
    dice = random.Random(seed)
    runs = [(dice.choice([0, 5, TIME_MS]), dice.randrange(10**7), dice.choice([1, 2, 40])) for _ in range(9)]
    given = texts(*runs)
    if dice.random() < 0.3:
        dice.shuffle(given)
    assert ids(id_runs(given)) == [entry_id(text, 0) for text in given]
