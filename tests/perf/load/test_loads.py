"""Runs of real agents against the bare socket, whose whole life is in these processes."""

from __future__ import annotations

import os
import select
import time

import pytest

from perf.lab.harness import Lab
from perf.load import agents, loads
from perf.load.loads import Load
from perf.load.openloop import Over
from perf.systems import bare


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with bare.SYSTEM.serve(tmp_path_factory.mktemp("bare"), "") as found:
        yield found


@pytest.fixture(autouse=True)
def time_for_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is over with its last message; on a busy machine that may come late."""
    monkeypatch.setattr(loads, "GRACE_S", 40.0)


def test_a_run_counts_every_message_and_how_late_the_sender_was(address):
    outcome = loads.run(bare.SYSTEM, address, Load(500, 0.4, warm_s=0.1))
    assert outcome.latency.get_total_count() == 200
    assert outcome.missing == 0
    assert 0 < outcome.percentiles.p50 <= outcome.percentiles.p99 <= outcome.percentiles.most
    assert outcome.lateness is not None
    assert 0 < outcome.lateness.get_total_count() <= 250


def test_a_ping_pong_counts_every_message_that_came_back(address):
    outcome = loads.ping_pong(address, Load(500, 0.4, warm_s=0.1))
    assert outcome.latency.get_total_count() == 200
    assert outcome.missing == 0


def test_a_ping_pong_that_falls_behind_still_gets_everything_back(address):
    """Both sides would wait for each other if the one that sends did not read meanwhile."""
    outcome = loads.ping_pong(address, Load(20_000_000, 0.01, warm_s=0.0))
    assert outcome.latency.get_total_count() == 200_000
    assert outcome.missing == 0


def test_a_rate_that_nothing_keeps_up_with_ends_as_a_latency_that_grows(address):
    outcome = loads.run(bare.SYSTEM, address, Load(20_000_000, 0.05, warm_s=0.0))
    assert outcome.latency.get_total_count() == 1_000_000
    assert outcome.growth > 1.0


def test_the_histograms_of_runs_are_kept_by_kind_beside_the_results(address, tmp_path):
    runs = loads.Runs(Lab(tmp_path, 1, 1.0, bench="made-up", outcome=tmp_path / "kept"))
    for _ in range(2):
        outcome = loads.run(bare.SYSTEM, address, Load(200, 0.1, warm_s=0.0))
        assert runs.kept("bare, 200/s", outcome) == outcome.percentiles
    kept = {path.name: path.read_text().splitlines() for path in (tmp_path / "kept").iterdir()}
    assert kept.keys() == {"made-up-bare-200-s.hlog", "made-up-bare-200-s-how-late-the-sender-was.hlog"}
    assert [len(lines) for lines in kept.values()] == [5, 5], "three lines of heading, and one for each run"


def test_an_agent_that_cannot_connect_is_an_error_and_not_a_wait(address, capfd):
    with pytest.raises(RuntimeError, match="ended early"):
        loads.ping_pong(f"{address}-absent", Load(100, 0.1))
    assert "FileNotFoundError" in capfd.readouterr().err


def test_the_end_of_a_run_interrupts_a_call_that_waits_for_ever():
    readable, writable = os.pipe()
    try:
        with pytest.raises(Over), agents._until(time.perf_counter_ns()):
            select.select([readable], [], [], 60)
    finally:
        os.close(readable)
        os.close(writable)


def test_a_library_that_loses_the_end_ends_with_its_next_answer(monkeypatch):
    monkeypatch.setattr(agents.signal, "setitimer", lambda *_: None)
    with pytest.raises(Over), agents._until(time.perf_counter_ns()) as ending:
        ending(lambda: [b"late"])()


def test_what_a_library_makes_of_the_end_is_the_end_and_other_errors_are_its_own():
    def waits() -> None:
        try:
            select.select([], [], [], 60)
        except Over:
            raise OSError("interrupted") from None

    def breaks() -> None:
        raise OSError("broken")

    with pytest.raises(Over), agents._until(time.perf_counter_ns()) as ending:
        ending(waits)()
    with pytest.raises(OSError, match="broken"), agents._until(time.perf_counter_ns() + 10**12) as ending:
        ending(breaks)()


def test_a_system_is_found_by_where_it_stands():
    assert agents.find("perf.systems.bare", bare.SYSTEM.name) is bare.SYSTEM
    assert agents.find("perf.systems.penstock", "penstock (ipc, mapped)").name == "penstock (ipc, mapped)"
