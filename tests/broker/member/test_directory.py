"""Whose a data directory is: begun once, never anew, and no other member's."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from penstock.broker.cluster_config import ClusterConfig
from penstock.broker.member.directory import KnownPeers, check, shard_ids, take
from penstock.broker.replica.beginning import has_begun
from penstock.broker.replica.errors import PromisesLost, ReplicaDamaged
from penstock.broker.replica.start import open_files
from penstock.storage.data_directory import FORMAT, MEMBER_FORMAT, Identity, check_alone, claim, identify
from penstock.storage.embedded import Log
from penstock.storage.errors import ForeignDirectory
from penstock.storage.memory_files import MemoryFiles

CLUSTER = ClusterConfig(name="c", node=2, peers={1: "ipc:///a", 2: "ipc:///b", 3: "ipc:///c"})


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    made.mkdir("data")
    return made


def begun(files: MemoryFiles) -> Identity:
    return take(files, "data", None, CLUSTER)


def test_a_new_directory_begins_the_shard_and_is_found_again(files: MemoryFiles) -> None:
    made = begun(files)
    assert (made.shard, made.number, made.members, made.begun) == ("c", 2, [1, 2, 3], True)
    assert has_begun(files, "data")
    written = msgspec.json.decode(files.read("data/node.json"))
    assert written["format"] == MEMBER_FORMAT > FORMAT, "versions that know no members refuse it"
    found = identify(files, "data")
    assert found == made
    assert take(files, "data", found, CLUSTER) == made
    open_files(files, "data", shard_ids(made)).order.close()
    other = MemoryFiles()
    other.mkdir("data")
    another = take(other, "data", None, replace(CLUSTER, node=1))
    assert (another.cluster, shard_ids(another)) == (made.cluster, shard_ids(made)), "equal without a message"
    assert another.node != made.node


def test_a_beginning_that_was_cut_short_goes_on(files: MemoryFiles) -> None:
    made = begun(files)
    files.rewrite("data/node.json", msgspec.json.encode(replace(made, begun=False)))
    assert take(files, "data", identify(files, "data"), CLUSTER) == made


def test_a_directory_that_lost_its_logs_is_not_begun_anew(files: MemoryFiles) -> None:
    made = begun(files)
    for name in files.listdir("data/order"):
        files.unlink(f"data/order/{name}")
    assert take(files, "data", made, CLUSTER) == made
    with pytest.raises(ReplicaDamaged, match="no checkpoint"):
        open_files(files, "data", shard_ids(made))
    assert not files.listdir("data/order")
    assert files.exists("data/damaged")


def test_a_directory_that_lost_its_promises_is_not_opened(files: MemoryFiles) -> None:
    made = begun(files)
    files.unlink("data/promises")
    with pytest.raises(PromisesLost, match="promises"):
        take(files, "data", made, CLUSTER)
    assert not files.exists("data/promises")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": "d"}, "of cluster c, not of d"),
        ({"node": 1}, "of node 2, not of node 1"),
        ({"peers": {**CLUSTER.peers, 4: "ipc:///d", 5: "ipc:///e"}}, "nodes 1, 2, 3, and --peer names 1, 2, 3, 4, 5"),
    ],
)
def test_another_members_directory_is_refused(files: MemoryFiles, changed: dict, says: str) -> None:
    made = begun(files)
    before = files.read("data/node.json")
    with pytest.raises(ForeignDirectory, match=says):
        take(files, "data", made, replace(CLUSTER, **changed))
    assert files.read("data/node.json") == before


def test_addresses_may_change(files: MemoryFiles) -> None:
    made = begun(files)
    check(made, "data", replace(CLUSTER, peers={1: "ipc:///x", 2: "ipc:///y", 3: "ipc:///z"}))


def test_the_directory_of_a_broker_that_is_alone_is_refused_and_the_other_way_round(files: MemoryFiles) -> None:
    made = begun(files)
    with pytest.raises(ForeignDirectory, match="--cluster c --node 2"):
        check_alone(made, "data")
    alone = MemoryFiles()
    alone.mkdir("data")
    found = claim(alone, "data")
    check_alone(found, "data")
    check_alone(None, "data")
    assert set(msgspec.json.decode(alone.read("data/node.json"))) == {"format", "node", "cluster"}, "as before"
    with pytest.raises(ForeignDirectory, match="alone"):
        take(alone, "data", found, CLUSTER)


def test_a_peer_that_was_heard_of_is_known_from_then_on(files: MemoryFiles) -> None:
    made = begun(files)
    known = KnownPeers(files, "data", made)
    assert known.uuid_of(1) == b""
    known.heard(1, b"a" * 16)
    known.heard(3, b"b" * 16)
    known.heard(1, b"c" * 16)
    found = identify(files, "data")
    assert found is not None
    again = KnownPeers(files, "data", found)
    assert (again.uuid_of(1), again.uuid_of(3)) == (b"a" * 16, b"b" * 16)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("log", ["metadata", "order", f"topics/{bytes(16).hex()}/0"])
def test_no_process_opens_a_log_of_a_member_as_its_own(log: str, read_only: bool) -> None:
    files = MemoryFiles()
    files.mkdir("/data")
    take(files, "/data", None, CLUSTER)
    files.mkdir(f"/data/{log}")
    before = {path: bytes(content.data) for path, content in files.contents.items()}
    with pytest.raises(ForeignDirectory, match="of node 2 of cluster c, and only that may open it"):
        Log(f"/data/{log}", files=files, read_only=read_only)
    assert {path: bytes(content.data) for path, content in files.contents.items()} == before


def test_a_log_of_a_broker_that_is_alone_is_opened() -> None:
    files = MemoryFiles()
    files.mkdir("/data")
    claim(files, "/data")
    with Log(f"/data/topics/{bytes(16).hex()}/0", files=files) as log:
        log.append(b"x")
