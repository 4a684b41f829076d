"""`penstock shell`: from a pipe, on a terminal, and what Tab offers."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete
from penstock.cli import exits, shell
from penstock.cli.app import COMPLETION, penstock
from penstock.cli.line_editor import CommandCompleter, line_editor
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.face.conftest import Cli, Served


def test_lines_are_commands_and_an_error_ends_none_but_its_own(on: Cli, topic: str) -> None:
    lines = [
        f"topic create {topic}",
        "",
        "# a remark",
        "topic 'show",
        "no-such-command",
        f"task enqueue {topic} 'one task' # and a remark",
        f"consume {topic} --until-end",
        "exit",
        f"topic delete {topic} --yes",
    ]
    found = on("shell", stdin="\n".join(lines).encode())
    assert found.code == exits.OK
    assert "one task" in found.text
    assert "no closing quotation: topic 'show" in found.err
    assert "No such command 'no-such-command'" in found.err
    assert on("topic", "show", topic).code == exits.OK, "what stands behind `exit` does not run"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("topic show no-such-topic", exits.NOT_FOUND, "no-such-topic"),
        ("topic show 'a", exits.USAGE, "no closing quotation"),
        ("topic list", exits.OK, ""),
        ("shell", exits.USAGE, "exit ends it"),
        ("watch", exits.USAGE, "watch what?"),
        ("watch 5s", exits.USAGE, "watch what?"),
        ("watch 5parsecs topic list", exits.USAGE, "5parsecs"),
        ("watch ''", exits.USAGE, "No such command ''"),
        ("watch topic show no-such-topic", exits.NOT_FOUND, "no-such-topic"),
    ],
)
def test_the_exit_code_is_that_of_the_last_command(on: Cli, line: str, code: int, said: str) -> None:
    found = on("shell", stdin=f"topic list\n{line}\n".encode())
    assert found.code == code
    assert said in found.err


def test_a_line_that_is_not_utf_8_is_an_error_of_that_line(on: Cli) -> None:
    found = on("shell", stdin=b"topic show \xff\ntopic list\n")
    assert found.code == exits.OK
    assert "is not UTF-8" in found.err


def test_help_is_about_the_shell_and_about_a_command(on: Cli) -> None:
    found = on("shell", stdin=b"help\n").text
    assert "watch [TIME] COMMAND" in found
    assert "Create, list, show, alter and delete topics." in found
    assert "--until-end" in on("shell", stdin=b"help consume\n").text


def test_commands_talk_to_the_broker_of_the_shell_unless_they_name_another(
    cli: Cli, broker: Served, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f"topic create {topic}\ntopic show {topic} --url tcp://127.0.0.1:1\n".encode()
    assert cli("shell", "--url", broker.unix, stdin=lines).code == exits.UNAVAILABLE
    assert "PENSTOCK_URL" not in os.environ
    monkeypatch.setenv("PENSTOCK_URL", broker.unix)
    assert cli("topic", "show", topic).code == exits.OK
    cli("shell", "--url", "tcp://127.0.0.1:1", stdin=b"")
    assert os.environ["PENSTOCK_URL"] == broker.unix


def test_a_watched_command_runs_again_until_interrupted(on: Cli, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(shell, "time", SimpleNamespace(sleep=wait))  # other threads of the tests sleep as well
    found = on("shell", stdin=f"topic create {topic}\nwatch 5s topic show {topic} --json\ntopic list\n".encode())
    assert found.code == exits.OK
    assert found.text.count(f'"name":"{topic}"') + found.text.count(f'"name": "{topic}"') == 3
    assert waits == [5.0] * 3
    waits.clear()
    on("shell", stdin=f"watch topic show {topic}\n".encode())
    assert waits == [shell.WATCH_S] * 3


def offered(text: str) -> list[tuple[str, int]]:
    found = CommandCompleter().get_completions(Document(text), CompleteEvent())
    return [(each.text, each.start_position) for each in found]


@pytest.mark.parametrize(
    ("text", "offers"),
    [
        ("sched", [("schedule ", -5)]),
        ("topic sh", [("show ", -2)]),
        ("watch topic sh", [("show ", -2)]),
        ("watch 5s topic sh", [("show ", -2)]),
        ("help topic sh", [("show ", -2)]),
        ("no-such-command x", []),
        ("topic 'unfinished", []),
    ],
)
def test_commands_are_completed(clean: None, text: str, offers: list[tuple[str, int]]) -> None:
    assert offered(text) == offers


def test_names_that_the_broker_has_are_completed(on: Cli, topic: str) -> None:
    short = topic[:40]
    for made in (f"{short}-a", f"{short}-b"):
        assert on("topic", "create", made).code == exits.OK
    on("queue", "set", f"{short}-a", "--group", "first")
    (id_,) = on("task", "enqueue", f"{short}-a", "v").text.split()
    on("task", "claim", id_, "--group", "first", "--worker", "ann", "--force")
    on("queue", "set", f"{short}-b", "--group", "second")
    on("schedule", "set", f"{short}-a", "nightly", "every 1d", "v")
    on("consume", f"{short}-a", "--group", "readers", "--until-end")
    assert offered(f"topic show {short}") == [(f"{short}-a", -len(short)), (f"{short}-b", -len(short))]
    assert offered(f"consume {short}-b") == [(f"{short}-b ", -len(short) - 2)]
    assert offered(f"queue stats {short}-a --group ") == [("first ", 0)]
    assert offered(f"worker forget {short}-a ") == [("ann ", 0)]
    assert offered(f"task pending {short}-a --worker a") == [("ann ", -1)]
    assert offered(f"schedule delete {short}-a ") == [("nightly ", 0)]
    assert offered(f"group show {short}-a ") == [("readers ", 0)]
    assert offered(f"topic show {short}-a --url tcp://127.0.0.1:1 ") == []
    assert offered("topic show no-such-topic") == []


def test_shells_of_the_system_get_the_same_names(on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    found = ShellComplete(penstock, {}, "penstock", COMPLETION).get_completions(["topic", "show"], topic)
    assert [each.value for each in found] == [topic]


def test_names_are_not_offered_when_no_broker_answers(clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "tcp://127.0.0.1:1")
    monkeypatch.setattr("penstock.cli.names.COMPLETION_S", 0.01)
    assert offered("topic show ") == []
    monkeypatch.setenv("PENSTOCK_URL", "nonsense")
    assert offered("topic show ") == []


def test_the_history_is_its_owners_alone(tmp_path: Path) -> None:
    history = tmp_path / "there" / "history"
    line_editor("> ", history).history.store_string("topic list")
    assert history.stat().st_mode & 0o777 == 0o600
    assert "topic list" in history.read_text()


def test_without_the_library_one_sentence_says_how_to_get_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.cli.line_editor")
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    found = cli("shell", typed=b"")
    assert found.code == exits.FAILED
    assert "needs prompt_toolkit: pip install '.[shell]' in a clone" in found.err


@contextmanager
def terminal(home: Path, url: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`penstock shell` on a terminal of its own, and the person's end of that."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "TERM": "xterm", "PENSTOCK_URL": url}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "shell"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def until(screen: int, sought: str) -> None:
    """Read what appears, up to the sought words; escape sequences are no words."""
    seen = b""
    while not re.search(sought.encode(), re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen), re.DOTALL):
        seen += os.read(screen, 4096)


def test_a_person_types_completes_interrupts_and_finds_the_history_again(
    broker: Served, topic: str, tmp_path: Path
) -> None:
    short = topic[:30]
    with terminal(tmp_path, broker.unix) as (process, screen):
        until(screen, "exit ends.*penstock>")
        os.write(screen, f"topic create {short}\r".encode())
        until(screen, "created.*penstock>")
        os.write(screen, f"topic sho {short[:20]}".encode() + b"\x03")  # ^C empties the line
        os.write(screen, f"topic show {short[:20]}\t".encode())
        until(screen, short[-5:])
        os.write(screen, b"\r")
        until(screen, "segments.*penstock>")
        os.write(screen, b"\x04")
        assert process.wait(30) == exits.OK
    assert f"topic create {short}" in (tmp_path / "penstock" / shell.HISTORY).read_text()
