"""What the doctor finds, check by check, and what the command makes of it."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from penstock import Key, checkup
from penstock.broker import access_file
from penstock.broker.errors import NotLeader
from penstock.cli import exits
from penstock.storage import poison
from penstock.storage.board import boot_id
from penstock.storage.errors import Error
from penstock.storage.files import Files
from support.certificates import make_certificate

from .conftest import Cli, Served


def states(findings) -> list[str]:
    return [each.state for each in findings]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


def test_versions_are_named():
    (found,) = checkup.versions()
    assert found.state == "ok"
    assert all(name in found.says for name in ("penstock", "pyzmq", "Python", "Linux"))


def test_a_directory_that_is_not_there_or_new_is_fine(data):
    assert states(checkup.directory(data / "none")) == ["ok"]
    assert states(checkup.directory(data))[0] == "ok"


def test_a_directory_that_cannot_be_made_is_bad(data, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (found,) = checkup.directory(tmp_path / "file" / "none" / "data")
    assert (found.state, found.says.endswith(f"{tmp_path}/file is no directory")) == ("bad", True)
    for denied, state in ((os.R_OK, "ok"), (os.W_OK, "bad"), (os.X_OK, "bad")):
        monkeypatch.setattr(os, "access", lambda path, mode, denied=denied: path == data and not mode & denied)
        (found,) = checkup.directory(data / "none" / "data")
        assert (found.state, f"{data} cannot be written" in found.says) == (state, state == "bad")


def test_a_directory_of_another_program_is_bad(data):
    (data / "strange").touch()
    (found,) = checkup.directory(data)
    assert (found.state, "strange" in found.says) == ("bad", True)


@pytest.mark.parametrize(("kind", "word"), [("tmpfs", "reboot"), ("nfs4", "locks")])
def test_file_systems_that_do_not_keep_their_promise(data, monkeypatch, kind, word):
    monkeypatch.setattr(checkup, "_file_system", lambda path: kind)
    assert [(each.state, word in each.says) for each in checkup.directory(data)][1:] == [("warning", True)]


def test_the_file_system_of_a_path_is_the_innermost():
    assert checkup._file_system(Path("/proc/self")) == "proc"
    assert checkup._file_system(Path("/")) != "proc"


def test_who_may_read_the_data(data):
    assert states(checkup.permissions(data)) == ["ok"]
    data.chmod(0o701)
    assert states(checkup.permissions(data)) == ["warning"]
    assert states(checkup.permissions(data / "none")) == []


@pytest.mark.parametrize("kind", ["users", "keys"])
def test_files_of_users_and_keys_are_read_as_the_broker_reads_them(tmp_path, kind):
    file = tmp_path / kind

    def found():
        users, keys = ((str(file), ""), ()) if kind == "users" else ((), ("", str(file)))
        return list(checkup.credentials(users, keys))

    (missing,) = found()
    assert (missing.state, f"{file} cannot be read: No such file" in missing.says) == ("bad", True)
    assert ("penstock user add" if kind == "users" else "penstock key generate") in missing.advice
    if kind == "users":
        access_file.add_password(str(file), "ann", "x")
    else:
        Key.generate().write(file)
    for mode, state in ((0o600, "ok"), (0o400, "ok"), (0o700, "ok"), (0o640, "bad"), (0o604, "bad")):
        file.chmod(mode)
        assert states(found()) == [state], oct(mode)
    file.write_text("nonsense")
    file.chmod(0o600)
    assert states(found()) == ["bad"]


def test_a_file_that_two_settings_name_is_told_of_once(tmp_path):
    file = str(tmp_path / "users")
    access_file.add_password(file, "ann", "x")
    assert states(checkup.credentials((file, file), ("", ""))) == ["ok"]


def test_a_file_system_of_the_kernels_own_keeps_no_files():
    """Root may write there."""
    for place in (Path("/proc/penstock/data"), Path("/proc/self")):
        found = [*checkup.directory(place), *checkup.space(place)]
        assert [each.state for each in found] == ["bad"]
        assert "is on proc, which keeps no files" in found[0].says
        assert "--data" in found[0].advice


def test_data_of_another_user_are_bad(data, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: data.stat().st_uid + 1)
    assert states(checkup.permissions(data)) == ["bad"]
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert states(checkup.permissions(data)) == ["bad"]


@pytest.mark.parametrize(
    ("free", "total", "state"),
    [
        (checkup.NO_ROOM_BYTES - 1, 1 << 40, "bad"),
        (checkup.NO_ROOM_BYTES, 1 << 30, "warning"),
        (checkup.FREE_BYTES - 1, 1 << 30, "warning"),
        (checkup.FREE_BYTES, 1 << 30, "ok"),
        ((1 << 40) // 20 - 1, 1 << 40, "warning"),
        ((1 << 40) // 20 + 1, 1 << 40, "ok"),
    ],
)
def test_space_is_judged_by_bytes_and_share(data, monkeypatch, free, total, state):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free, total=total))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=1, f_files=0, f_favail=0))
    (found,) = checkup.space(data / "not" / "there")
    assert (found.state, found.kind, bool(found.advice)) == (state, "space", state != "ok")


def test_inodes_may_run_out_too(data, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 39, total=1 << 40))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=1, f_files=100, f_favail=4))
    assert "4 inodes" in list(checkup.space(data))[-1].says
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=1, f_files=100, f_favail=5))
    assert len(list(checkup.space(data))) == 1


def test_the_board_needs_room(data):
    free = shutil.disk_usage(data).free
    assert states(checkup.shared_memory(1, data)) == ["ok"]
    assert states(checkup.shared_memory(free * 2, data)) == ["bad"]
    assert states(checkup.shared_memory(1, data / "none")) == ["warning"]


def test_every_partition_needs_descriptors(data, monkeypatch):
    for number in range(3):
        (data / "topics" / "t" / str(number)).mkdir(parents=True)
    needed = 2 * 3 + checkup.FILES_BESIDE
    for hard, state in ((needed, "ok"), (needed - 1, "warning"), (resource.RLIM_INFINITY, "ok")):
        monkeypatch.setattr(resource, "getrlimit", lambda which, hard=hard: (0, hard))
        assert states(checkup.limits(data)) == [state]


def test_the_kernel_tells_of_its_clock(monkeypatch):
    for told, state in ((True, "ok"), (False, "warning")):
        monkeypatch.setattr(checkup, "clock_is_synchronised", lambda told=told: told)
        assert states(checkup.clock()) == [state]
    monkeypatch.undo()
    assert states(checkup.clock()) in (["ok"], ["warning"])


@pytest.mark.parametrize(("days", "state"), [(0.4, "warning"), (1.1, "warning"), (13.9, "warning"), (14.1, "ok")])
def test_a_certificate_that_ends_soon_is_told_of(tmp_path, days, state):
    (found,) = checkup.certificate(*make_certificate(tmp_path, days))
    left = "1 more day" if round(days) == 1 else f"{days:.0f} more days"
    assert (found.state, found.says.endswith(f"for {left}"), bool(found.advice)) == (state, True, state != "ok")


def test_a_certificate_that_clients_refuse_is_bad(tmp_path):
    (tmp_path / "other").mkdir()
    path, key = make_certificate(tmp_path, -0.1)
    (found,) = checkup.certificate(path, key)
    assert (found.state, found.says) == ("bad", f"clients refuse {path}: certificate has expired")
    for wrong in (make_certificate(tmp_path / "other")[1], "", str(tmp_path / "none")):
        assert states(checkup.certificate(path, wrong)) == ["bad"]
    assert states(checkup.certificate("", "")) == []
    path, key = make_certificate(tmp_path)
    os.chmod(key, 0o644)
    (found,) = checkup.certificate(path, key)
    assert (found.state, f"chmod o= {key}" in found.says) == ("bad", True)


def test_what_failed_syncs_left_is_found(data):
    assert states(checkup.logs(data)) == ["ok"]
    log = data / "topics" / "t" / "0"
    log.mkdir(parents=True)
    poison.write(Files(), str(log), "the sync failed", durable=0)
    (found,) = checkup.logs(data)
    assert (found.state, found.kind, "the sync failed" in found.says) == ("bad", "damage", True)
    (data / "doubts").write_text("[]")
    assert states(checkup.logs(data)) == ["bad", "warning"]


def test_a_member_that_has_lost_records_is_found(data):
    (data / "damaged").write_text('{"reason": "batch 7 cannot be read"}')
    (found,) = checkup.logs(data)
    assert (found.state, found.kind, "has lost records" in found.says) == ("bad", "damage", True)


def test_a_brokers_counters_are_judged():
    for topics, says in ((1, "serves 1 topic"), (3, "serves 3 topics")):
        assert [(each.state, each.says) for each in checkup.of_stats({"topics": topics})] == [("ok", says)]
    found = list(checkup.of_stats({"partitions.damaged": 2, "outbox.stuck": 1, "outbox.stuck_because": "no topic"}))
    assert [(each.state, each.kind) for each in found] == [("bad", "damage"), ("bad", "other")]
    assert [each.says for each in found] == ["damaged partitions: 2", "copies to other partitions that cannot go on: 1"]
    assert found[1].advice == "no topic"
    (found,) = checkup.of_stats({"barriers.stuck": 1, "barriers.stuck_because": "no topic"})
    assert (found.state, found.kind, found.advice) == ("bad", "other", "no topic")
    assert states(checkup.of_stats({"connections.refused": 1})) == ["warning"]
    (found,) = checkup.of_stats({"lending.refused": 2})
    assert (found.state, found.says) == ("warning", "producers that appended by themselves what could not stand: 2")


def test_what_cannot_be_looked_at_is_a_warning(monkeypatch):
    def refuse():
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkup, "versions", refuse)
    config = SimpleNamespace(data="/nowhere", users="", board_rows=8, mapped_readers=8)
    assert next(checkup.examine(config)).state == "warning"  # type: ignore[arg-type]


def doctor(cli: Cli, *more: str):
    result = cli("doctor", "--json", *more)
    return result.code, result.lines


def test_a_running_broker_is_asked(on: Cli, broker: Served):
    code, found = doctor(on, "--set", f"data={broker.ready['data']}")
    assert {each["check"] for each in found} >= {"versions", "data", "space", "limits", "clock", "logs", "broker"}
    assert [each["state"] for each in found if each["check"] == "broker"] == ["ok"]
    assert (code == exits.OK) == all(each["state"] != "bad" for each in found)
    text = on("doctor", "--set", f"data={broker.ready['data']}").text
    assert f"at {broker.unix}: serves" in text


def test_the_directory_can_be_named_as_for_other_commands(cli: Cli, tmp_path):
    (tmp_path / "notes.txt").write_text("not a broker's")
    _, found = doctor(cli, "--data", str(tmp_path), "--url", f"unix://{tmp_path}/none")
    assert str(tmp_path) in next(each["says"] for each in found if each["check"] == "data")
    assert doctor(cli, "--set", f"data={tmp_path}", "--url", f"unix://{tmp_path}/none")[1][1] == found[1]


def test_the_broker_of_the_directory_is_asked_and_no_other(on: Cli, broker: Served, tmp_path):
    """`on` names the broker of the tests by PENSTOCK_URL."""

    def says(*more: str) -> tuple[str, str]:
        (found,) = (each for each in doctor(on, *more)[1] if each["check"] == "broker")
        return found["state"], found["says"]

    served = ("ok", f"at {broker.unix}: serves")
    other = tmp_path / "other"
    assert says("--data", str(other)) == ("warning", f"no broker serves {other}")
    other.mkdir(mode=0o700)
    lock = other / "lock"
    holders = (
        {"pid": pid, "endpoint": broker.unix, "boot": boot, "local": broker.unix}
        for pid, boot in ((1, "0"), (0, f"{boot_id():032x}"))
    )
    for content in ("", '{"pid":', *map(json.dumps, holders)):
        lock.write_text(content)
        assert says("--data", str(other)) == ("warning", f"no broker serves {other}")
    for named in (("--data", broker.ready["data"]), ("--data", str(other), "--url", broker.unix), ()):
        state, said = says(*named)
        assert (state, said[: len(served[1])]) == served


def test_without_a_broker_that_is_a_warning(cli: Cli, tmp_path):
    _, found = doctor(cli, "--url", f"unix://{tmp_path}/none")
    assert [(each["state"], "penstock serve" in each["advice"]) for each in found if each["check"] == "broker"] == [
        ("warning", True)
    ]


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        (["other", "space", "damage"], exits.DAMAGED),
        (["other", "space"], exits.FULL),
        (["other"], exits.FAILED),
        ([], 0),
    ],
)
def test_the_exit_code_is_that_of_the_worst(cli: Cli, monkeypatch, kinds, code):
    bad = [checkup.Finding("x", "bad", "it is bad", "mend it", kind) for kind in kinds]
    monkeypatch.setattr("penstock.cli.doctor.examine", lambda config: bad)
    monkeypatch.setattr("penstock.cli.doctor._broker", lambda session: [])
    result = cli("doctor")
    assert result.code == code
    assert ("mend it" in result.text) == bool(kinds)


def test_a_node_that_follows_is_well(cli: Cli, monkeypatch):
    def follows(self):
        raise NotLeader("another one leads")

    asked = []
    monkeypatch.setattr("penstock.cli.options.Invocation.connect", follows)
    stats = {"cluster.leads": 0}
    monkeypatch.setattr("penstock.clients.cluster.node_stats", lambda url, timeout_s: asked.append(url) or stats)
    _, found = doctor(cli, "--url", "tcp://127.0.0.1:7")
    (broker,) = (each for each in found if each["check"] == "broker")
    assert (broker["state"], broker["says"]) == ("ok", "at tcp://127.0.0.1:7: follows the leader of its cluster")
    assert asked == ["tcp://127.0.0.1:7"]
    stats["scrub.rotten"] = 2
    assert doctor(cli, "--url", "tcp://127.0.0.1:7")[0] == exits.DAMAGED


def test_an_error_of_the_broker_is_shown(cli: Cli, monkeypatch):
    monkeypatch.setattr("penstock.cli.doctor.examine", lambda config: [])

    def fail(self):
        raise Error("it is ill")

    monkeypatch.setattr("penstock.cli.options.Invocation.connect", fail)
    assert "it is ill" in cli("doctor").text
