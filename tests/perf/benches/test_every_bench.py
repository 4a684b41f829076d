"""Every bench is found by its folder and can be asked what it measures. None of them runs here."""

from __future__ import annotations

import inspect

import pytest

from perf import benches
from perf.lab.harness import Lab


@pytest.mark.parametrize("name", benches.names())
def test_every_bench_says_what_it_measures(name, tmp_path):
    assert inspect.isgenerator(benches.rows(name, Lab(tmp_path, 1, 1.0)))
    assert benches.about(name)


def test_there_is_a_bench_for_every_stated_figure():
    assert set(benches.names()) >= {"embedded", "produce", "consume", "latency", "many_topics", "open", "memory"}
