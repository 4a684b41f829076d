"""Three real nodes, each with a rotten byte in another batch of the same log: none of them is whole, and all heal."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.broker.config import KeeperOptions
from penstock.storage.files import Files
from penstock.storage.layout import DATA_START
from penstock.storage.verify import verify
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, are_whole, stored

VALUES = [(b"%d" % number).ljust(30_000, b".") for number in range(30)]
"""Of batches that entries only name: they are nowhere else on a node."""


def filled(cluster: ClusterProcesses) -> list[Path]:
    """The log of a topic with some segments, on each node; all nodes have all of it."""
    cluster.leader()
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
        topic = client.create_topic("t", partitions=1, segment_bytes=64 << 10)
        producer = client.producer("t")
        for value in VALUES:
            producer.send(value)
    while not are_whole(cluster, cluster.numbers):
        pass
    return [cluster.folder / f"data{number}" / "topics" / topic.id / "0" for number in cluster.numbers]


def rot(logs: list[Path], place: int) -> None:
    """Flip a bit on each node, at a place behind the first page, each in another closed segment."""
    for number, log in enumerate(logs):
        with sorted(log.glob("*.segment"))[1 + number].open("r+b") as file:
            file.seek(DATA_START + place)
            old = file.read(1)
            file.seek(DATA_START + place)
            file.write(bytes([old[0] ^ 1]))


def are_clean(logs: list[Path]) -> bool:
    return all(verify(Files(), str(log)).ok for log in logs)


def check(cluster: ClusterProcesses, logs: list[Path]) -> None:
    assert are_clean(logs)
    assert stored(cluster.url, "t", 1) == [VALUES]
    assert not [node for node in cluster.nodes.values() if "should not happen" in node.errors()]
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
        client.producer("t").send(b"and it goes on")


def test_nodes_that_scrub_mend_each_other_and_none_closes(tmp_path: Path) -> None:
    keeper = KeeperOptions(scrub_s=0.5, scrub_most=64 << 20)
    with ClusterProcesses(tmp_path, keeper=keeper) as cluster:
        logs = filled(cluster)
        term = cluster.term()
        rot(logs, 5_000)
        while not all("is written anew" in node.errors() for node in cluster.nodes.values()):
            are_whole(cluster, cluster.numbers)
        check(cluster, logs)
        assert cluster.leader() in cluster.numbers
        assert cluster.term() == term
        assert not [number for number in cluster.numbers if (cluster.folder / f"data{number}" / "aside").exists()]
        for node in cluster.nodes.values():
            assert "opens them anew" not in node.errors()


def test_nodes_that_all_open_with_damage_mend_each_other_and_lead_again(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        logs = filled(cluster)
        term = cluster.term()
        cluster.kill_all()
        rot(logs, 9)  # in a header: the batch is as good as gone
        for number in cluster.numbers:
            cluster.start(number)
        assert cluster.leader(above=term) in cluster.numbers
        while not are_whole(cluster, cluster.numbers):
            pass
        check(cluster, logs)
        mended = [node for node in cluster.nodes.values() if "batches that had rotted are those" in node.errors()]
        assert len(mended) > 1, "two that are whole lead, and a third one may fetch all from them"
        for number, node in cluster.nodes.items():
            assert "recovering" in {role for role, _ in node.roles}
            assert not (cluster.folder / f"data{number}" / "damaged").exists()
