"""`penstock user`: names and passwords, from a terminal or a pipe."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from penstock.broker.rights import Principal
from penstock.cli import exits
from penstock.gateway.users import Users

from ..conftest import Cli


def knows(path: str, name: str, password: str) -> bool:
    return asyncio.run(Users.load(path).verify(name, password)) is not None


def test_users_are_added_changed_listed_and_deleted(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    added = cli("user", "add", path, "ann", "--json", stdin=b"first \n")
    assert (added.code, added.lines) == (exits.OK, [{"event": "added", "user": "ann", "file": path}])
    assert knows(path, "ann", "first ")
    changed = cli("user", "add", path, "ann", stdin=b"second")
    assert (changed.code, changed.text) == (exits.OK, "user ann has another password\n")
    assert not knows(path, "ann", "first ")
    assert knows(path, "ann", "second")
    cli("user", "add", path, "bob", stdin=b"x\n")
    assert cli("user", "list", path, "--json").lines == [{"user": "ann"}, {"user": "bob"}]
    assert cli("user", "list", path).text.split() == ["user", "ann", "bob"]
    for json in ([], ["--json"]):
        refused = cli("user", "delete", path, "ann", *json)
        assert (refused.code, "give --yes" in refused.err) == (exits.USAGE, True)
    assert knows(path, "ann", "second")
    assert cli("user", "delete", path, "ann", "--yes").text == f"user ann deleted from {path}\n"
    (line,) = cli("user", "delete", path, "bob", "--yes", "--json").lines
    assert (line["event"], line["user"]) == ("deleted", "bob")
    assert cli("user", "list", path).text == "no users yet: penstock user add FILE NAME\n"


def test_a_password_is_asked_for_twice_and_not_shown(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    asked: list[str] = []

    def hidden(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr("click.termui.hidden_prompt_func", hidden)
    path = str(tmp_path / "users")
    assert cli("user", "add", path, "ann", typed=b"").code == exits.OK
    assert len(asked) == 2
    assert knows(path, "ann", "typed")


def test_what_cannot_be_is_one_line_and_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    for arguments, stdin, says in [
        (("add", path, "a:b"), b"x", "cannot be the name of a user"),
        (("add", path, "ann"), b"\n", "the password is empty"),
        (("add", path, "ann"), b"caf\xe9\n", "the password is not UTF-8"),
        (("list", path), b"", "cannot be read"),
    ]:
        result = cli("user", *arguments, stdin=stdin)
        assert (result.code, len(result.err.splitlines())) == (exits.USAGE, 1)
        assert says in result.err


def test_a_time_that_no_calendar_has_is_listed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(f"ann:token:01234567:999999999999:{'0' * 64}\n")
    assert [each["expires"][:4] for each in cli("user", "tokens", str(path), "--json").lines] == ["9999"]


def test_a_token_is_shown_once_listed_by_its_id_and_revoked(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    made = cli("user", "token", path, "robot", "--expires", "1h", "--json").lines[0]
    for wrong in ("0", "36601d", "9" * 400 + "d"):
        for command in (("user", "token", path, "robot"), ("key", "add", path, "robot", "0" * 64)):
            refused = cli(*command, "--expires", wrong)
            assert (refused.code, "Traceback" in refused.err) == (exits.USAGE, False)
    secret = cli("user", "token", path, "robot").text.strip()
    users = Users.load(path)
    assert users.verify_token(made["token"]) == users.verify_token(secret) == Principal("robot")
    listed = cli("user", "tokens", path, "--json").lines
    assert {each["id"]: each["expires"] for each in listed}[made["id"]] == made["expires"] is not None
    assert [each["user"] for each in listed] == ["robot", "robot"]
    assert secret not in cli("user", "tokens", path).text
    assert cli("user", "list", path).text.split() == ["user", "robot"]
    refused = cli("user", "revoke", path, made["id"])
    assert (refused.code, "give --yes" in refused.err) == (exits.USAGE, True)
    assert cli("user", "revoke", path, made["id"], "--yes").text == f"token {made['id']} deleted from {path}\n"
    assert (users.verify_token(made["token"]), users.verify_token(secret)) == (None, Principal("robot"))
    assert "has no token" in cli("user", "revoke", path, made["id"], "--yes").err
