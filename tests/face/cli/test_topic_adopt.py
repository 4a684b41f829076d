"""`penstock topic adopt`: a log alone becomes a topic."""

from __future__ import annotations

from pathlib import Path

from penstock import Log
from penstock.cli import exits

from ..conftest import Cli


def test_it_says_how_many_records_there_are(cli: Cli, tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.append([b"one", b"two"])
    arguments = ("topic", "adopt", "flights", f"{tmp_path}/log", "--data", f"{tmp_path}/data", "--retention", "7d")
    done = cli(*arguments)
    assert done.code == exits.OK, done.err
    assert done.text == f"topic flights took over {tmp_path}/log: 2 records\n"
    assert b"retention_s" in cli("topic", "show", "flights", "--url", f"file://{tmp_path}/data").out
    again = cli(*arguments)
    assert again.code == exits.OK
    assert again.text == f"topic flights has taken over {tmp_path}/log already: 2 records\n"
    mistyped = cli("topic", "adopt", "flights", f"{tmp_path}/lgo", *arguments[4:])
    assert mistyped.code == exits.USAGE
    assert f"there is no log in {tmp_path}/lgo" in mistyped.err
    assert f"topic flights took over {tmp_path}/log" in mistyped.err
    other = cli("topic", "adopt", "trains", *arguments[3:])
    assert other.code == exits.USAGE
    assert "there is no log in" in other.err


def test_its_json_names_the_topic(cli: Cli, tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.append(b"one")
    (found,) = cli("topic", "adopt", "flights", f"{tmp_path}/log", "--data", f"{tmp_path}/data", "--json").lines
    assert (found["topic"], found["records"]) == ("flights", 1)
