"""All addresses of a node in one check: two that are one place are refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.cli import exits

from .conftest import Cli

PEERS = "1=tcp://127.0.0.1:7071,2=tcp://127.0.0.1:7073,3=tcp://127.0.0.1:7075"
MEMBER = {"cluster": "c", "node": "1", "peer": PEERS}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"listen": "tcp://127.0.0.1:7070,tcp://localhost:7070"},
            "--listen tcp://127.0.0.1:7070 and --listen tcp://localhost:7070",
        ),
        (
            {"listen": "tcp://127.0.0.1:7070", "http": "tcp://127.0.0.1:7070"},
            "--listen tcp://127.0.0.1:7070 and --http tcp://127.0.0.1:7070",
        ),
        (
            {"resp": "tcp://127.0.0.1:7070", "http": "tcp://*:7070", "insecure": "yes"},
            "--resp tcp://127.0.0.1:7070 and --http tcp://*:7070",
        ),
        (
            {"http": "tcp://127.0.0.1:7070", "metrics": "tcp://127.0.0.1:7070"},
            "--http tcp://127.0.0.1:7070 and --metrics tcp://127.0.0.1:7070",
        ),
        (
            {**MEMBER, "metrics": "tcp://127.0.0.1:7072"},
            "--peer (at the next port) tcp://127.0.0.1:7072 and --metrics tcp://127.0.0.1:7072",
        ),
        (
            {**MEMBER, "peer_listen": "tcp://127.0.0.1:8071", "listen": "tcp://127.0.0.1:8071"},
            "--listen tcp://127.0.0.1:8071 and --peer-listen tcp://127.0.0.1:8071",
        ),
        ({"listen": "unix:///run/x", "resp": "unix:///run/x"}, "--listen unix:///run/x and --resp unix:///run/x"),
        ({"http": "unix:///run/x,unix:///run/x"}, "--http unix:///run/x and --http unix:///run/x"),
    ],
)
def test_two_addresses_that_are_one_place_are_named_with_their_options(
    cli: Cli, tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    pytest.importorskip("uvloop", reason="the gateway needs the extra gateway")
    data = tmp_path / "data"
    options = [word for name, value in {"data": str(data), **settings}.items() for word in ("--set", f"{name}={value}")]
    for command in (["config", "check"], ["serve"]):
        found = cli(*command, *options)
        kind = "path" if "unix" in said else "port"
        expected = f"{said} are one place to listen: choose another {kind} for one of them"
        assert (found.code, expected in found.err) == (exits.USAGE, True), found.err
    assert not data.exists()


def test_addresses_apart_are_fine(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("uvloop", reason="the gateway needs the extra gateway")
    free = "tcp://127.0.0.1:0"
    given = {"data": str(tmp_path / "data"), "listen": f"{free},unix://{tmp_path}/s", "resp": free, "metrics": free}
    options = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    assert cli("config", "check", *options, "--set", f"http={free},unix://{tmp_path}/h").code == exits.OK
