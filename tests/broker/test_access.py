"""A broker with a file of users and grants: who its peers are, and how it hears of changes."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import ServeConfig, access_file
from penstock.broker.access import LOOK_S, BrokerAccess
from penstock.broker.errors import InvalidUsers
from penstock.broker.rights import Grant, Principal, authorize
from penstock.clients import connect
from penstock.clients.tasks.app import Tasks
from penstock.errors import Forbidden
from penstock.transport import messages as m
from support.processes import Serving
from support.raw_client import RawClient

OTHER = os.geteuid() + 1000
READS = Grant(False, frozenset(["read"]), "topic:t")
ALL = Grant(False, frozenset(["see", "read", "write", "manage"]), "*")


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "users")
    access_file.set_uid(made, "ann", OTHER)
    return made


def reads(principal: Principal) -> bool:
    return authorize(principal, "read", "topic:t")


def test_a_peer_is_the_user_of_its_uid_and_the_owner_may_do_everything(path: str):
    access_file.add_grant(path, "ann", READS)
    access = BrokerAccess(path)
    assert (access.of_peer(f"uid:{OTHER}").name, reads(access.of_peer(f"uid:{OTHER}"))) == ("ann", True)
    assert not authorize(access.of_peer(f"uid:{OTHER}"), "write", "topic:t")
    for uid in (os.geteuid(), 0):
        assert (access.of_peer(f"uid:{uid}").name, reads(access.of_peer(f"uid:{uid}"))) == (f"uid:{uid}", True)
    for stranger in (f"uid:{OTHER + 1}", "key:", "key:00"):
        assert (access.of_peer(stranger).name, reads(access.of_peer(stranger))) == (stranger, False)


def test_a_grant_of_all_is_for_users_of_the_file_alone(path: str):
    access_file.add_grant(path, "*", READS)
    access = BrokerAccess(path)
    assert reads(access.of_peer(f"uid:{OTHER}"))
    assert not reads(access.of_peer(f"uid:{OTHER + 1}"))


def test_the_owner_with_a_line_is_a_user_like_any_other(path: str):
    access_file.set_uid(path, "ann", os.geteuid())
    assert not reads(BrokerAccess(path).of_peer(f"uid:{os.geteuid()}"))


def test_a_change_is_seen_once_a_second_and_a_bad_file_changes_nothing(path: str, caplog: pytest.LogCaptureFixture):
    access = BrokerAccess(path)
    assert not access.refresh(1.0)
    access_file.add_grant(path, "ann", READS)
    assert not access.refresh(1.0 + LOOK_S / 2)
    assert not reads(access.of_peer(f"uid:{OTHER}"))
    assert access.refresh(1.0 + LOOK_S)
    assert reads(access.of_peer(f"uid:{OTHER}"))
    os.chmod(path, 0o644)
    assert not access.refresh(10.0)
    (told,) = caplog.messages
    assert "chmod 600" in told
    assert not access.refresh(20.0)
    assert caplog.messages == [told], "once"
    assert reads(access.of_peer(f"uid:{OTHER}"))
    os.rename(path, f"{path}.away")
    for now_s in (30.0, 40.0):
        assert not access.refresh(now_s)
    assert reads(access.of_peer(f"uid:{OTHER}"))
    (_, away) = caplog.messages
    assert "No such file" in away
    os.chmod(f"{path}.away", 0o600)
    os.rename(f"{path}.away", path)
    access_file.delete_grant(path, "ann", READS)
    assert access.refresh(50.0)
    assert not reads(access.of_peer(f"uid:{OTHER}"))


def test_a_grant_is_taken_back_even_if_the_file_could_not_be_read_at_first(path: str, monkeypatch: pytest.MonkeyPatch):
    access_file.add_grant(path, "ann", READS)
    access = BrokerAccess(path)
    access_file.delete_grant(path, "ann", READS)
    with monkeypatch.context() as patched:

        def no_descriptors(*arguments: object, **options: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patched.setattr("builtins.open", no_descriptors)
        assert not access.refresh(1.0)
    assert access.refresh(10.0)
    assert not reads(access.of_peer(f"uid:{OTHER}"))


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[Serving, str]]:
    """A broker to which this process is the user ann."""
    path = str(tmp_path / "users")
    access_file.set_uid(path, "ann", os.geteuid())
    access_file.add_grant(path, "ann", ALL)
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/s",), board_rows=32, access=path)
    made = Serving(config)
    yield made, path
    made.close()


def until(is_so: Callable[[], bool]) -> None:
    """Ask again and again."""
    deadline = time.monotonic() + 20.0
    while not is_so():
        assert time.monotonic() < deadline


def code(client: RawClient, make: Any) -> str:
    return getattr(client.ask(make)[0], "code", "")


def test_a_running_broker_takes_grants_back_and_ends_what_they_allowed(serving: tuple[Serving, str], tmp_path: Path):
    running, path = serving
    url = running.ready["listen"][0]
    assert os.stat(f"{tmp_path}/s").st_mode & 0o777 == 0o666
    with connect(url) as client, RawClient(url) as raw:
        topic = client.create_topic("t")
        id_ = bytes.fromhex(topic.id)
        with client.producer("t") as producer:
            producer.send(b"x")
        consumer = client.consumer("t", start="earliest", delivery="control")
        assert [record.value for record in consumer.fetch(wait=20.0)] == [b"x"]
        access_file.delete_grant(path, "ann", ALL)
        access_file.add_grant(path, "ann", Grant(False, frozenset(["see"]), "topic:t"))
        until(lambda: code(raw, lambda request: m.Fetch(request, id_, 0, 0, -1, 1, 0)) == "forbidden")
        assert code(raw, lambda request: m.ListTopics(request, ["t"])) == ""
        with pytest.raises(Forbidden, match="user ann may not"):
            client.create_topic("u")
        with pytest.raises(Forbidden):
            list(iter(lambda: consumer.fetch(wait=20.0), None))
        access_file.add_grant(path, "ann", ALL)
        until(lambda: code(raw, lambda request: m.Fetch(request, id_, 0, 0, -1, 1, 0)) == "")
        consumer.close()
    assert "forbidden requests: " in running.errors()
    assert "user ann may not read topic:t" in running.errors()


@pytest.mark.parametrize("is_there", [True, False])
def test_who_only_sends_tasks_needs_to_see_the_queue(serving: tuple[Serving, str], is_there: bool):
    running, path = serving
    url = running.ready["listen"][0]
    with connect(url) as client:
        client.create_topic("jobs")
        if is_there:
            client.set_queue("jobs", "tasks")
    with Tasks(url) as app:
        job = app.task(queue="jobs")(len)
        access_file.delete_grant(path, "ann", ALL)
        access_file.add_grant(path, "ann", Grant(False, frozenset(["write"]), "topic:jobs"))
        with connect(url) as client:
            until(lambda: forbids(lambda: client.create_topic("other", if_missing=True)))
        with pytest.raises(Forbidden, match=r"may not manage group:jobs/tasks.*`see` on group:jobs/tasks is enough"):
            job.send("x")
        access_file.add_grant(path, "ann", Grant(False, frozenset(["see"]), "group:jobs/tasks"))
        if is_there:
            until(lambda: not forbids(lambda: job.send("x")))
        else:
            assert forbids(lambda: job.send("x"))


def forbids(what: Callable[[], object]) -> bool:
    try:
        what()
    except Forbidden:
        return True
    return False


def test_a_broker_does_not_start_with_a_file_that_it_cannot_use(tmp_path: Path):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/s",), access=str(tmp_path / "none"))
    made = Serving(config, wait=False)
    try:
        assert made.process.wait(20.0) == 1
        assert "none cannot be read" in made.errors()
    finally:
        made.close()
    with pytest.raises(InvalidUsers):
        BrokerAccess(config.access)


def test_a_change_that_cannot_have_its_turn_says_who_is_in_the_way(tmp_path, monkeypatch):
    """Any user who may list the directory can lock it."""
    path = str(tmp_path / "access")
    monkeypatch.setattr(access_file, "TURN_S", 0.0)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_SH)
    with pytest.raises(InvalidUsers, match=f"another program holds a lock of {tmp_path}"):
        access_file.add_password(path, "ann", "x")
    os.close(directory)
    assert access_file.add_password(path, "ann", "x")
