"""Real nodes whose files are damaged: each fetches what it has lost and votes again, while the others serve."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import penstock
import pytest
from penstock.storage.layout import DATA_START
from support.checker import check_stored
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Sender, are_whole, stored


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """One for all tests: each ends with all nodes whole."""
    with ClusterProcesses(tmp_path_factory.mktemp("c")) as found:
        found.leader()
        yield found


def segments(data: Path) -> list[Path]:
    return sorted(data.glob("topics/*/*/*.segment"), key=lambda each: (-each.stat().st_size, each))


def cut_segments(data: Path) -> None:
    for path in segments(data):
        with path.open("r+b") as file:
            file.truncate(DATA_START)


def lost_order(data: Path) -> None:
    shutil.rmtree(data / "order")


def lost_topics(data: Path) -> None:
    shutil.rmtree(data / "topics")


def lost_catalogue(data: Path) -> None:
    shutil.rmtree(data / "metadata")


def created(cluster: ClusterProcesses) -> str:
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
        return client.create_topic(f"t-{len(client.topics())}", partitions=1).name


@pytest.mark.parametrize("damage", [cut_segments, lost_order, lost_topics, lost_catalogue])
def test_a_node_that_lost_files_heals_by_itself_and_may_lead(
    cluster: ClusterProcesses, damage: Callable[[Path], None]
) -> None:
    topic = created(cluster)
    with Sender(cluster.url, topic, "s", window=20) as sender:
        sender.more(10)
        leader = cluster.leader()
        lost = min(set(cluster.numbers) - {leader})
        node = cluster.nodes.pop(lost)
        node.end()  # with a mark and a checkpoint of all that it has
        node.close()
        data = cluster.folder / f"data{lost}"
        damage(data)
        sender.more(5)
        node = cluster.start(lost, wait=True)
        while not any(role == "recovering" for role, _ in node.roles):
            node.watch(1.0)
        sender.more(5)
        while not are_whole(cluster, {lost}):
            sender.more(1)
        other = (set(cluster.numbers) - {cluster.leader(), lost}).pop()
        cluster.kill(other)  # the healed node is needed for a majority
        sender.more(10)
        cluster.start(other, wait=True)
        assert not (data / "damaged").exists()
        assert "anew: the state that this member had lost" in node.errors()
        assert "should not happen" not in node.errors()
    verdict = check_stored({"s": sender.sent}, stored(cluster.url, topic, 1))
    assert not any((verdict.lost, verdict.duplicate, verdict.reordered, verdict.phantom)), str(verdict)


def test_a_leader_that_reads_damage_closes_and_clients_get_the_record_from_another(cluster: ClusterProcesses) -> None:
    topic = created(cluster)
    with Sender(cluster.url, topic, "s", window=200) as sender:
        sender.more(10)
    while not are_whole(cluster, cluster.numbers):  # a leader serves in spite of damage if the others lack anything
        pass
    leader, term = cluster.leader(), cluster.term()
    with penstock.connect(cluster.urls[leader - 1], timeout=PATIENCE_S) as client:
        topic_id = next(each.id for each in client.topics() if each.name == topic)
    (path,) = (cluster.folder / f"data{leader}" / "topics" / topic_id / "0").glob("*.segment")
    with path.open("r+b") as file:  # a few pages, in batches that are acknowledged
        file.seek(DATA_START)
        file.write(bytes(4096))
    found: list[bytes] = []
    client = penstock.connect(cluster.url, timeout=PATIENCE_S, delivery="push")
    with client, client.consumer(topic) as consumer:
        while len(found) < sender.sent.sent:
            found += [record.value or b"" for record in consumer.fetch(wait=PATIENCE_S)]
    verdict = check_stored({"s": sender.sent}, [found])
    assert not any((verdict.lost, verdict.duplicate, verdict.reordered, verdict.phantom)), str(verdict)
    assert cluster.leader(above=term) != leader
    while not are_whole(cluster, {leader}):
        pass
    assert "should not happen" not in cluster.nodes[leader].errors()
