"""Settings of a member: what can be no cluster is refused in one sentence, before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from penstock.broker import ServeConfig
from penstock.broker.cluster_config import ClusterConfig, peers_of
from penstock.broker.errors import InsecureListen, InvalidPeers
from penstock.storage.errors import Error
from penstock.transport.errors import InvalidUrl

GOOD = ClusterConfig(name="c", node=2, peers={node: f"tcp://127.0.0.1:{7000 + 2 * node}" for node in (1, 2, 3)})


def test_three_nodes_on_this_machine_are_a_cluster() -> None:
    GOOD.check(guarded=False, insecure=False)
    assert GOOD.own_address == "tcp://127.0.0.1:7004"
    replace(GOOD, peers={**GOOD.peers, 4: "ipc:///tmp/a", 255: "ipc:///tmp/b"}).check(guarded=False, insecure=False)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": ""}, "1 to 200"),
        ({"name": "x" * 201}, "1 to 200"),
        ({"name": "a\nb"}, "1 to 200"),
        ({"peers": dict(list(GOOD.peers.items())[:2])}, "--peer names 2 nodes: "),
        ({"peers": {2: GOOD.peers[2]}}, "--peer names 1 node: "),
        ({"peers": {**GOOD.peers, 4: "ipc:///tmp/a"}}, "--peer names 4 nodes: "),
        ({"peers": {**GOOD.peers, **{n: f"ipc:///tmp/{n}" for n in (4, 5, 6, 7)}}}, "--peer names 7 nodes: "),
        ({"node": 4}, "--node 4 is none of the nodes that --peer names (1, 2, 3)"),
        ({"peers": {2: GOOD.peers[2], 1: GOOD.peers[1], 256: "ipc:///tmp/a"}}, "1 to 255"),
        ({"peers": {2: GOOD.peers[2], 1: GOOD.peers[1], 0: "ipc:///tmp/a"}}, "1 to 255"),
        ({"peers": {**GOOD.peers, 3: "tcp://127.0.0.1:7004"}}, "both use tcp://127.0.0.1:7004"),
        ({"peers": {**GOOD.peers, 3: "tcp://127.0.0.1:7003"}}, "both use tcp://127.0.0.1:7003"),
        ({"peers": {**GOOD.peers, 3: "unix:///tmp/a"}}, "tcp:// or ipc://"),
        ({"peers": {**GOOD.peers, 3: "tcp://*:7006"}}, "every interface"),
    ],
)
def test_what_can_be_no_cluster_is_refused(changed: dict, says: str) -> None:
    with pytest.raises(Error) as refused:
        replace(GOOD, **changed).check(guarded=False, insecure=False)
    assert says in refused.value.message


def test_an_own_address_that_others_reach_is_refused_unless_it_is_asked_for() -> None:
    far = replace(GOOD, peers={**GOOD.peers, 2: "tcp://10.0.0.2:7004"})
    with pytest.raises(InsecureListen, match=r"10\.0\.0\.2"):
        far.check(guarded=False, insecure=False)
    far.check(guarded=False, insecure=True)
    far.check(guarded=True, insecure=False)
    replace(far, node=1).check(guarded=False, insecure=False)  # where the others are is theirs to answer for


def test_a_node_may_listen_elsewhere_than_it_is_reached() -> None:
    own = replace(GOOD, peers={**GOOD.peers, 2: "tcp://two.example:7004"}, listen="tcp://127.0.0.1:7004")
    own.check(guarded=False, insecure=False)
    assert own.own_address == "tcp://127.0.0.1:7004"
    with pytest.raises(InsecureListen, match="--broker-key"):
        replace(own, listen="tcp://*:7004").check(guarded=False, insecure=False)
    replace(own, listen="tcp://*:7004").check(guarded=True, insecure=False)
    for bad in "tcp://*:0", "tcp://127.0.0.1:65535", "unix:///tmp/a":
        with pytest.raises(InvalidPeers):
            replace(own, listen=bad).check(guarded=True, insecure=False)


def test_clients_come_elsewhere_than_the_other_nodes(tmp_path: Path) -> None:
    def serving(*listen: str, **changes: Any) -> ServeConfig:
        return ServeConfig(data=str(tmp_path), cluster=replace(GOOD, **changes), listen=listen, insecure=True)

    for own in "tcp://127.0.0.1:7004", "tcp://127.0.0.1:7005":
        with pytest.raises(
            InvalidUrl, match=f"--listen {own} and --peer .*{own} are one place to listen: choose another"
        ):
            serving("unix:///tmp/a", own).addresses()
    with pytest.raises(InvalidUrl, match=r"and --peer-listen tcp://127\.0\.0\.1:8004"):
        serving("tcp://127.0.0.1:8004", listen="tcp://127.0.0.1:8004").addresses()
    for everywhere in "tcp://*:7004", "tcp://0.0.0.0:7005":
        with pytest.raises(InvalidUrl, match="one place to listen"):
            serving(everywhere).addresses()
    with pytest.raises(InvalidUrl, match="one place to listen"):
        serving("tcp://127.0.0.1:7005", listen="tcp://*:7004").addresses()
    serving("tcp://127.0.0.1:7004", listen="tcp://127.0.0.1:8004").addresses()
    serving("tcp://127.0.0.1:7003").addresses()  # where the others are is theirs
    serving().addresses()


def test_users_need_nodes_that_are_known(tmp_path: Path) -> None:
    def serving(cluster: ClusterConfig, **changes: str) -> ServeConfig:
        return ServeConfig(data=str(tmp_path), cluster=cluster, access="/a", **changes)

    with pytest.raises(InvalidPeers, match="any peer may pose as a node"):
        serving(GOOD).addresses()
    serving(GOOD, broker_key="/k").addresses()
    serving(replace(GOOD, peers={node: f"ipc:///tmp/{node}" for node in GOOD.peers})).addresses()


def test_peers_are_numbers_and_addresses() -> None:
    assert peers_of(["1=ipc:///a", "2=tcp://h:1"]) == {1: "ipc:///a", 2: "tcp://h:1"}


@pytest.mark.parametrize(
    "texts", [["tcp://h:1"], ["=tcp://h:1"], ["x=tcp://h:1"], ["1="], ["1=ipc:///a", "1=ipc:///b"]]
)
def test_peers_that_say_no_number_or_repeat_one_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidPeers):
        peers_of(texts)
