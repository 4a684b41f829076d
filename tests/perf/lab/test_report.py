"""The page that is made from results: goals first, durability in every row, and who was absent, with the reason."""

from __future__ import annotations

import pytest

from perf.lab import archive, report
from perf.lab.goals import STATED
from perf.lab.measured import Bound, Compared, Figure, Measured
from perf.lab.rows import BEST_PEER

FACTS = {
    "when": "2026-01-01T00:00:00+00:00",
    "cpu": "a processor",
    "cores": 2,
    "memory_gib": 4,
    "kernel": "6",
    "virtual": False,
    "filesystem": "ext4",
    "python": "3.11",
    "libzmq": "4",
    "commit": "abc",
    "command": "python -m perf",
}


def peer(name: str, *samples: float, absent: str = "") -> Compared[float]:
    return Compared(name, True, list(samples), [100.0] * len(samples), absent)


@pytest.fixture
def measured() -> Measured:
    compared = [
        Compared("bare", False, [200.0], [100.0]),
        peer("Slow", 10.0),
        peer("Fast", 25.0),
        peer("Gone", absent="it is not installed."),
    ]
    figure = Figure("produce: many", "records/s", durability="durable", stated="produce", compared=compared)
    figure.samples, figure.bounds = [100.0], [Bound(5.0, BEST_PEER), Bound(0.4, "bare")]
    return Measured("produce", "Producing.", FACTS, figures=[figure])


def cells(page: str, begin: str) -> list[list[str]]:
    """The cells of every line of a table that begins like this."""
    lines = [[cell.strip() for cell in line[1:-1].split("|")] for line in page.splitlines() if line.startswith("|")]
    return [line for line in lines if line[0] == begin]


def test_the_goals_come_first_and_those_without_an_answer_say_so(measured):
    page = report.markdown([measured])
    assert page.index("## Goals") < page.index("## produce")
    for key, text in STATED.items():
        (line,) = cells(page, text)
        assert ("not measured yet" in line) == (key != "produce")


def test_a_goal_names_its_durability_and_the_peers_that_the_best_was_not_chosen_from(measured):
    best, bare = cells(report.markdown([measured]), "· produce: many")
    assert best == ["· produce: many", "durable", "≥ 5.00 x best peer", "4.00 x Fast", "NO", "Gone"]
    assert bare == ["· produce: many", "durable", "≥ 0.40 x bare", "0.50", "yes", ""]


def test_who_is_absent_stands_beside_the_figure_with_the_reason(measured):
    lines = cells(report.markdown([measured]), "")
    assert ["", "durable", "", "peer: Gone", "absent: it is not installed.", "", "", ""] in lines
    assert ["", "durable", "", "peer: Fast", "25 records/s", "4.00", "≥ 5.00 x best peer", "NO"] in lines


def test_the_page_comes_from_the_files_alone_and_its_plots_are_there(measured, tmp_path):
    archive.write(tmp_path, measured)
    again = archive.read_all(tmp_path, ["produce", "not-measured"])
    report.write(tmp_path / "RESULTS.md", again)
    assert (tmp_path / "RESULTS.md").read_text() == report.markdown([measured])
    assert b"<svg" in (tmp_path / "results" / "produce-ratios.svg").read_bytes()


def test_publishing_replaces_the_results_of_the_same_bench_alone(measured, tmp_path):
    build, committed = tmp_path / "build", tmp_path / "committed"
    archive.write(build, measured)
    (build / "produce-run.hlog").write_text("")
    committed.mkdir()
    for name in ("produce.json", "consume.json"):
        (committed / name).write_text("")
    archive.publish("produce", build, committed)
    assert sorted(path.name for path in committed.iterdir()) == ["consume.json", "produce.json"]
    assert archive.read_all(committed, ["produce"]) == [measured]
