"""The command line as a whole: help, mistakes, exit codes, settings."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from penstock.cli import app, exits
from penstock.cli.app import COMMANDS
from penstock.cli.formats import entries
from penstock.clients.arguments.quantities import event_time
from penstock.config import load
from penstock.storage.errors import Error, way_to_install
from penstock.transport import ipc_paths

from .conftest import Cli


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_itself(cli: Cli, name: str) -> None:
    found = cli(name, "--help")
    assert found.code == exits.OK
    assert found.text.startswith(f"Usage: penstock {name}")


@pytest.mark.parametrize("extra", ["spark", "shell"])
def test_the_help_says_how_to_install_an_extra(cli: Cli, extra: str) -> None:
    assert way_to_install(extra) in " ".join(cli(extra, "--help").text.split())


def test_the_help_of_produce_shows_a_record_that_can_be_sent(cli: Cli) -> None:
    (shown,) = re.findall(r'\{"value".*\}', cli("produce", "--help").text)
    (batch,) = entries("json", iter([shown.encode()]), name="help", key_separator=b"")
    assert event_time(batch[0].timestamp) == batch[0].timestamp


def test_the_help_of_config_says_where_a_setting_may_stand(cli: Cli, tmp_path: Path) -> None:
    shown = cli("config", "show", "--help").text
    (variable,) = re.findall(r"PENSTOCK_DRAIN_S=(\S+)", shown)
    (line,) = re.findall(r"drain_s = .*", shown)
    place = tmp_path / re.findall(r"~/(\S+)", shown)[0]
    place.parent.mkdir(parents=True)
    place.write_text(line)
    home = {"HOME": str(tmp_path)}
    assert load({}, environ=home).source("drain_s") == f"file {place}"
    assert load({}, environ=home | {"PENSTOCK_DRAIN_S": variable}).source("drain_s") == "environment PENSTOCK_DRAIN_S"


def test_the_help_lists_every_command(cli: Cli) -> None:
    assert all(f"\n  {name} " in cli("--help").text for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topc"], "No such command 'topc': did you mean 'topic'? (see penstock --help)"),
        (["serv"], "did you mean 'serve'?"),
        (["nothing-like-it"], "No such command 'nothing-like-it' (see penstock --help)"),
        (["topic", "create"], "Missing argument 'NAME' (see penstock topic create --help)"),
        (["topic", "list", "--ulr", "x"], "--ulr"),
        (["topic", "create", "t", "--retention", "soon"], "'soon' is not a time"),
        (["topic", "create", "t", "--retention", "7"], "a number without a unit: write 7s for seconds, or 7d for days"),
        (["stats", "--every", "5"], "write 5s"),
        (["queue", "pause", "t", "--for", "10"], "write 10s"),
        (["bench", "latency", "--rate", "nan"], "nan is not a number of times a second"),
        (["dead", "redrive", "t", "--all", "--rate", "-1"], "not in the range"),
        (["consume", "t", "--group", ""], "--group is empty"),
        (["serve", "--data", ""], "data = '' cannot be used"),
        (["topic", "create", "t", "--segment-bytes", "big"], "'big' is not a size"),
        (["consume", "t", "--from", "tomorrow"], "'tomorrow' is no position"),
        (["consume", "t", "--group", "g", "--partition", "0"], "--partition does not go with --group"),
        (["produce", "t", "--header", "x"], "'x' is not NAME=VALUE"),
        (["produce", "t", "--format", "json", "--key-separator", ":"], "goes with --format lines"),
        (["group", "reset", "t", "g", "--to", "earliest", "--partition", "0"], "--partition goes with an offset"),
        (["serve", "--set", "drain=1"], "unknown key 'drain': did you mean 'drain_s'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(cli: Cli, arguments: list[str], says: str) -> None:
    found = cli(*arguments)
    assert (found.code, found.out) == (exits.USAGE, b"")
    assert found.err.startswith("penstock: ")
    assert says in found.err
    assert found.err.count("\n") == 1


def test_under_json_an_error_is_json_on_standard_error(cli: Cli) -> None:
    found = cli("topic", "create", "--json")
    assert (found.code, found.out) == (exits.USAGE, b"")
    assert json.loads(found.err)["error"] == "usage"
    found = cli("topic", "list", "--url", "unix:///nowhere/at/all", "--json")
    assert found.code == exits.UNAVAILABLE
    assert json.loads(found.err)["error"] == "no_broker"


def test_without_a_broker_one_line_says_where_it_was_looked_for(cli: Cli, tmp_path: Path) -> None:
    found = cli("topic", "list")
    assert found.code == exits.UNAVAILABLE
    assert found.err.startswith(f"penstock: no broker listens on unix://{tmp_path}/home/penstock/broker.sock: ")
    assert cli("topic", "list", "--url", "gopher://x").code == exits.USAGE


def test_a_broker_that_died_is_waited_for_over_a_unix_socket_as_over_tcp(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TIMEOUT_S", "50ms")
    with socket.socket(socket.AF_UNIX) as left, socket.create_server(("127.0.0.1", 0)) as ended:
        left.bind(f"{tmp_path}/left")
        port = ended.getsockname()[1]
    (tmp_path / "file").touch()
    for url in (f"unix://{tmp_path}/left", f"tcp://127.0.0.1:{port}"):
        found = cli("topic", "list", "--url", url, "--json")
        assert (found.code, json.loads(found.err)["error"]) == (exits.UNAVAILABLE, "timed_out"), url
    found = cli("topic", "list", "--url", f"unix://{tmp_path}/file", "--json")
    assert json.loads(found.err)["error"] == "no_broker"


def test_what_the_system_refuses_is_one_line_too(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cli("topic", "list", "--url", f"file://{tmp_path}/{'x' * 300}")
    assert (found.code, found.err.count("\n")) == (exits.FAILED, 1)
    assert "file name too long" in found.err.lower()

    def refuse(path: str) -> bool:
        raise PermissionError

    monkeypatch.setattr(ipc_paths, "is_live", refuse)
    found = cli("topic", "list")
    assert found.code == exits.UNAVAILABLE
    assert "belongs to another user" in found.err


def test_a_socket_directory_that_others_can_write_is_not_trusted(cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "home" / "penstock"
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    for command in (["topic", "list"], ["serve"]):
        found = cli(*command)
        assert found.code == exits.USAGE
        assert found.err.startswith(f"penstock: {directory} is not a directory that only you can write")


def test_every_error_class_has_an_exit_code_and_no_number_is_of_an_unknown_one() -> None:
    import penstock.clients
    import penstock.demo.errors
    import penstock.errors
    import penstock.gateway.errors

    known = {penstock.errors.UnknownTopic.code, *Error.by_code}
    assert set(exits._CODES) <= known | {"no_broker", "no_log", "invalid_config", "invalid_input", "unknown_counter"}
    assert exits.of(penstock.errors.UnknownTopic("x")) == exits.NOT_FOUND
    assert exits.of(penstock.errors.Corrupt("x")) == exits.DAMAGED
    assert exits.of(penstock.errors.Fenced("x")) == exits.FAILED
    assert exits.of(penstock.errors.TimedOut("x")) == exits.UNAVAILABLE
    assert exits.of(penstock.errors.StillFull("x")) == exits.FULL


def test_config_show_says_value_and_source_of_everything(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('group_expiry_s = "1d"')
    found = cli("config", "show", "--json", "--config", str(path), "--set", "drain_s=5s").lines
    by_name = {line["name"]: line for line in found}
    assert by_name["drain_s"]["value"] == 5.0
    assert by_name["drain_s"]["source"] == "flag --set drain_s"
    assert by_name["group_expiry_s"]["source"] == f"file {path}"
    assert by_name["data"] == {
        "name": "data",
        "value": f"{tmp_path}/home/penstock",
        "source": "default",
        "about": "The broker's data directory; made when missing.",
        "unit": "",
    }


def test_config_show_is_a_table_for_people(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_MAX_FRAME_BYTES", "1MB")
    monkeypatch.setenv("PENSTOCK_LISEN", "x")
    found = cli("config", "show")
    row = next(line for line in found.text.splitlines() if line.startswith("max_frame_bytes"))
    assert row.split()[1:5] == ["1", "MB", "environment", "PENSTOCK_MAX_FRAME_BYTES"]
    assert "the variable PENSTOCK_LISEN is no setting: did you mean PENSTOCK_LISTEN?" in found.err


def test_a_wrong_key_in_the_file_stops_every_command(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('urll = "x"')
    for command in (["config", "show"], ["topic", "list"], ["serve"]):
        found = cli(*command, "--config", str(path))
        assert found.code == exits.USAGE
        assert found.err == f"penstock: {path}: unknown key 'urll': did you mean 'url'?\n"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_what_a_process_has_too_little_of_has_its_exit_code_and_its_files_a_way_out(code, monkeypatch, capsys):
    def fail(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(app.penstock, "make_context", fail)
    assert app.run(["version"]) == exits.FULL
    assert ("ulimit -n" in capsys.readouterr().err) == (code == errno.EMFILE)
