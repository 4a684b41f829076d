"""Every goal that is stated is answered by rows that the default run measures. None of them is measured here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from perf import benches
from perf.benches import machine
from perf.lab.goals import STATED
from perf.lab.harness import Lab
from perf.lab.rows import BEST_PEER, Curve, Latency, Row
from perf.load import capacity

ANSWERING = ("produce", "consume", "latency", "embedded", "tasks", "celery", "spark")


@pytest.fixture(scope="module")
def default_rows(tmp_path_factory) -> list[Row | Latency]:
    """What the default run asks for; the rate whose half is the load of the tail is not searched for."""
    lab = Lab(tmp_path_factory.mktemp("rows"), 1, 0.0001)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(capacity, "rate_of", lambda *_, **__: 1000)
        return [row for name in ANSWERING for row in asked_for(name, lab)]


def asked_for(name: str, lab: Lab) -> Iterator[Row | Latency]:
    with closing(benches.rows(name, lab)) as rows:
        yield from (row for row in rows if not isinstance(row, Curve) and not row.full)


@pytest.mark.parametrize("goal", STATED)
def test_a_goal_is_answered_by_default(goal, default_rows):
    answering = [row for row in default_rows if row.stated == goal]
    assert answering
    for row in answering:
        assert row.ratio_goals or (isinstance(row, Row) and row.goal is not None), f"{row.name} has nothing to reach"


def test_no_row_answers_what_is_not_stated(default_rows):
    assert {row.stated for row in default_rows} <= {"", *STATED}


def test_what_a_goal_compares_with_stands_beside_its_row(default_rows):
    for row in (row for row in default_rows if row.stated):
        for key in row.ratio_goals:
            name = key[1] if isinstance(key, tuple) else key
            assert row.peers if name == BEST_PEER else name in {*row.limits, *row.peers}, f"{row.name}: {name}"


def test_latencies_stand_beside_peers_at_both_rates(default_rows):
    loads = {row.load for row in default_rows if isinstance(row, Latency) and row.stated == "send to receive"}
    assert loads == {"1 k/s", "10 k/s"}


def test_the_figures_of_the_machine_are_not_called_those_of_penstock(tmp_path):
    assert benches.subject("machine") == "this machine"
    assert benches.subject("produce") == "penstock"
    rows = list(machine.rows(Lab(tmp_path, 1, 0.0001)))
    assert len({(row.name, getattr(row, "load", "")) for row in rows}) == len(rows)
