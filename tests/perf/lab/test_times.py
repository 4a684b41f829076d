"""What a run will take is said out of what earlier ones took; what is not known is named."""

from __future__ import annotations

from perf.lab import times


def test_what_was_kept_is_added_up(tmp_path):
    times.keep(tmp_path, "produce", False, 2.04)
    times.keep(tmp_path, "consume", False, 3.0)
    assert times.estimate(times.read(tmp_path), ["produce", "consume"], full=False).endswith("about 5 min.")


def test_short_and_full_runs_are_kept_apart(tmp_path):
    times.keep(tmp_path, "produce", False, 2.0)
    assert "not known yet" in times.estimate(times.read(tmp_path), ["produce"], full=True)


def test_a_bench_that_nothing_is_known_of_is_named(tmp_path):
    times.keep(tmp_path, "produce", True, 9.0)
    said = times.estimate(times.read(tmp_path), ["produce", "open"], full=True)
    assert "about 9 min" in said
    assert "open" in said


def test_the_first_place_that_knows_is_believed(tmp_path):
    times.keep(tmp_path / "here", "produce", False, 2.0)
    times.keep(tmp_path / "committed", "produce", False, 7.0)
    times.keep(tmp_path / "committed", "open", False, 1.0)
    known = times.read(tmp_path / "here", tmp_path / "committed", tmp_path / "nowhere")
    assert sorted(known.values()) == [1.0, 2.0]
