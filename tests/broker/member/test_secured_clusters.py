"""Three real nodes over tcp:// with keys: for nodes among each other, and for users that clients are of."""

from __future__ import annotations

from pathlib import Path

import penstock
import pytest
from penstock.broker import access_file
from penstock.cli import exits
from penstock.cli.app import run
from penstock.errors import Forbidden
from penstock.transport.keys import Key
from support.cluster import ClusterProcesses
from support.ports import port_pairs

TIMEOUT_S = 60.0


def test_clients_with_keys_go_on_when_the_leader_is_killed_and_may_do_what_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    access, broker = str(tmp_path / "access"), Key.generate()
    broker.write(tmp_path / "broker.key")
    keys = {}
    for user, operations in ("ann", ["see", "read", "write", "manage"]), ("bob", ["read"]):
        keys[user] = Key.generate(broker=broker.public)
        access_file.add_key(access, user, keys[user].public)
        access_file.add_grant(access, user, access_file.Grant(False, frozenset(operations), "*"))
    keys["ann"].write(tmp_path / "ann.key")
    monkeypatch.setenv("PENSTOCK_KEY", str(tmp_path / "ann.key"))
    ports = port_pairs(6)
    clients = ports[3:]
    with ClusterProcesses(
        tmp_path, peers={node: f"tcp://127.0.0.1:{port}" for node, port in enumerate(ports[:3], 1)},
        listen_of=lambda node: (f"tcp://127.0.0.1:{clients[node - 1]}",),
        access=access, broker_key=str(tmp_path / "broker.key"),
    ) as cluster:  # fmt: skip
        url = "tcp://" + ",".join(f"127.0.0.1:{port}" for port in clients)
        with penstock.connect(url, key=keys["ann"], timeout=TIMEOUT_S) as ann:
            ann.create_topic("t", partitions=1)
            with ann.producer("t") as producer:
                producer.send(b"one")
                leader, term = cluster.leader(), cluster.term()
                cluster.kill(leader)
                producer.send(b"two")
                assert cluster.leader(above=term) != leader
            with pytest.raises(Forbidden), penstock.connect(url, key=keys["bob"], timeout=TIMEOUT_S) as bob:
                bob.create_topic("other", partitions=1)
            assert run(["cluster", "status", "--url", url]) == 0
            monkeypatch.delenv("PENSTOCK_KEY")
            assert run(["cluster", "status", "--url", url]) == exits.FAILED
            assert "the broker wants a key" in capfd.readouterr().err
            with ann.consumer("t", group="g", start="earliest") as consumer:
                values: list[bytes] = []
                while len(values) < 2:
                    values += [record.value for record in consumer.fetch(max_records=10, wait=TIMEOUT_S)]
    assert values == [b"one", b"two"]
