"""A bench runs for one system, and the page names the system of each column."""

from __future__ import annotations

import pytest

from perf import session
from perf.lab import report
from perf.lab.harness import Lab
from perf.lab.measured import Figure, Loaded
from perf.lab.rows import Percentiles


@pytest.mark.parametrize(("named", "subject"), [({}, "penstock"), ({"subject": "this machine"}, "this machine")])
def test_a_table_names_whose_figures_they_are(named, subject, tmp_path):
    measured = session.begun("made-up", "About it.", Lab(tmp_path, 1, 1.0), **named)
    measured.add(Figure("a figure", "MB/s", samples=[1.0]))
    measured.add(Loaded("a latency", "1 k/s", samples=[Percentiles(1, 2, 3, 4, 5)]))
    page = report.markdown([measured])
    assert f"| figure | durability | {subject} | beside it |" in page
    assert f"| 1 k/s | {subject} | 1 | 2 | 3 | 4 | 5 |" in page
