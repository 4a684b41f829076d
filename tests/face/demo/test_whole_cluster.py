"""The demo of a cluster, whole: real nodes, of which the leader is killed every few seconds, and all of the flights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.soak  # minutes


def test_the_demo_of_a_cluster_finds_all_of_its_flights_and_tasks() -> None:
    command = [sys.executable, "-m", "penstock", "demo", "--cluster", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    outcome = json.loads(found.stdout.splitlines()[-1])
    assert (outcome["equal"], outcome["stops"]) == (True, 1)
    assert outcome["kills"] > 1
