"""Real nodes free what retention takes, also those that never lead."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.clients.cluster import cluster_state, transfer_lead
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S

COUNT, VALUE_BYTES = 2_000, 4 << 10
SEGMENT_BYTES = 256 << 10


def value(number: int) -> bytes:
    return (b"%d" % number).ljust(VALUE_BYTES, b".")


def segments(data: Path) -> list[Path]:
    return list(data.glob("topics/*/0/*.segment"))


def is_whole(cluster: ClusterProcesses) -> bool:
    state = cluster_state(cluster.urls, PATIENCE_S)
    others = [each for each in state.members if each.role != "leader"]
    return state.leader == state.node and all(each.state == "replicating" and not each.lag for each in others)


def test_a_follower_frees_what_retention_takes_and_leads_after_a_kill_with_what_is_left(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        leader, term = cluster.leader(), cluster.term()
        follower = min(set(cluster.numbers) - {leader})
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
            client.create_topic("t", partitions=1, segment_bytes=SEGMENT_BYTES, retention_bytes=4 * SEGMENT_BYTES)
            with client.producer("t") as producer:
                for first in range(0, COUNT, 20):
                    producer.send_many([value(number) for number in range(first, first + 20)])
            whole = COUNT * VALUE_BYTES // SEGMENT_BYTES
            assert max(len(segments(cluster.folder / f"data{number}")) for number in cluster.numbers) > whole // 2
            while any(len(segments(cluster.folder / f"data{number}")) > 8 for number in cluster.numbers):
                cluster.nodes[follower].watch(1.0)  # the checkpoint that lets the files go comes after half a minute
        assert (cluster.leader(), cluster.term()) == (leader, term)
        cluster.kill(follower)
        cluster.start(follower, wait=True)
        while not is_whole(cluster):
            cluster.nodes[follower].watch(0.1)
        transfer_lead(cluster.urls, follower, PATIENCE_S)
        assert cluster.leader(above=term) == follower
        found: list[bytes] = []
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client, client.consumer("t") as consumer:
            while not found or found[-1] != value(COUNT - 1):
                found += [record.value or b"" for record in consumer.fetch(wait=PATIENCE_S)]
        assert found == [value(number) for number in range(COUNT - len(found), COUNT)]
        assert 4 * SEGMENT_BYTES // VALUE_BYTES <= len(found) < COUNT // 2
