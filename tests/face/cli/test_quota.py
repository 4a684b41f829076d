"""`penstock quota`: what the file holds afterwards."""

from __future__ import annotations

from pathlib import Path

from penstock.broker import access_file
from penstock.broker.quotas import Quota
from penstock.cli import exits

from ..conftest import Cli


def test_quotas_are_set_listed_and_deleted(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "access")
    cli("user", "uid", path, "ann", "1001")
    cli("user", "uid", path, "bob", "1002")
    told = cli("quota", "set", path, "ann", "--bytes", "1MB", "--in-flight", "5").text
    assert told == "quota of ann: bytes=1048576,in-flight=5\n"
    cli("quota", "set", path, "*", "--requests", "9", "--connections", "2")
    found = access_file.read(path)
    assert found.principal("ann").quota == Quota(bytes_s=1 << 20, in_flight=5)
    assert found.principal("bob").quota == Quota(requests_s=9, connections=2)
    assert found.principal("eve").quota is None
    assert cli("quota", "list", path, "--json").lines == [
        {"user": "*", "bytes_s": 0, "requests_s": 9, "connections": 2, "in_flight": 0},
        {"user": "ann", "bytes_s": 1 << 20, "requests_s": 0, "connections": 0, "in_flight": 5},
    ]
    assert cli("quota", "list", path).text.splitlines()[-1].split() == ["ann", "1048576", "5"]
    cli("quota", "set", path, "ann", "--requests", "3")
    assert access_file.read(path).quotas["ann"] == Quota(requests_s=3)
    assert cli("quota", "delete", path, "ann", "--yes").text == "quota of ann deleted\n"
    assert access_file.read(path).principal("ann").quota == Quota(requests_s=9, connections=2)
    cli("quota", "delete", path, "*", "--yes")
    assert cli("quota", "list", path).text == "no quotas yet: penstock quota set --help\n"


def test_what_cannot_be_is_one_line_and_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "access")
    for arguments, says in [
        (("set", path, "ann"), "a quota has bounds"),
        (("set", path, "a b", "--requests", "1"), "cannot be the name of a user"),
        (("set", path, "ann", "--requests", "0"), "of 1 or more"),
        (("list", path), "cannot be read"),
        (("delete", path, "ann"), "give --yes"),
        (("delete", path, "ann", "--yes"), "cannot be read"),
    ]:
        result = cli("quota", *arguments)
        assert (result.code, len(result.err.splitlines())) == (exits.USAGE, 1)
        assert says in result.err
    cli("quota", "set", path, "ann", "--requests", "1")
    assert "no quota of bob" in cli("quota", "delete", path, "bob", "--yes").err


def test_a_line_that_is_no_quota_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access"
    for line, is_one in [
        ("ann:quota:requests=1", True), ("*:quota:bytes=1,in-flight=2", True), ("ann:quota:", False),
        ("ann:quota:requests=0", False), ("ann:quota:requests=1,requests=1", False), ("ann:quota:requests=1,", False),
        ("ann:quota:in-flight=1,bytes=2", False), ("ann:quota:rows=1", False), ("ann:quota:requests=x", False),
        ("a b:quota:requests=1", False), ("ann:quota:requests=1\nann:quota:requests=2", False),
        ("ann:quotarequests=1", False),
    ]:  # fmt: skip
        path.write_text(line + "\n")
        path.chmod(0o600)
        try:
            access_file.read(str(path))
        except access_file.InvalidUsers:
            assert not is_one, line
        else:
            assert is_one, line
