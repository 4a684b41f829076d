"""A backup of a cluster's leader: what is restored is a broker of its own, with all that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.cli.app import run
from support.checker import check_stored
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Sender, stored
from support.processes import Serving


def test_a_backup_of_the_leader_is_restored_as_a_broker_that_is_alone(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
            client.create_topic("t", partitions=2)
        with Sender(cluster.url, "t", "s", window=20) as sender:
            sender.more(10)
        with (
            penstock.connect(cluster.url, timeout=PATIENCE_S) as client,
            client.consumer("t", group="g", start="earliest", delivery="push") as consumer,
        ):
            read = len(consumer.fetch(5, wait=PATIENCE_S))
            consumer.commit()
        leader = cluster.leader()
        data, other = (str(cluster.folder / f"data{each}") for each in (leader, leader % 3 + 1))
        assert run(["backup", f"{tmp_path}/backup", "--data", data]) == 0, capsysbinary.readouterr().err
        assert run(["backup", f"{tmp_path}/other", "--data", other]) == 4
        assert "leads: connect there" in capsysbinary.readouterr().err.decode()
    assert run(["restore", f"{tmp_path}/backup", "--data", f"{tmp_path}/restored"]) == 0
    with Serving(ServeConfig(data=f"{tmp_path}/restored", listen=(f"unix://{tmp_path}/alone",))) as alone:
        verdict = check_stored({"s": sender.sent}, stored(alone.url, "t", 2))
        assert not any((verdict.lost, verdict.duplicate, verdict.reordered, verdict.phantom)), str(verdict)
        with penstock.connect(alone.url) as client, client.consumer("t", group="g", delivery="push") as consumer:
            left = 0
            while left < sender.sent.sent - read:
                left += len(consumer.fetch(wait=PATIENCE_S))
            assert left == sender.sent.sent - read
            client.producer("t").send(b"one more")
