"""Rates are searched for once for each system, and shares follow from them. No server runs here but the bare socket."""

from __future__ import annotations

import pytest

from perf.benches import sustained
from perf.benches.sustained import Found
from perf.lab.harness import Lab
from perf.lab.rows import Absent
from perf.load import capacity
from perf.systems.bare import SYSTEM


@pytest.fixture
def searches(monkeypatch):
    """Every search, answered with what the test puts in front."""
    asked: list[int] = []
    answers = [4000, 0]

    def rate_of(system, address, size, precision, seconds):
        asked.append(size)
        return answers[len(asked) - 1]

    monkeypatch.setattr(capacity, "rate_of", rate_of)
    return asked


def test_a_rate_is_searched_for_once_and_its_shares_follow(searches, tmp_path):
    lab = Lab(tmp_path, 1, 1.0)
    found = Found(lab)
    assert [sustained._load(lab, found, SYSTEM, share).rate for share in sustained.SHARES] == [400, 2000, 3200, 3600]
    assert searches == [100]


def test_a_system_that_sustains_nothing_is_absent_at_that_size(searches, tmp_path):
    found = Found(Lab(tmp_path, 1, 1.0))
    assert found.rate(SYSTEM, 100) == 4000
    for _ in range(2):
        with pytest.raises(Absent, match="65536 bytes"):
            found.rate(SYSTEM, 65536)
    assert searches == [100, 65536]


def test_a_look_tries_rates_for_a_shorter_time(monkeypatch, tmp_path):
    tried: list[float] = []
    monkeypatch.setattr(capacity, "rate_of", lambda *asked: tried.append(asked[-1]) or 1)
    for scale in (1.0, 0.5, 0.01):
        Found(Lab(tmp_path, 1, scale)).rate(SYSTEM)
    assert tried == [1.0, 0.5, capacity.SHORTEST_S]
