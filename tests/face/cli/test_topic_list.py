"""`penstock topic list` where there is nothing to list."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock import Key
from penstock.broker import ServeConfig, access_file
from penstock.cli import exits
from support.processes import Serving

from ..conftest import Cli


def test_a_user_who_may_see_nothing_is_told_so(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, access = Key.generate(), str(tmp_path / "access")
    broker.write(tmp_path / "broker.key")
    key = Key.generate(broker=broker.public)
    key.write(tmp_path / "ann.key")
    access_file.add_key(access, "ann", key.public)
    config = ServeConfig(
        data=str(tmp_path / "data"), listen=("tcp://127.0.0.1:0", f"unix://{tmp_path}/b"), board_rows=32,
        access=access, broker_key=str(tmp_path / "broker.key"),
    )  # fmt: skip
    with Serving(config) as serving:
        ours = ("topic", "list", "--url", f"unix://{tmp_path}/b")
        assert cli(*ours).text == "no topics yet: penstock topic create NAME\n"
        assert cli("topic", "create", "orders", *ours[2:]).code == exits.OK
        monkeypatch.setenv("PENSTOCK_KEY", str(tmp_path / "ann.key"))
        theirs = ("topic", "list", "--url", serving.ready["listen"][0])
        assert cli(*theirs).text.startswith("no topics that the user of this key may see: penstock acl add FILE USER ")
