"""Two hundred hostile names as arguments: each command refuses them in one printable line, and makes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.cli import exits
from support.hostile_names import HOSTILE_NAMES, shown

from ..conftest import Cli

NAMES = [name for name in HOSTILE_NAMES if name.encode("utf-8", "ignore").decode() == name and "\0" not in name]
"""Those that a program can be given as an argument."""

COMMANDS = {
    "topic": ["topic", "create", "--", "{}"],
    "queue": ["queue", "set", "--", "hostile", "{}"],
    "schedule": ["schedule", "set", "--", "hostile", "{}", "every 30s", "x"],
    "group": ["group", "reset", "--to", "earliest", "--", "hostile", "{}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broker_is_not_asked_for_such_a_name(on: Cli, command: str) -> None:
    assert on("topic", "create", "hostile", "--if-missing").code == exits.OK
    before = on("topic", "list", "--json").out
    for name in NAMES:
        done = on(*(word.replace("{}", name) for word in COMMANDS[command]))
        assert done.code not in (exits.OK, exits.FAILED), shown(name)
        assert done.err.rstrip("\n").isprintable(), shown(name)
    assert on("topic", "list", "--json").out == before
    assert on("queue", "list", "hostile", "--json").out == b""


def test_a_file_of_users_takes_none_of_them(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "access")
    for name in NAMES:
        for command, *more in (
            ("user add",), ("user uid", "7"), ("user token",), ("key add", "0" * 64), ("acl add", "read", "node"),
            ("quota set",),
        ):  # fmt: skip
            if name == "*" and command in ("acl add", "quota set"):
                continue  # all users
            done = cli(*command.split(), "--", path, name, *more, stdin=b"x\n")
            assert done.code == exits.USAGE, (command, shown(name))
            assert done.err.rstrip("\n").isprintable(), shown(name)
    assert not Path(path).exists()
