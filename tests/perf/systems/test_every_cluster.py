"""Every replicated system of the lab that can run here takes values, one, many and in batches, with a majority."""

from __future__ import annotations

from pathlib import Path

import penstock
import pytest

from perf.systems import every_cluster
from perf.systems.cluster import Cluster
from perf.systems.penstock_cluster import REPLICATED, TOPIC

VALUES = [b"%03d" % number for number in range(120)]


@pytest.mark.parametrize("cluster", every_cluster(), ids=lambda cluster: cluster.name)
def test_a_replicated_system_takes_values_in_every_way(cluster: Cluster, tmp_path: Path) -> None:
    if reason := cluster.absent():
        pytest.skip(reason)
    with cluster.serve(tmp_path) as address:
        with cluster.client(address) as puts:
            puts.one(b"first")
            puts.many(VALUES, 7)
            puts.batches(VALUES)
        if cluster is REPLICATED:
            with penstock.connect(address) as client:
                assert client.topic(TOPIC).records == 1 + 2 * len(VALUES)
