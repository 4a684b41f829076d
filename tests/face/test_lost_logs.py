"""What `penstock log` says of partitions and catalogues that are gone, by file://."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import penstock
import pytest
from penstock.broker.cluster_config import ClusterConfig
from penstock.broker.member.directory import take
from penstock.cli import exits
from penstock.storage.files import Files
from penstock.storage.layout import DATA_START

from .conftest import Cli


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topics `a` and `b` with a record each, closed."""
    place = tmp_path / "data"
    with penstock.connect(f"file://{place}") as client:
        for topic in ("a", "b"):
            client.create_topic(topic)
            client.producer(topic).send(topic.encode())
    return place


def directory_of(data: Path, topic: str) -> Path:
    (found,) = (
        path for path in data.glob("topics/*/*/*.segment") if b"\0" + topic.encode() + b"\0" in path.read_bytes()
    )
    return found.parent


def values(data: Path, topic: str) -> list[bytes]:
    with penstock.connect(f"file://{data}") as client:
        return [record.value for record in client.read(topic, 0, 0)]


def no_segment(log: Path) -> None:
    for path in log.glob("*.segment"):
        path.unlink()


def a_directory_instead(log: Path) -> None:
    for path in log.glob("*.segment"):
        path.unlink()
        path.mkdir()


def nothing_inside(log: Path) -> None:
    shutil.rmtree(log)
    log.mkdir()


def no_topic(log: Path) -> None:
    shutil.rmtree(log.parent)


@pytest.mark.parametrize("lose", [no_segment, a_directory_instead, nothing_inside, shutil.rmtree, no_topic])
def test_a_partition_that_is_gone_is_damage_with_a_way_out(
    cli: Cli, data: Path, lose: Callable[[Path], object]
) -> None:
    log = directory_of(data, "a")
    lose(log)
    for where in (data, data / "topics", log):
        if where == data or where.exists():
            found = cli("log", "verify", str(where))
            assert found.code == exits.DAMAGED
            assert f"{log}: position 0: the log is gone: no segment of it is there: everything from" in found.text
            assert "a/0 " in found.text
    lines = cli("log", "verify", str(data), "--json").lines
    assert [line["topic"] for line in lines if not line["ok"]] == ["a"]
    assert cli("log", "dump", str(data)).code == exits.OK
    found = cli("log", "repair", str(data))
    assert found.code == exits.DAMAGED
    assert "a/0: still damaged: " in found.text
    assert "--accept-loss goes on without" in found.text
    with pytest.raises(
        penstock.errors.Unavailable,
        match=r"log repair --accept-loss|a file belongs: move it away",
    ):
        values(data, "a")
    assert values(data, "b") == [b"b"]
    assert cli("log", "repair", str(data), "--accept-loss").code == exits.OK
    assert cli("log", "verify", str(data)).code == exits.OK
    assert values(data, "a") == []
    with penstock.connect(f"file://{data}") as client:
        client.producer("a").send(b"new")
    assert values(data, "a") == [b"new"]


def test_what_a_member_has_set_aside_is_looked_at_where_it_is_named(cli: Cli, data: Path) -> None:
    aside = data / "aside" / "0-d17de353"
    shutil.copytree(directory_of(data, "a"), aside)
    (segment,) = aside.glob("*.segment")
    with segment.open("r+b") as file:
        file.seek(DATA_START + 80)
        file.write(b"damaged")
    assert cli("log", "verify", str(data)).code == exits.OK
    assert cli("log", "verify", str(aside)).code == cli("log", "verify", str(aside.parent)).code == exits.DAMAGED


def test_directories_that_changed_places_are_said_by_both(cli: Cli, data: Path) -> None:
    a, b = directory_of(data, "a"), directory_of(data, "b")
    swap(a, b)
    found = cli("log", "verify", str(data))
    assert found.code == exits.DAMAGED
    assert f"which belongs in {a}; the log of {b} is" in found.text
    assert f"which belongs in {b}; the log of {a} is" in found.text
    assert cli("log", "repair", str(data)).code == exits.DAMAGED
    for topic in ("a", "b"):
        with pytest.raises(penstock.errors.Unavailable, match="does not hold its own log: it is of log"):
            values(data, topic)
    swap(a, b)
    assert cli("log", "verify", str(data)).code == exits.OK
    assert (values(data, "a"), values(data, "b")) == ([b"a"], [b"b"])


def swap(a: Path, b: Path) -> None:
    a.rename(a.with_name("away"))
    b.rename(a)
    a.with_name("away").rename(b)


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_catalogue_that_is_gone_is_damage(cli: Cli, data: Path, command: str) -> None:
    shutil.rmtree(data / "metadata")
    found = cli("log", command, str(data))
    assert found.code == exits.DAMAGED
    assert f"{data} cannot be opened: {data}/metadata is gone" in found.text
    assert "restore it from a copy" in found.text
    problem = cli("log", command, str(data), "--json").lines[-1]
    assert (problem["path"], problem["ok"]) == (str(data), False)


def node_is_a_directory(data: Path) -> None:
    (data / "node.json").unlink()
    (data / "node.json").mkdir()


@pytest.mark.parametrize("command", ["verify", "repair"])
@pytest.mark.parametrize("lose", [node_is_a_directory, lambda data: (data / "node.json").unlink()])
def test_a_directory_without_its_node_is_a_problem(
    cli: Cli, data: Path, lose: Callable[[Path], object], command: str
) -> None:
    lose(data)
    found = cli("log", command, str(data))
    assert found.code == exits.FAILED
    assert f"{data} cannot be opened: {data}" in found.text
    assert "node.json" in found.text
    assert "restore it from a copy" in found.text


def test_what_stands_in_place_of_files_is_named_with_the_way_out(cli: Cli, data: Path) -> None:
    log = directory_of(data, "a")
    (log / "accepted").mkdir()
    (data / "promises").unlink()
    (data / "promises").mkdir()
    found = cli("log", "verify", str(data))
    assert found.code == exits.DAMAGED
    assert f"{log}/accepted: a directory, a link or a socket where a file belongs; a repair sets it aside" in found.text
    assert f"{data}/promises is no file: move it away" in found.text
    planned = cli("log", "repair", str(data), "--dry-run")
    assert f"would set {log}/accepted aside as {log}/accepted.lost" in planned.text
    assert (log / "accepted").is_dir()


@pytest.mark.parametrize("garbage", [False, True])
def test_a_catalogue_that_cannot_be_repaired_is_left_and_the_others_are(cli: Cli, data: Path, garbage: bool) -> None:
    (segment,) = (data / "metadata").glob("*.segment")
    if garbage:
        segment.write_bytes(b"G" * segment.stat().st_size)
        for path in (data / "metadata").glob("snapshot-*"):
            path.unlink()
    else:
        segment.unlink()
        segment.mkdir()
    index = directory_of(data, "a") / segment.with_suffix(".index").name
    index.unlink()
    before = sorted((data / "metadata").iterdir())
    planned = cli("log", "repair", str(data), "--accept-loss", "--dry-run")
    found = cli("log", "repair", str(data), "--accept-loss")
    assert (planned.code, found.code) == (exits.DAMAGED, exits.DAMAGED)
    assert "nothing in" in found.text if garbage else "nothing is left of the log in" in found.text
    assert f"{data}/metadata cannot be " in found.text
    assert "restore it from a copy" in found.text
    assert index.exists()
    assert sorted(path for path in (data / "metadata").iterdir() if path.name != "lock") == [
        path for path in before if path.name != "lock"
    ]


def test_logs_of_a_clusters_member_are_not_repaired(tmp_path: Path, cli: Cli) -> None:
    data = tmp_path / "member"
    data.mkdir()
    take(Files(), str(data), None, ClusterConfig(name="c", node=2, peers={1: "ipc:///a", 2: "ipc:///b", 3: "ipc:///c"}))
    log = next(data.glob("**/*.segment")).parent
    for place in (data, log):
        found = cli("log", "repair", str(place), "--accept-loss")
        assert (found.code, found.out) == (exits.FAILED, b"")
        assert "of node 2 of cluster c" in found.err
    assert cli("log", "verify", str(data)).code == exits.OK
