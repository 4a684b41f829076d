"""The harness: pairs in turn, medians, goals, and what becomes of the results. No bench runs here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perf import harness, machine, report
from perf.harness import Lab, Result, Row


def samples(*values: float):
    """A measurement that gives these, one after the other."""
    return iter(values).__next__


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, 3, 1.0)


def measured(row: Row, lab: Lab) -> Result:
    return harness._measure(Result(row, "made-up"), lab.repeat, lambda text: None)


def test_the_first_turn_is_thrown_away_and_the_median_is_of_the_rest(lab):
    result = measured(Row("a", "us", samples(99.0, 1.0, 3.0, 2.0)), lab)
    assert result.values == [1.0, 3.0, 2.0]
    assert result.value == 2.0
    assert result.ratio is None


def test_the_ratio_is_that_of_pairs_measured_next_to_each_other(lab):
    """The machine was ten times slower in the last pair; the ratio does not notice."""
    result = measured(Row("a", "us", samples(0, 2, 4, 60), limit=samples(1, 1, 2, 30)), lab)
    assert result.ratio == 2.0


def test_measure_and_limit_take_turns_in_going_first(lab):
    order = []
    row = Row("a", "us", lambda: order.append("row") or 1.0, limit=lambda: order.append("limit") or 1.0)
    measured(row, lab)
    assert order == ["row", "limit", "limit", "row", "row", "limit", "limit", "row"]


@pytest.mark.parametrize(
    ("more_is_better", "goal", "ratio_goal", "value", "limit", "reached"),
    [
        (True, 10, None, 10, None, True),
        (True, 10, None, 9, None, False),
        (False, 10, None, 9, None, True),
        (False, 10, None, 11, None, False),
        (False, None, 2.0, 4, 2, True),
        (False, None, 2.0, 5, 2, False),
        (True, 1, 0.6, 10, 20, False),
        (True, None, None, 10, 20, None),
    ],
)
def test_a_goal_is_a_bound_on_the_value_or_on_the_ratio(more_is_better, goal, ratio_goal, value, limit, reached):
    row = Row("a", "us", samples(), more_is_better, goal, samples(), "limit", ratio_goal)
    result = Result(row, "made-up", [value], [] if limit is None else [limit])
    assert result.reached is reached


def test_a_bench_is_resumed_when_its_row_was_measured_and_cleans_up(lab, monkeypatch):
    story = []

    def rows(lab):
        with lab.place() as place:
            story.append("set up")
            yield Row("a", "us", lambda: float(place.exists()))
        story.append(f"gone: {not place.exists()}")

    monkeypatch.setattr(harness, "import_module", lambda name: type("Bench", (), {"rows": staticmethod(rows)}))
    (result,) = harness.run("made-up", lab, lambda text: None)
    assert result.value == 1.0
    assert story == ["set up", "gone: True"]


@pytest.mark.parametrize("name", harness.names())
def test_every_bench_says_what_it_measures(name):
    bench = harness.import_module(f"perf.bench_{name}")
    assert callable(bench.rows)
    assert bench.__doc__


def test_there_is_a_bench_for_every_stated_figure():
    assert set(harness.names()) >= {"embedded", "produce", "consume", "latency", "many_topics", "open", "memory"}


def results() -> list[Result]:
    met = Row("fast", "records/s", samples(), goal=1e6, limit=samples(), limit_name="bare", durability="durable")
    missed = Row("slow", "us", samples(), False, goal=1.0, note="why")
    return [Result(met, "one", [2.5e6, 2e6], [5e6, 4e6]), Result(missed, "two", [2.0])]


def test_the_readme_gets_its_table_between_the_markers_and_keeps_the_rest(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.write_readme(page, results(), machine.facts(tmp_path))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert text.count("| fast (durable) | 2.25 M records/s") == 1
    assert "| NO |" in text
    assert "- slow: why" in text


def test_the_json_keeps_every_sample_and_the_machine(tmp_path):
    report.write_json(tmp_path / "out" / "perf.json", results(), machine.facts(tmp_path))
    kept = json.loads((tmp_path / "out" / "perf.json").read_text())
    assert kept["results"][0]["samples"] == [2.5e6, 2e6]
    assert kept["results"][0]["ratio"] == 0.5
    assert {"cpu", "kernel", "filesystem", "versions", "commit", "command"} <= kept["machine"].keys()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.5e6, "records/s", "2.5 M records/s"),
        (50e6, "records/s", "50 M records/s"),
        (322.4, "ns/record", "322 ns/record"),
        (1234.0, "us", "1,234 us"),
        (0.31, "ms", "0.31 ms"),
    ],
)
def test_numbers_are_written_as_people_read_them(value, unit, text):
    assert report.amount(value, unit) == text
