"""The harness: pairs in turn, absent and failing peers, and which rows are measured. No bench runs here."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from perf.lab import harness, machine
from perf.lab.harness import Lab
from perf.lab.measured import Figure, Grown, Loaded
from perf.lab.rows import BEST_PEER, Absent, Curve, Latency, Percentiles, Row


def samples(*values: float):
    """A measurement that gives these, one after the other."""
    return iter(values).__next__


def logged(order: list[str], name: str):
    return lambda: order.append(name) or 1.0


def peer(sample, story: list[str] | None = None):
    """A peer that says when it starts and stops."""

    @contextmanager
    def enter():
        if story is not None:
            story.append("start")
        yield sample
        if story is not None:
            story.append("stop")

    return enter


def silent(text: str) -> None:
    """Progress, unheard."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, 3, 1.0)


def figure(row: Row, repeat: int = 3) -> Figure:
    result = harness.measure(row, repeat, silent)
    assert isinstance(result, Figure)
    return result


def test_the_first_turn_is_thrown_away():
    result = figure(Row("a", "us", samples(99.0, 1.0, 3.0, 2.0), limits={"bare": samples(88.0, 4.0, 5.0, 6.0)}))
    assert result.samples == [1.0, 3.0, 2.0]
    assert result.compared[0].samples == [4.0, 5.0, 6.0]
    assert result.compared[0].ours == [1.0, 3.0, 2.0]


def test_a_single_turn_is_a_look_and_has_no_warming():
    assert figure(Row("a", "us", samples(1.0)), repeat=1).samples == [1.0]


def test_row_and_limits_take_turns_in_going_first():
    order: list[str] = []
    limits = {"one": logged(order, "one"), "two": logged(order, "two")}
    figure(Row("a", "us", logged(order, "row"), limits=limits), repeat=2)
    assert order == ["row", "one", "two", "two", "one", "row", "row", "one", "two"]


def test_a_peer_runs_alone_in_pairs_between_its_start_and_its_stop():
    story: list[str] = []
    peers = {name: peer(logged(story, name), story) for name in ("one", "two")}
    figure(Row("a", "us", logged(story, "row"), peers=peers), repeat=1)
    assert story == ["row", "start", "row", "one", "stop", "start", "row", "two", "stop"]


def test_pairs_with_a_peer_alternate_after_a_warming_pair():
    story: list[str] = []
    result = figure(Row("a", "us", logged(story, "row"), peers={"one": peer(logged(story, "one"))}), repeat=2)
    assert story[3:] == ["row", "one", "one", "row", "row", "one"]
    assert len(result.compared[0].samples) == len(result.compared[0].ours) == 2


def raising(error: Exception):
    def sample() -> float:
        raise error

    return sample


def entered(error: Exception):
    @contextmanager
    def enter():
        raise error
        yield

    return enter


def leaving(error: Exception):
    @contextmanager
    def enter():
        yield lambda: 1.0
        raise error

    return enter


@pytest.mark.parametrize(
    ("enter", "absent", "failed"),
    [
        (entered(Absent("not installed")), "not installed", ""),
        (entered(OSError("no port")), "", "OSError: no port"),
        (peer(raising(ValueError("bad answer\nand more"))), "", "ValueError: bad answer"),
        (peer(raising(Absent("no streams in this version"))), "no streams in this version", ""),
        (leaving(TimeoutError("did not stop")), "", "TimeoutError: did not stop"),
    ],
)
def test_a_peer_that_is_absent_or_fails_costs_only_its_own_column(enter, absent, failed):
    result = figure(Row("a", "us", lambda: 2.0, peers={"lost": enter, "there": peer(lambda: 1.0)}))
    lost, there = result.compared
    assert (lost.absent, lost.failed, lost.samples, lost.ours) == (absent, failed, [], [])
    assert (there.samples, there.ours) == ([1.0] * 3, [2.0] * 3)


def test_a_limit_that_fails_later_is_not_asked_again():
    asked: list[int] = []

    def fails_at_the_second() -> float:
        asked.append(1)
        return 1.0 if len(asked) < 2 else 1 / 0

    result = figure(Row("a", "us", lambda: 1.0, limits={"bare": fails_at_the_second}))
    assert (result.compared[0].failed, len(asked)) == ("ZeroDivisionError: division by zero", 2)
    assert result.samples == [1.0] * 3


def test_an_error_of_our_own_sample_is_not_blamed_on_the_peer():
    stories: list[str] = []
    broken = iter([1.0, 1.0, 1.0, 1.0])  # enough for the first phase, exhausted beside the peer
    row = Row("a", "us", lambda: next(broken), peers={"one": peer(lambda: 1.0, stories)})
    with pytest.raises(harness.OwnSampleFailed, match="StopIteration"):
        figure(row)


def test_bounds_are_the_goal_and_the_ratio_goals():
    row = Row("a", "us", lambda: 1.0, goal=3.0, ratio_goals={BEST_PEER: 5.0})
    assert [(b.bound, b.against, b.of) for b in figure(row).bounds] == [(3.0, "", ""), (5.0, BEST_PEER, "")]


def test_a_latency_keeps_every_percentile_beside_its_peers_and_what_was_stolen(monkeypatch):
    stat = iter(f"cpu  {50 * n} 0 0 {50 * n} 0 0 0 {25 * n} 9 9\ncpu0 1" for n in range(100))
    monkeypatch.setattr(machine.Path, "read_text", lambda path: next(stat))
    ours, theirs = Percentiles(1, 2, 3, 4, 5, stolen=0.2), Percentiles(2, 4, 6, 8, 10, stolen=0.2)
    row = Latency(
        "a", "1 k/s", lambda: Percentiles(1, 2, 3, 4, 5), peers={"one": peer(lambda: Percentiles(2, 4, 6, 8, 10))},
        ratio_goals={("p99", BEST_PEER): 0.5},
    )  # fmt: skip
    result = harness.measure(row, 2, silent)
    assert isinstance(result, Loaded)
    assert (result.load, result.samples, result.compared[0].samples) == ("1 k/s", [ours] * 2, [theirs] * 2)
    assert [(b.bound, b.against, b.of) for b in result.bounds] == [(0.5, BEST_PEER, "p99")]


def test_a_curve_goes_through_its_xs_in_order_in_turn_with_what_stands_beside_it():
    order: list[tuple[str, float]] = []

    def at(name: str):
        return lambda x: order.append((name, x)) or x * 2

    result = harness.measure(Curve("a", "us", "size", [1, 10], at("row"), {"bare": at("bare")}, turns=1), 5, silent)
    assert isinstance(result, Grown)
    assert order == [("row", 1), ("bare", 1), ("row", 10), ("bare", 10)]
    assert [(line.name, line.xs, line.samples) for line in result.series] == [
        ("penstock", [1, 10], [[2], [20]]),
        ("bare", [1, 10], [[2], [20]]),
    ]


def test_a_line_of_a_curve_may_end_early_with_its_reason():
    def small_only(x: float) -> float:
        if x > 5:
            raise Absent("does not fit")
        return x

    result = harness.measure(Curve("a", "us", "size", [1, 10], lambda x: x, {"bare": small_only}), 2, silent)
    assert isinstance(result, Grown)
    assert (result.series[1].xs, result.series[1].absent) == ([1], "at 10: does not fit")
    assert result.series[0].samples == [[1, 1], [10, 10]]


@pytest.mark.parametrize(("full", "measured"), [(False, ["short"]), (True, ["short", "long"])])
def test_rows_that_take_long_are_left_to_the_full_run(full, measured, tmp_path):
    rows = (row for row in [Row("short", "us", lambda: 1.0), Row("long", "us", lambda: 1.0, full=True)])
    assert [r.name for r in harness.measure_all(rows, Lab(tmp_path, 1, 1.0, full), silent)] == measured


def test_a_bench_is_resumed_when_its_row_was_measured_and_cleans_up(lab, monkeypatch):
    story = []

    def rows(lab):
        with lab.place() as place:
            story.append("set up")
            yield Row("a", "us", lambda: float(place.exists()))
        story.append(f"gone: {not place.exists()}")

    (result,) = harness.measure_all(rows(lab), lab, silent)
    assert isinstance(result, Figure)
    assert result.samples == [1.0] * 3
    assert story == ["set up", "gone: True"]


def test_a_bench_cleans_up_also_when_a_row_fails(lab):
    def rows(lab):
        with lab.place():
            yield Row("a", "us", lambda: 1 / 0)

    with pytest.raises(harness.OwnSampleFailed, match="division by zero"):
        list(harness.measure_all(rows(lab), lab, silent))
    assert list(lab.directory.iterdir()) == []


def test_kept_files_carry_the_name_of_their_bench(tmp_path):
    lab = Lab(tmp_path, 1, 1.0, bench="loaded", outcome=tmp_path / "out")
    lab.kept("50.hlog").write_text("")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["loaded-50.hlog"]
