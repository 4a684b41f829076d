"""How a broker begins, and what a start that fails leaves behind."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest
from penstock.broker import ServeConfig, broker_process
from penstock.broker.broker_process import Assembly
from penstock.transport.errors import AddressInUse


@pytest.mark.parametrize("beside", ["", "b"])
def test_a_failed_first_start_removes_what_it_made_and_nothing_of_another_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """Nodes that are started together have directories under one that none of them has made yet."""
    above, claim = tmp_path / "nodes", broker_process.claim

    def claim_while_another_starts(*arguments: Any) -> Any:
        if beside:
            (above / beside).mkdir()
            (above / beside / "node.json").write_text("acknowledged")
        return claim(*arguments)

    monkeypatch.setattr(broker_process, "claim", claim_while_another_starts)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        config = ServeConfig(data=str(above / "deep" / "a"), listen=(listen,))
        with pytest.raises(AddressInUse):
            Assembly(config, cast("Any", None), cast("Any", None), -1)
    assert [each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*")] == (
        ["nodes", "nodes/b", "nodes/b/node.json"] if beside else []
    )
