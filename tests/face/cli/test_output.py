"""Output whose reader has left, `penstock ... | head -1`, and output of hostile text."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
from penstock import Log
from penstock.cli import exits
from penstock.cli.app import main
from penstock.cli.output import Output, complain
from penstock.cli.standard_streams import unread_is_fine

from ..conftest import Cli


@contextmanager
def without_a_reader() -> Iterator[TextIO]:
    """A pipe to write to, whose other end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        yield stream


def ended(command: Sequence[str]) -> object:
    """The exit code of the process that `penstock COMMAND` would be."""
    with pytest.raises(SystemExit) as end:
        main(command)
    return end.value.code


def test_a_reader_that_left_is_no_error_of_any_command_that_prints(
    on: Cli, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    id_, directory = f"{topic}-0-0", str(tmp_path / "log")
    with Log(directory) as log:
        log.append([b"x"])
    for command in (
        ("topic", "create", topic), ("queue", "set", topic, "max_attempts=1"), ("task", "enqueue", topic, "a"),
        ("task", "lease", topic), ("consume", topic, "--group", "g", "--until-end"),
    ):  # fmt: skip
        assert on(*command).code == exits.OK
    commands = [
        ("topic", "list"), ("topic", "show", topic), ("topic", "alter", topic, "--retention", "7d"),
        ("group", "list"), ("group", "show", topic, "g"), ("queue", "list"), ("queue", "stats", topic),
        ("dead", "list", topic), ("task", "status", id_), ("task", "why", id_), ("schedule", "list", topic),
        ("stats",), ("config", "show"), ("consume", topic, "--until-end"), ("log", "verify", directory),
    ]  # fmt: skip
    others = [("log", "dump", directory), ("--help",), ("topic", "--help")]
    for command in [*commands, *((*command, "--json") for command in commands), *others]:
        with monkeypatch.context() as patch, without_a_reader() as pipe:
            patch.setattr(sys, "stdout", pipe)
            assert ended(command) == exits.OK, command
        assert capfd.readouterr().err == "", command


def test_an_error_that_nobody_reads_keeps_its_exit_code(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, without_a_reader() as pipe:
        patch.setattr(sys, "stderr", pipe)
        assert ended(["topic", "list", "--url", "gopher://x"]) == exits.USAGE
        complain("usage", "said again", as_json=False)


def test_a_note_that_nobody_reads_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, without_a_reader() as pipe:
        patch.setattr(sys, "stderr", pipe)
        Output(as_json=False).note("first")
        Output(as_json=False).note("second")


def test_a_service_goes_on_when_nobody_reads_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    for as_json in (False, True):
        with monkeypatch.context() as patch, without_a_reader() as pipe:
            patch.setattr(sys, "stdout", pipe)
            with unread_is_fine():
                Output(as_json=as_json).say("ready", "it serves")
            Output(as_json=as_json).say("ready", "and prints into the void")


def test_text_of_other_programs_is_shown_in_one_printable_line(capfd: pytest.CaptureFixture[str]) -> None:
    output, hostile = Output(as_json=False), "a\\[b]\nforged\x1b[2J:tada:\u202e"
    shown = "a\\[b]\\nforged\\x1b[2J:tada:\\u202e"
    output.say("event", hostile)
    output.fields([("reason", hostile)])
    output.table(["reason"], [[hostile]])
    output.note(hostile)
    complain("code", hostile, as_json=False)
    told = capfd.readouterr()
    assert [line.rstrip() for line in told.out.splitlines()] == [shown, f"reason   {shown}", "reason", shown]
    assert told.err.splitlines() == [f"penstock: {shown}", "penstock: " + shown.replace("\\n", " ")]


def test_a_directory_of_a_hostile_name_is_told_of_in_one_line(cli: Cli, tmp_path: Path) -> None:
    directory = tmp_path / "a\nforged\x1b[2J"
    with Log(str(directory)) as log:
        log.append([b"x"])
    done = cli("log", "verify", str(directory))
    assert done.code == exits.OK
    assert all(line.isprintable() for line in done.out.decode().splitlines())
    assert b"forged" in done.out
    assert b"\nforged" not in done.out
