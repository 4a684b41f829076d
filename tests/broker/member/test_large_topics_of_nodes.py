"""Real nodes make a topic of a thousand partitions under load, and the leader keeps the lead."""

from __future__ import annotations

from pathlib import Path

import penstock
from support.checker import check_stored
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Sender, stored


def test_a_topic_of_a_thousand_partitions_costs_no_lead_and_no_record(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, board_rows=1100) as cluster:
        leader = cluster.leader()
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
            client.create_topic("small", partitions=1)
            term, before = cluster.term(), {n: len(node.roles) for n, node in cluster.nodes.items()}
            with Sender(cluster.url, "small", "s") as sender:
                sender.more(5)
                client.create_topic("large", partitions=1000)
                sender.more(5)
                client.producer("large").send(b"x", partition=999)
        for node in cluster.nodes.values():
            node.watch(0.0)
        after = {n: node.roles[before[n] :] for n, node in cluster.nodes.items()}
        assert (cluster.leader(), cluster.term()) == (leader, term), after
        verdict = check_stored({"s": sender.sent}, stored(cluster.url, "small", 1))
        assert not any((verdict.lost, verdict.duplicate, verdict.reordered, verdict.phantom)), str(verdict)
