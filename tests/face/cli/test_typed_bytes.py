"""Arguments that are not UTF-8: bytes where bytes are meant, one sentence where text is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import penstock
import pytest
from penstock.cli import app, exits
from penstock.cli.options import Assignment, Header

if TYPE_CHECKING:
    from face.conftest import Cli, Served

ODD = os.fsdecode(b"\xff")


def texts() -> Iterator[list[str]]:
    """Every command with each of its texts as the one that is not UTF-8."""
    for words, command in _commands([], app.penstock):
        given = [each for each in command.params if each.required and isinstance(each, click.Argument)]
        options = [[each.opts[0], "x"] for each in command.params if each.required and each not in given]
        rest = [word for option in options for word in option]
        for param in command.params:
            odd = "x=" + ODD if isinstance(param.type, Assignment) else ODD
            if not isinstance(param.type, click.types.StringParamType | Assignment) or isinstance(param.type, Header):
                continue
            if isinstance(param, click.Argument):
                others = [odd if each is param else "x" for each in given]
                yield [*words, *rest, *(others if param in given else [*others, odd])]
            else:
                yield [*words, *rest, param.opts[0], odd, *("x" for _ in given)]


def _commands(words: list[str], command: click.Command) -> Iterator[tuple[list[str], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands([*words, name], found)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("words", [*texts()], ids=ascii)
def test_text_that_is_not_utf8_is_one_sentence(cli: Cli, words: list[str], as_json: bool):
    result = cli(*words, *(["--json"] if as_json and words[:2] != ["log", "dump"] else []))
    assert result.code == exits.USAGE, result
    assert len(result.err.splitlines()) == 1


def test_keys_values_and_headers_are_the_bytes_that_were_typed(on: Cli, broker: Served, topic: str):
    on("topic", "create", topic)
    assert on("produce", topic, "--key", ODD, "--header", f"a={ODD}", stdin=b"v").code == 0
    assert on("produce", topic, "--key-separator", ODD, stdin=b"k\xffw").code == 0
    assert on("task", "enqueue", topic, ODD, "--key", ODD, "--dedup", ODD, "--header", f"b={ODD}").code == 0
    assert on("schedule", "set", topic, "s", "every 1h", ODD, "--key", ODD, "--header", f"c={ODD}").code == 0
    with penstock.connect(broker.unix) as client:
        found = [(each.key, each.value, dict(each.headers)) for each in client.read(topic, 0, 0)]
        (schedule,) = client.schedules(topic)
    assert found == [(b"\xff", b"v", {"a": b"\xff"}), (b"k", b"w", {}), (b"\xff", b"\xff", {"b": b"\xff"})]
    assert (schedule.value, schedule.key) == (b"\xff", b"\xff")


@pytest.mark.parametrize("command", ["verify", "dump", "repair"])
def test_logs_in_a_directory_that_is_not_utf8_are_read(cli: Cli, tmp_path: Path, command: str):
    path = str(tmp_path / ODD)
    assert cli("log", command, path).code == exits.NOT_FOUND
    with penstock.Log(path) as log:
        log.append([b"x"])
    assert cli("log", command, path).code == exits.OK
    if command == "dump":
        assert json.loads(cli("log", command, path).out.splitlines()[0])["path"] == path
    else:
        assert json.loads(cli("log", command, path, "--json").out)["path"] == path


def test_what_is_written_for_people_has_the_bytes_escaped(clean: None, tmp_path: Path):
    path = str(tmp_path / ODD)
    with penstock.Log(path) as log:
        log.append([b"x"])
    command = [sys.executable, "-m", "penstock", "log", "repair", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\udcff: nothing to repair" in done.stdout


def test_a_configuration_file_may_have_such_a_name(cli: Cli, tmp_path: Path):
    path = tmp_path / ODD
    assert cli("config", "show", "--config", str(path)).code == exits.USAGE
    path.write_text('drain_s = "7s"')
    assert cli("config", "show", "--config", str(path)).code == exits.OK
    assert cli("config", "show", "--json", "--config", str(path)).code == exits.OK
