"""Connections: where the broker is said to be, and that a process asks the same client again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.clients.errors import TimedOut
from penstock.spark import connection
from penstock.spark.connection import address, client_of, close_all
from penstock.spark.errors import InvalidOption
from penstock.spark.options import Endpoint
from support.processes import Serving


def test_the_option_says_where_the_broker_is(tmp_path: Path) -> None:
    file = tmp_path / "address"
    file.write_text("tcp://from-the-file:1\n")
    variable = {"PENSTOCK_URL": "tcp://from-the-environment:1"}
    assert address(Endpoint(url="tcp://host:1", url_file=str(file)), variable) == "tcp://host:1"
    assert address(Endpoint(url_file=str(file)), variable) == "tcp://from-the-file:1"
    assert address(Endpoint(), variable) == "tcp://from-the-environment:1"


def test_without_an_address_every_way_to_give_one_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"option\(\"url\".*urlFile.*PENSTOCK_URL"):
        address(Endpoint(), {})


def test_a_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"urlFile=.* cannot be read: .*No such file"):
        address(Endpoint(url_file=str(tmp_path / "missing")), {})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidOption, match="empty file"):
        address(Endpoint(url_file=str(tmp_path / "empty")), {})


def test_memory_of_one_process_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"mem://here is .* runs many"):
        address(Endpoint(url="mem://here"), {})


def test_an_address_without_a_listener_is_named_with_the_time_that_was_waited(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/absent.sock"
    with pytest.raises(TimedOut, match=rf"no broker answered at {url} within 0\.2 s"):
        client_of(url, 0.2)


def test_a_process_has_one_client_for_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"unix://{tmp_path}/broker.sock"
    with Serving(ServeConfig(data=str(tmp_path / "data"), listen=(url,))):
        first = client_of(url, 10.0)
        assert client_of(url, 10.0) is first
        pid = os.getpid()
        monkeypatch.setattr(connection.os, "getpid", lambda: pid + 1)  # as in a forked process
        forked = client_of(url, 10.0)
        assert forked is not first
        forked.close()
        monkeypatch.undo()
        assert client_of(url, 10.0) is first
        close_all()
        assert first.closed
        assert client_of(url, 10.0) is not first
        close_all()
