"""SIGHUP: settings are read again, what may change does, the rest is named, and a mistake changes nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from penstock.cli import exits

from .conftest import Cli, serve


def test_a_broker_reads_its_settings_again_and_says_what_changes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('drain_s = "20s"\n')
    served = serve(tmp_path / "data", str(tmp_path), "--config", str(path))

    def told() -> dict[str, Any]:
        served.process.send_signal(signal.SIGHUP)
        assert served.process.stdout is not None
        event = json.loads(served.process.stdout.readline())
        return {name: event[name] for name in ("event", "changed", "at_next_start")}

    try:
        assert told() == {"event": "reloaded", "changed": {}, "at_next_start": []}
        path.write_text('drain_s = "7s"\nboard_rows = 64\n')
        for changed in ({"drain_s": 7.0}, {}):
            assert told() == {"event": "reloaded", "changed": changed, "at_next_start": ["board_rows"]}
        path.write_text("drain_s = 7")
        assert told() == {"event": "reloaded", "changed": {}, "at_next_start": []}
        path.write_text("")
        assert told()["changed"] == {"drain_s": 30.0}
    finally:
        assert served.stop() == 0


def test_check_finds_mistakes_before_a_start(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('drain_s = "7s"\n')
    found = cli("config", "check", "--config", str(path), "--json")
    assert (found.code, found.lines[0]["event"], found.lines[0]["given"]) == (exits.OK, "checked", 1)
    for text, says in (
        ("drain_s = 7", "a number without a unit"),
        ('lisen = ["unix:///a"]', "did you mean 'listen'?"),
        ('listen = ["tcp://0.0.0.0:7070"]', "can be reached from other machines"),
        ('listen = ["htp://x"]', "htp"),
    ):
        path.write_text(text)
        found = cli("config", "check", "--config", str(path))
        assert (found.code, says in found.err) == (exits.USAGE, True), found.err
    assert not list(tmp_path.glob("home/*")), "nothing is made"


def test_the_default_file_and_the_version_are_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(cli("config", "default").text)
    assert cli("config", "check", "--config", str(tmp_path / "c.toml")).code == exits.OK
    assert cli("version").text.split() == ["penstock", "0.1.0"]
    (found,) = cli("version", "--verbose", "--json").lines
    assert found["libraries"]["pyzmq"]
    assert {"protocol", "log format", "state format", "board format", "backup format", "python"} <= set(found)
    assert "libraries" not in cli("version", "--verbose").text
