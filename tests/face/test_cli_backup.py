"""`penstock backup` and `restore`: beside a broker and without one, with everything that queues and groups know."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.cli import exits

from .conftest import Cli, Served, serve


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def served(data: Path) -> Iterator[Served]:
    found = serve(data, str(data.parent))
    try:
        yield found
    finally:
        found.stop()


def fill(url: str) -> None:
    """Records, a cursor, a schedule."""
    with penstock.connect(url) as client:
        client.create_topic("orders", partitions=3)
        client.set_queue("orders", "cook", max_attempts=1, lease_s=600)
        client.schedule("orders", "nightly", "0 3 * * *", b"sweep")
        with client.producer("orders") as producer:
            for number in range(60):
                producer.send(b"%d" % number, key=b"%d" % (number % 7), headers={"n": b"%d" % number})
        with client.consumer("orders", group="report", start="earliest") as consumer:
            consumer.fetch(max_records=20, wait=5.0)
            consumer.commit()


@contextmanager
def working(url: str) -> Iterator[None]:
    """Some tasks are done, some dead-lettered, and some leased."""
    with penstock.connect(url) as client, client.worker("orders", group="cook") as worker:
        tasks = worker.fetch(30, wait=5.0)
        worker.ack(tasks[:10])
        worker.reject(tasks[10:20], "no")
        yield


def state(url: str) -> dict[str, Any]:
    """All that a client can ask, but for names of members and times."""
    with penstock.connect(url) as client:
        queue, (group,) = client.queue("orders", "cook"), [each for each in client.groups() if each.name == "report"]
        return {
            "queue": (queue.settings, queue.ready, queue.in_flight, queue.retrying, queue.dead_lettered, queue.delayed),
            "records": [
                [(each.offset, each.key, each.value, each.headers) for each in client.read("orders", partition, 0)]
                for partition in range(3)
            ],
            "group": [(each.partition, each.cursor, each.end) for each in group.partitions],
            "schedules": [(each.name, each.spec, each.next) for each in client.schedules("orders")],
            "dead": [(each.id, each.reason, each.time) for each in client.dead_letters("orders", "cook")],
        }  # fmt: skip


def test_a_restored_broker_knows_what_the_original_knew(cli: Cli, served: Served, data: Path, tmp_path: Path) -> None:
    fill(served.unix)
    with working(served.unix):
        before = state(served.unix)
        assert all(before["queue"][2:5:2]), "some are leased, some dead"
        made = cli("backup", str(tmp_path / "b"), "--data", str(data), "--json")
    assert (made.code, made.lines[0]["left_out"], made.lines[0]["logs"] >= 4) == (exits.OK, {}, True)
    assert cli("restore", str(tmp_path / "b"), "--data", str(tmp_path / "r")).code == exits.OK
    again = serve(tmp_path / "r", str(tmp_path / "r"))
    try:
        assert state(again.unix) == before
    finally:
        again.stop()
    before = state(served.unix)
    served.stop()
    beside = cli("backup", str(tmp_path / "b"), "--data", str(data), "--keep", "1", "--json").lines[0]
    assert beside["copied_bytes"] < made.lines[0]["bytes"] + 100_000
    (listed,) = cli("restore", str(tmp_path / "b"), "--list", "--json").lines
    assert (listed["point"], listed["state"]) == (beside["point"], "whole")
    assert cli("restore", str(tmp_path / "b"), "--check").text == f"point {beside['point']} is whole\n"
    shutil.rmtree(data)
    assert cli("restore", str(tmp_path / "b"), "--data", str(data)).code == exits.OK
    again = serve(data, str(tmp_path))
    try:
        assert state(again.unix) == before
    finally:
        again.stop()


def test_a_partition_that_the_broker_cannot_open_is_left_out_and_said(cli: Cli, data: Path, tmp_path: Path) -> None:
    first = serve(data, str(tmp_path))
    fill(first.unix)
    first.stop()
    (log,) = (data / "topics").glob("*/1")
    for file in log.iterdir():
        file.unlink()
    for running in (False, True):
        served = serve(data, str(tmp_path)) if running else None
        try:
            made = cli("backup", str(tmp_path / "b"), "--data", str(data), "--json")
        finally:
            if served is not None:
                served.stop()
        assert (made.code, list(made.lines[0]["left_out"])) == (exits.DAMAGED, ["orders/1"]), made.err
        found = cli("restore", str(tmp_path / "b"), "--data", str(tmp_path / f"r{running}"))
        assert (found.code, "orders/1 was left out" in found.err) == (exits.DAMAGED, True)
        again = serve(tmp_path / f"r{running}", str(tmp_path))
        try:
            with penstock.connect(again.unix) as client:
                assert client.read("orders", 0, 0)
        finally:
            again.stop()


def test_what_cannot_be_backed_up_or_restored_is_refused_with_the_way_out(cli: Cli, served: Served, data: Path) -> None:
    inside = cli("backup", str(data / "b"), "--data", str(data))
    assert (inside.code, "lies inside the data directory" in inside.err) == (exits.USAGE, True)
    nothing = cli("backup", str(data.parent / "b"), "--data", str(data.parent / "none"))
    assert (nothing.code, "no data directory yet" in nothing.err) == (exits.FAILED, True)
    none = cli("restore", str(data.parent / "b"), "--data", str(data.parent / "r"))
    assert (none.code, "there is no backup in" in none.err) == (exits.NOT_FOUND, True)
    assert cli("backup", str(data.parent / "b"), "--data", str(data)).code == exits.OK
    used = cli("restore", str(data.parent / "b"), "--data", str(data))
    assert (used.code, "is not empty" in used.err) == (exits.FAILED, True)
    point = cli("restore", str(data.parent / "b"), "--point", "x", "--data", str(data.parent / "r"))
    assert (point.code, "has no point 'x'" in point.err) == (exits.USAGE, True)


def test_a_directory_that_a_program_has_open_names_it(cli: Cli, tmp_path: Path) -> None:
    with penstock.connect(f"file://{tmp_path}/data") as client:
        client.create_topic("t")
        found = cli("backup", str(tmp_path / "b"), "--data", str(tmp_path / "data"))
    assert (found.code, "open for writing in process" in found.err) == (exits.IN_USE, True)
    assert cli("backup", str(tmp_path / "b"), "--data", str(tmp_path / "data")).code == exits.OK


def test_files_of_users_come_with_the_data_for_their_owner_alone(cli: Cli, data: Path, tmp_path: Path) -> None:
    with penstock.connect(f"file://{data}") as client:
        client.create_topic("t")
    access, users, target = tmp_path / "access", tmp_path / "users", tmp_path / "b"
    (tmp_path / "secret").write_text("ann:uid:1001\n")
    (tmp_path / "secret").chmod(0o600)
    access.symlink_to("secret")  # as Kubernetes mounts one
    both = ("--access", str(access), "--users", str(users))
    made = cli("backup", str(target), "--data", str(data), *both, "--json")
    assert (made.code, list(made.lines[0]["left_out"])) == (exits.DAMAGED, ["users"]), "there is none yet"
    users.write_text("ann:hash\n")
    assert cli("backup", str(target), "--data", str(data), *both).code == exits.OK
    new = [str(tmp_path / name) for name in ("a2", "u2")]
    found = cli("restore", str(target), "--data", str(tmp_path / "r"), "--access", new[0], "--users", new[1])
    assert (found.code, found.err) == (exits.OK, "")
    assert [Path(path).read_text() for path in new] == ["ann:uid:1001\n", "ann:hash\n"]
    copies = list((target / "private").iterdir())
    assert [path.stat().st_mode & 0o777 for path in (*map(Path, new), *copies)] == [0o600] * 4
    assert [(target / name).stat().st_mode & 0o777 for name in (".", "private")] == [0o700] * 2
    again = cli("restore", str(target), "--data", str(tmp_path / "r2"), "--access", new[0])
    assert (again.code, "is there already" in again.err, (tmp_path / "r2").exists()) == (exits.USAGE, True, False)
    told = cli("restore", str(target), "--data", str(tmp_path / "r2"))
    assert (told.code, "--access FILE writes it" in told.err) == (exits.OK, True)
    assert cli("backup", str(target), "--data", str(data), "--keep", "1").code == exits.OK
    assert not list(target.glob("private/*")), "no point has them any more"
    none = cli("restore", str(target), "--data", str(tmp_path / "r3"), "--users", str(tmp_path / "u3"))
    assert (none.code, "made without the setting users" in none.err) == (exits.USAGE, True)


def test_a_damaged_file_of_users_is_found_before_anything_is_made(cli: Cli, data: Path, tmp_path: Path) -> None:
    with penstock.connect(f"file://{data}") as client:
        client.create_topic("t")
    (tmp_path / "access").write_text("ann:uid:1001\n")
    assert (
        cli("backup", str(tmp_path / "b"), "--data", str(data), "--access", str(tmp_path / "access")).code == exits.OK
    )
    (copy,) = (tmp_path / "b/private").iterdir()
    copy.write_text("eve:uid:1001\n")
    for how in (["--check"], ["--data", str(tmp_path / "r")]):
        found = cli("restore", str(tmp_path / "b"), *how)
        assert (found.code, "does not match its checksum" in found.err) == (exits.DAMAGED, True)
    assert not (tmp_path / "r").exists()


def test_copies_of_closed_directories_without_a_broker_are_backups(tmp_path: Path) -> None:
    with penstock.Log(tmp_path / "log") as log:
        log.append([b"one", b"two"])
    with penstock.Channel(tmp_path / "channel") as channel:
        for item in (b"done", b"one", b"two"):
            channel.put(item)
        channel.get(timeout=5)
        channel.task_done()
    with penstock.Spool(tmp_path / "spool") as spool:
        spool.send("orders", b"one")
    for name in ("log", "channel", "spool"):
        shutil.copytree(tmp_path / name, tmp_path / "copies" / name, symlinks=True)
        shutil.rmtree(tmp_path / name)
    with penstock.Log(tmp_path / "copies/log") as log:
        assert ([each.value for each in log], log.append([b"three"])) == ([b"one", b"two"], 2)
    with penstock.Channel(tmp_path / "copies/channel") as channel:
        assert [channel.get(timeout=5) for _ in range(2)] == [b"one", b"two"]
    address = f"mem://{tmp_path.name}"
    with penstock.connect(address) as client:
        client.create_topic("orders")
        with penstock.Spool(tmp_path / "copies/spool", to=address) as spool:
            spool.flush(timeout=30)
        assert [each.value for each in client.read("orders", 0, 0)] == [b"one"]
