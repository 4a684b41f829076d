"""What processes say to the operator: to standard error, when nothing takes it, and to files that are rotated."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import penstock.broker
import pytest
from penstock.broker import ServeConfig
from penstock.broker.diagnostics import AgedFile, DiagnosticOptions
from support.processes import Serving

SAYS_TWICE = "from penstock.broker.diagnostics import say; say('one'); say('two'); print('alive', flush=True)"


def run(stderr: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-c", SAYS_TWICE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=60,
    )


def test_lines_are_written_one_by_one() -> None:
    assert run(subprocess.PIPE).stderr == b"penstock: one\npenstock: two\n"


@pytest.mark.parametrize("directory", [False, True])
def test_a_name_of_a_client_makes_no_line_of_its_own(tmp_path: Path, directory: bool):
    script = (
        "import sys; from penstock.broker.diagnostics import *; "
        "begin('broker', DiagnosticOptions(directory=sys.argv[1])); "
        "say('a\\nforged: b\\x1b[2J\\u2028\\u202e\\u00e9'); crashed(ValueError('x\\nforged: y\\x1b[2J'))"
    )
    where = str(tmp_path) if directory else ""
    ended = subprocess.run([sys.executable, "-P", "-c", script, where], stderr=subprocess.PIPE, timeout=60, check=True)
    text = (tmp_path / "broker.log").read_text("utf-8") if directory else ended.stderr.decode("utf-8")
    first, second, *traceback = text.splitlines()
    assert first.endswith("a\\nforged: b\\x1b[2J\\u2028\\u202e\u00e9")
    assert second.endswith("ended by an error that should not happen")
    assert traceback == ["  ValueError: x", "  forged: y\\x1b[2J"]


def test_a_reader_that_has_left_ends_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = run(writer)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stdout) == (0, b"alive\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk is played by /dev/full, which is not there")
def test_a_full_disk_ends_nothing() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert run(full).stdout == b"alive\n"
    finally:
        os.close(full)


def unread(program: str) -> tuple[str, list[str]]:
    """What a program wrote to a standard error that nothing reads until it was alive, and the lines behind that."""
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"alive\n"
        seen = os.read(process.stderr.fileno(), 1 << 20).decode()
        return seen, process.communicate(b"\n", timeout=60)[1].decode().splitlines()


SAYS_MUCH = (
    "import sys; from penstock.broker.diagnostics import say; "
    "[say(f'line {number} ' + 'x' * 100) for number in range(2000)]; say('y' * 9000); "
    "print('alive', flush=True); sys.stdin.readline(); say('read again')"
)


def test_a_reader_that_does_not_read_holds_nothing_up_and_is_told_how_much_it_missed() -> None:
    said, last = unread(SAYS_MUCH)
    seen = said.splitlines()
    assert seen == [f"penstock: line {number} {'x' * 100}" for number in range(len(seen))]
    missed = 2001 - len(seen)
    assert last == [f"penstock: lines that nothing read here and that are left out: {missed}", "penstock: read again"]


SAYS_A_LOT_AT_ONCE = (
    "import sys; from penstock.broker.diagnostics import say; "
    "say('y' * 100_000); print('alive', flush=True); sys.stdin.readline(); say('read again')"
)


def test_a_line_that_is_cut_has_an_end_before_the_next_one() -> None:
    seen, last = unread(SAYS_A_LOT_AT_ONCE)
    assert seen == "penstock: " + "y" * (len(seen) - 10)
    assert last == ["", "penstock: lines that nothing read here and that are left out: 1", "penstock: read again"]


def test_no_process_of_the_broker_prints_to_standard_error_by_itself() -> None:
    """`__main__` does once, before anything runs."""
    broker = Path(penstock.broker.__file__).parent
    direct = {path.name for path in broker.rglob("*.py") if "file=sys.stderr" in path.read_text()}
    assert direct == {"diagnostics.py", "__main__.py"}


def said(text: str, at_s: float = 0.0) -> logging.LogRecord:
    record = logging.LogRecord("penstock", logging.WARNING, "", 0, text, (), None)
    record.created = record.created + at_s
    return record


def written(tmp_path: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(tmp_path.iterdir())}


def test_a_file_is_rotated_before_it_is_too_large(tmp_path: Path) -> None:
    file = AgedFile(str(tmp_path / "a.log"), DiagnosticOptions(file_bytes=10, files=3))
    for text in ("first", "second", "third", "fourth"):
        file.emit(said(text))
    file.close()
    assert written(tmp_path) == {"a.log": "fourth\n", "a.log.1": "third\n", "a.log.2": "second\n"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_file_is_rotated_when_it_is_too_old_also_by_the_process_after(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("2020-01-01T00:00:00.000Z WARNING a[1] old\n")
    for first in ("new", "newer"):
        file = AgedFile(str(tmp_path / "a.log"), DiagnosticOptions(age_s=60.0, files=3))
        file.emit(said(first))
        file.close()
    assert written(tmp_path)["a.log"] == "new\nnewer\n"
    file = AgedFile(str(tmp_path / "a.log"), DiagnosticOptions(age_s=60.0, files=3))
    for text, at_s in (("still", 59.0), ("late", 62.0)):
        file.emit(said(text, at_s))
    file.close()
    assert written(tmp_path)["a.log"] == "late\n"


def test_one_file_alone_begins_anew(tmp_path: Path) -> None:
    file = AgedFile(str(tmp_path / "a.log"), DiagnosticOptions(file_bytes=10, files=1))
    for text in ("first", "second"):
        file.emit(said(text))
    file.close()
    assert written(tmp_path) == {"a.log": "second\n"}


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    file = AgedFile(str(tmp_path / "a.log"), DiagnosticOptions())
    file.stream.close()
    file.emit(said("lost"))


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_process_logs_in_a_file_of_its_own(tmp_path: Path, form: str) -> None:
    log = DiagnosticOptions(level="info", format=form, directory=str(tmp_path / "log"))  # type: ignore[arg-type]
    config = ServeConfig(data=str(tmp_path / "data"), listen=("tcp://127.0.0.1:0",), board_rows=64, log=log)
    with Serving(config) as serving:
        pids = serving.ready["pids"]
        serving.kill_broker()
        assert serving.end() == 0
        assert serving.errors() == ""
    lines = {name: text.splitlines() for name, text in written(tmp_path / "log").items()}
    assert {"broker.log", "keeper.log", "supervisor.log"} <= set(lines)
    line = next(line for line in lines["supervisor.log"] if "SIGKILL" in line)
    if form == "json":
        found = json.loads(line)
        assert (found["level"], found["part"], found["logger"]) == ("warning", "supervisor", "penstock")
        assert str(pids["broker"]) in found["message"]
    else:
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z WARNING supervisor\[\d+\] broker \d+ ended", line)
    assert any("serving" in line for line in lines["broker.log"])
    assert any("watching" in line for line in lines["keeper.log"])


def test_a_level_leaves_less_out(tmp_path: Path) -> None:
    log = DiagnosticOptions(level="error", directory=str(tmp_path / "log"))
    config = ServeConfig(data=str(tmp_path / "data"), listen=("tcp://127.0.0.1:0",), board_rows=64, log=log)
    with Serving(config) as serving:
        serving.kill_broker()
        assert serving.end() == 0
    assert set(written(tmp_path / "log").values()) == {""}


def test_a_log_that_cannot_be_opened_is_on_standard_error_and_ends_nothing(tmp_path: Path) -> None:
    """As of a broker that is started again when its log's disk is full, or another user's by now."""
    (tmp_path / "broker.log").mkdir()
    script = (
        "import sys; from penstock.broker.diagnostics import *; "
        "begin('broker', DiagnosticOptions(directory=sys.argv[1])); say('serving')"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", script, tmp_path], capture_output=True, text=True, timeout=60)
    assert ended.stderr.splitlines() == [
        "penstock: the log of the broker cannot be written, so it is here: "
        f"[Errno 21] Is a directory: '{tmp_path}/broker.log'",
        "penstock: serving",
    ]
