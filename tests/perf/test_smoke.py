"""What the smoke does with its tries. Its rows are run by `make smoke`, which `make test` begins with."""

from __future__ import annotations

import pytest

from perf import smoke
from perf.lab import judgement
from perf.lab.harness import Lab
from perf.lab.rows import Row

HELD, FALLEN = 80.0, 10.0
COMMITTED = {("steady", "bare"): 0.8, ("shaky", "bare"): 0.8}


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path, 1, 1.0, bench=smoke.NAME, outcome=tmp_path / "outcome")


@pytest.fixture
def told():
    return []


def made_up(monkeypatch, *tries: float) -> list[str]:
    """Rows that are measured like this in one try after the other; what was measured."""
    left, order = iter(tries), []

    def rows(lab):
        shaky = next(left)
        for name, value in (("steady", HELD), ("shaky", shaky)):
            measure = lambda name=name, value=value: order.append(name) or value  # noqa: E731
            yield Row(name, "records/s", measure, limits={"bare": lambda: 100.0})

    monkeypatch.setattr(smoke, "rows", rows)
    return order


def judged(lab, show):
    first = judgement.ratios(smoke._tried(lab, smoke.rows(lab), show))
    return {one.row: one.fell for one in smoke._judged(lab, first, COMMITTED, show)}


def test_what_held_at_once_is_not_tried_again(lab, told, monkeypatch):
    order = made_up(monkeypatch, HELD)
    assert judged(lab, told.append) == {"steady": False, "shaky": False}
    assert order == ["steady", "shaky"]


def test_only_what_fell_is_tried_again_and_its_best_try_counts(lab, told, monkeypatch):
    order = made_up(monkeypatch, FALLEN, HELD)
    assert judged(lab, told.append) == {"steady": False, "shaky": False}
    assert order == ["steady", "shaky", "shaky"]


def test_what_fell_in_every_try_has_fallen(lab, told, monkeypatch):
    order = made_up(monkeypatch, *[FALLEN] * smoke.TRIES)
    assert judged(lab, told.append) == {"steady": False, "shaky": True}
    assert order.count("shaky") == smoke.TRIES


def test_a_run_whose_files_are_not_all_there_fails(lab, told, monkeypatch):
    made_up(monkeypatch, HELD)
    smoke._tried(lab, smoke.rows(lab), told.append)
    with pytest.raises(smoke.Fell, match="0 histogram logs of 3"):
        smoke._check_files(lab.outcome)
