"""The tail is a figure only when retention worked during the run."""

from __future__ import annotations

import pytest

from perf.benches import latency
from perf.lab.harness import Lab
from perf.load import agents
from perf.load.loads import Load
from perf.systems.penstock import Penstock


def test_a_run_in_which_retention_removed_nothing_is_no_figure(tmp_path):
    system = Penstock("ipc", "mapped", segment_bytes="4MB", retention_bytes="16MB")
    with system.serve(tmp_path, "written") as address, pytest.raises(RuntimeError, match="removed nothing"):
        latency._retained(system, address, Load(200, 0.1, warm_s=0.0))


@pytest.mark.parametrize("full", [False, True])
def test_agents_find_every_system_that_is_measured(full, tmp_path):
    for system in latency._systems(Lab(tmp_path, 1, 1.0, full)):
        assert agents.find(type(system).__module__, system.name).name == system.name
