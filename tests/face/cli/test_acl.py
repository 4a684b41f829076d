"""`penstock acl`, and the ids of the system's users: what the file holds afterwards."""

from __future__ import annotations

from pathlib import Path

from penstock.broker import access_file
from penstock.cli import exits

from ..conftest import Cli


def test_grants_are_added_listed_checked_and_taken_back(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "access")
    assert cli("acl", "add", path, "ann", "write,read", "topic:a*").text == "ann:allow:read,write:topic:a*\n"
    assert "was there already" in cli("acl", "add", path, "ann", "read,write", "topic:a*").text
    (line,) = cli("acl", "add", path, "*", "all", "topic:ab", "--deny", "--json").lines
    assert (line["event"], line["line"]) == ("added", "*:deny:see,read,write,manage:topic:ab")
    cli("user", "uid", path, "ann", "1001")
    assert cli("acl", "list", path, "--json").lines == [
        {"user": "ann", "kind": "allow", "operations": ["read", "write"], "resource": "topic:a*"},
        {"user": "*", "kind": "deny", "operations": ["see", "read", "write", "manage"], "resource": "topic:ab"},
    ]
    assert cli("acl", "list", path).text.split()[:4] == ["user", "kind", "operations", "resource"]
    for resource, operations, code in [
        ("topic:ac", "read,write", exits.OK), ("topic:ac", "manage", exits.FAILED), ("topic:ab", "see", exits.FAILED),
    ]:  # fmt: skip
        assert cli("acl", "check", path, "ann", operations, resource).code == code
    assert cli("acl", "check", path, "bob", "read", "topic:ac").text == "bob may not read topic:ac\n"
    assert "give --yes" in cli("acl", "delete", path, "*", "all", "topic:ab", "--deny").err
    assert cli("acl", "delete", path, "*", "all", "topic:ab", "--deny", "--yes").code == exits.OK
    assert cli("acl", "check", path, "ann", "see", "topic:ab").text == "ann may do this\n"
    assert cli("acl", "delete", path, "ann", "read", "topic:a*", "--yes").code == exits.USAGE


def test_users_of_the_system_are_set_moved_and_taken_out(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "access")
    assert cli("user", "uid", path, "ann", "1001").text == "user id 1001 is ann\n"
    cli("user", "uid", path, "bob", "1001")
    assert access_file.read(path).uids == {1001: "bob"}
    assert cli("user", "no-uid", path, "1001").code == exits.OK
    assert cli("user", "no-uid", path, "1001").code == exits.USAGE
    assert access_file.read(path).uids == {}


def test_what_cannot_be_is_one_line_and_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "access")
    for arguments, says in [
        (("add", path, "ann", "read", "orders"), "is no resource: topic:T"),
        (("add", path, "ann", "eat", "topic:a"), "is none of see, read"),
        (("add", path, "a b", "read", "topic:a"), "cannot be the name of a user"),
        (("check", path, "ann", "read", "topic:a"), "cannot be read"),
        (("list", path), "cannot be read"),
    ]:
        result = cli("acl", *arguments)
        assert (result.code, len(result.err.splitlines())) == (exits.USAGE, 1)
        assert says in result.err
    cli("acl", "add", path, "ann", "read", "topic:a")
    assert "no single resource" in cli("acl", "check", path, "ann", "read", "topic:*").err


def test_comments_and_what_is_not_changed_stay(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "access"
    cli("user", "add", str(path), "ann", stdin=b"x\n")
    path.write_text(f"# people\n\n{path.read_text()}")
    before = path.read_text()
    cli("acl", "add", str(path), "ann", "read", "topic:a")
    assert path.read_text() == f"{before}ann:allow:read:topic:a\n"
    cli("acl", "delete", str(path), "ann", "read", "topic:a", "--yes")
    assert path.read_text() == before
    assert path.stat().st_mode & 0o777 == 0o600
