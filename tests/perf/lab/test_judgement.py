"""What has fallen is noticed, noise is not, and what cannot be judged says so."""

from __future__ import annotations

import pytest

from perf.lab import judgement
from perf.lab.measured import Compared, Figure, Measured

ROW, LIMIT = "produce", "bare"


def measured(row: str = ROW, *, ours: float, more_is_better: bool = True, **facts: object) -> Measured:
    """One figure beside a limit of 100."""
    limit = Compared(LIMIT, is_peer=False, samples=[100.0] * 3, ours=[ours] * 3)
    return Measured("smoke", "", facts, figures=[Figure(row, "records/s", more_is_better, compared=[limit])])


def judged(now: Measured, committed: Measured):
    (one,) = judgement.judge(judgement.ratios(now), judgement.ratios(committed))
    return one


@pytest.mark.parametrize(("more_is_better", "good", "halved"), [(True, 80.0, 39.0), (False, 125.0, 260.0)])
def test_a_ratio_that_halved_has_fallen(more_is_better, good, halved):
    before = measured(ours=good, more_is_better=more_is_better)
    one = judged(measured(ours=halved, more_is_better=more_is_better), before)
    assert one.fell
    assert all(said in str(one) for said in (ROW, LIMIT, f"{one.ratio:.3f}", "committed 0.800"))


@pytest.mark.parametrize("ours", [41.0, 79.0, 300.0])
def test_noise_passes(ours):
    assert not judged(measured(ours=ours), measured(ours=80.0)).fell


def test_a_row_that_nothing_is_committed_for_says_so_and_passes():
    one = judged(measured("new", ours=1.0), measured(ours=80.0))
    assert not one.fell
    assert "no ratio is committed" in str(one)


def test_a_limit_that_could_not_be_measured_has_fallen():
    now = measured(ours=80.0)
    now.figures[0].compared[0] = Compared(LIMIT, is_peer=False, failed="RuntimeError: gone")
    one = judged(now, measured(ours=80.0))
    assert one.fell
    assert "not measured" in str(one)


def test_of_several_tries_the_best_counts_row_by_row():
    a, b, c = ("a", LIMIT), ("b", LIMIT), ("c", LIMIT)
    assert judgement.best([{a: 0.5, b: 0.9, c: None}, {a: 0.7, c: None}, {b: None}]) == {a: 0.7, b: 0.9, c: None}


@pytest.mark.parametrize(("fact", "there"), [("cores", 16), ("cpu", "Intel"), ("filesystem", "tmpfs")])
def test_machines_of_another_kind_are_not_compared(fact, there):
    facts = {"cores": 2, "cpu": "AMD", "filesystem": "ext4"}
    here = measured(ours=80.0, **facts)
    assert judgement.unlike(here, measured(ours=80.0, **facts)) == ""
    assert f"{fact} {there}, here {facts[fact]}" in judgement.unlike(
        here, measured(ours=80.0, **{**facts, fact: there})
    )


def test_what_is_committed_has_the_best_of_all_tries_on_both_sides():
    tries = [measured(ours=80.0), measured(ours=90.0)]
    tries[0].figures[0].compared[0].samples = [20.0] * 3
    pooled = judgement.pooled(tries)
    assert judgement.ratios(pooled) == {(ROW, LIMIT): 0.9}
    assert len(pooled.figures[0].compared[0].samples) == 6
